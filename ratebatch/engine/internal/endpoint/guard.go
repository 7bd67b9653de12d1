package endpoint

import (
	"regexp"
	"slices"
	"strings"
)

// guard refuses statements that reach outside the engine's own folder: files,
// other servers, programs. The engine has no users or grants, so whoever may
// speak to it could otherwise read every file of the process's owner.
//
// It works on the statement's tokens, which is a second reading of a language
// that the engine reads in its own way. So it names what is allowed, not what
// is forbidden, wherever the engine can list what exists, and it looks into
// string literals too. It is there for SQL that comes from a prompt, a
// dashboard or a plan; the password keeps other people out.
type guard struct {
	functions map[string]bool // denied table functions, in lower case
	engines   map[string]bool // denied table and database engines, in lower case
	inString  *regexp.Regexp
}

// Table functions that make rows from nothing or from the engine's own tables.
var innerFunctions = []string{
	"dictionary", "format", "generateRandom", "generateSeries", "generate_series", "merge", "mergeTreeAnalyzeIndexes",
	"mergeTreeAnalyzeIndexesUUID", "mergeTreeIndex", "mergeTreeProjection", "mergeTreeTextIndex", "null", "numbers", "numbers_mt",
	"primes", "timeSeriesData", "timeSeriesMetrics", "timeSeriesSamples", "timeSeriesSelector", "timeSeriesTags", "values",
	"SQLStandardValues", "view", "viewExplain", "viewIfPermitted", "zeros", "zeros_mt",
}

// Ordinary functions that read files or call programs.
var outerFunctions = []string{"file", "catboostEvaluate", "modelEvaluate", "python"}

// Engines whose data lies in the engine's own folder or in memory.
var innerEngines = []string{
	"MergeTree", "ReplacingMergeTree", "SummingMergeTree", "AggregatingMergeTree", "CollapsingMergeTree", "CoalescingMergeTree",
	"VersionedCollapsingMergeTree", "GraphiteMergeTree", "Memory", "Log", "TinyLog", "StripeLog", "Null", "Set", "Join", "Merge",
	"View", "MaterializedView", "WindowView", "Dictionary", "GenerateRandom", "EmbeddedRocksDB", "TimeSeries", "Alias", "Buffer", "Atomic",
}

// newGuard makes a guard from the names that the engine knows.
func newGuard(tableFunctions, engines []string) *guard {
	g := &guard{functions: map[string]bool{}, engines: map[string]bool{}}
	for _, e := range engines {
		g.engines[strings.ToLower(e)] = true
	}
	for _, f := range append(slices.Clone(tableFunctions), outerFunctions...) {
		g.functions[strings.ToLower(f)] = true
	}
	for _, f := range innerFunctions {
		delete(g.functions, strings.ToLower(f))
	}
	for _, e := range innerEngines {
		delete(g.engines, strings.ToLower(e))
	}
	names := make([]string, 0, len(g.functions))
	for f := range g.functions {
		names = append(names, regexp.QuoteMeta(f))
	}
	slices.Sort(names)
	g.inString = regexp.MustCompile("(?i)(?:^|[^0-9a-z_])(" + strings.Join(names, "|") + ")[`\"]?\\s*\\(")
	return g
}

// Statements that touch the disk, stop the engine or keep credentials.
var deniedStatements = map[string]bool{"BACKUP": true, "RESTORE": true, "SNAPSHOT": true, "COPY": true, "EXECUTE": true}

// Settings whose value is SQL or a path.
var deniedSettings = map[string]bool{"additional_table_filters": true, "additional_result_filter": true, "format_schema": true}

// neverAllowed gives the reason why a statement is refused to everybody, the
// product's own statements included, because it would break the endpoint.
func (g *guard) neverAllowed(s *statement) string {
	w := s.words(6)
	if len(w) < 2 {
		return ""
	}
	switch w[0] {
	case "SYSTEM":
		switch w[1] {
		case "SHUTDOWN", "KILL", "SUSPEND":
			return "SYSTEM " + w[1] + " would stop the engine under its other clients; it leaves by itself after the last one"
		}
	case "DROP", "DETACH", "RENAME":
		if w[1] == "DATABASE" && slices.ContainsFunc(w[2:], func(name string) bool { return name == "DEFAULT" || name == "SYSTEM" }) {
			return w[0] + " DATABASE of a database that the engine itself needs"
		}
	}
	return ""
}

// denied gives the reason why a statement needs the right to reach outside, or
// nothing.
func (g *guard) denied(s *statement) string {
	if deniedStatements[s.kind] {
		return s.kind
	}
	if w := s.words(8); len(w) > 2 && slices.Contains(w[:3], "NAMED") && slices.Contains(w[:4], "COLLECTION") {
		return "NAMED COLLECTION"
	}
	dictionary := len(s.tokens) > 2 && slices.Contains(s.words(4), "DICTIONARY")
	for i, t := range s.tokens {
		switch t.kind {
		case literal:
			if m := g.inString.FindStringSubmatch(unquote(s.text[t.start:t.end])); m != nil {
				return strings.ToLower(m[1]) + "() inside a string"
			}
			continue
		case symbol:
			continue
		case word, quoted, endOfSQL:
		}
		name := s.name(t)
		lower := strings.ToLower(name)
		switch {
		case s.symbolAt(i+1, '(') && g.functions[lower]:
			return name + "()"
		case lower == "engine" && g.engines[strings.ToLower(s.engineAfter(i))]:
			return "the engine " + s.engineAfter(i)
		case lower == "outfile" && s.wordAt(i-1, "INTO"), lower == "infile" && s.wordAt(i-1, "FROM"):
			return strings.ToUpper(lower)
		case lower == "disk" && s.symbolAt(i+1, '=') && s.wordAt(i+2, "DISK") && s.symbolAt(i+3, '('):
			return "disk()"
		case lower == "source" && dictionary && s.symbolAt(i+1, '(') && !s.wordAt(i+2, "NULL"):
			return "a dictionary's SOURCE"
		case lower == "from" && s.kind == "ATTACH" && i+1 < len(s.tokens) && s.tokens[i+1].kind == literal:
			return "ATTACH … FROM a path"
		case deniedSettings[lower] && s.symbolAt(i+1, '='):
			return "the setting " + lower
		}
	}
	return ""
}

// engineAfter is the name in ENGINE [=] Name at token i of a DDL statement.
func (s *statement) engineAfter(i int) string {
	switch s.kind {
	case "CREATE", "ATTACH", "REPLACE", "ALTER":
	default:
		return ""
	}
	if i++; s.symbolAt(i, '=') {
		i++
	}
	if i >= len(s.tokens) || s.tokens[i].kind != word && s.tokens[i].kind != quoted {
		return ""
	}
	return s.name(s.tokens[i])
}

func (s *statement) symbolAt(i int, c byte) bool {
	return i >= 0 && i < len(s.tokens) && s.tokens[i].kind == symbol && s.text[s.tokens[i].start] == c
}

func (s *statement) wordAt(i int, upper string) bool {
	return i >= 0 && i < len(s.tokens) && s.tokens[i].kind == word && strings.EqualFold(s.text[s.tokens[i].start:s.tokens[i].end], upper)
}
