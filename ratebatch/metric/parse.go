package metric

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// Parse reads metrics.yaml. All mistakes are reported together, each with its
// line and column, in one ratebatch.ConfigError; each is a *Problem.
func Parse(name string, data []byte) (*Set, error) {
	r := &reader{file: name}
	set := r.set(r.document(data))
	if err := r.err(); err != nil {
		return nil, &ratebatch.ConfigError{Err: err}
	}
	return set, nil
}

// defaults are what the file's top level sets for all metrics.
type defaults struct {
	scopeKey, regionKey string
}

func (r *reader) set(body ast.Node) *Set {
	set := &Set{}
	if body == nil {
		return set
	}
	d := defaults{scopeKey: "project_id", regionKey: "region"}
	var entries []pair
	var metrics ast.Node
	for _, p := range r.pairs(body, "the file") {
		switch p.name {
		case "scope_key":
			d.scopeKey = r.column(p.value, p.name)
		case "region_key":
			d.regionKey = r.regionKey(p.value)
		case "metrics":
			metrics = p.value
			entries = r.pairs(p.value, "metrics")
		default:
			r.unknown(p, []string{"scope_key", "region_key", "metrics"})
		}
	}
	if metrics == nil || len(entries) == 0 && len(r.problems) == 0 {
		r.problem(body, "the file needs metrics")
	}
	keys := map[string]ast.Node{}
	for _, p := range entries {
		m := r.metric(p, d)
		if _, taken := keys[m.Name]; taken {
			r.problem(p.key, "another metric is called %s: give one of them a different alt_name", ratebatch.Quote(m.Name))
			continue
		}
		keys[m.Name] = p.key
		set.Metrics = append(set.Metrics, m)
	}
	slices.SortFunc(set.Metrics, func(a, b *Metric) int { return compare(a.Name, b.Name) })
	return set
}

// metricKeys in the order of the documentation.
var metricKeys = []string{
	"alt_name", "description", "unit", "table", "time", "bucket", "key", "version", "quantity", "value", "integral", "covered",
	"region_key", "scope_key", "resource", "groupby", "metadata", "factor", "offset", "mutate", "mutate_map",
}

// metric reads one entry. It goes on after a mistake, so that all of them show.
func (r *reader) metric(p pair, d defaults) *Metric {
	m := &Metric{
		Name: p.name, Key: p.name, ScopeKey: d.scopeKey, RegionKey: d.regionKey,
		Factor: big.NewRat(1, 1), Offset: new(big.Rat), Mutate: None,
	}
	if !namePattern.MatchString(p.name) {
		r.problem(p.key, "metric name %s: letters, digits and _.:@/#- only, at most 128", ratebatch.Quote(p.name))
	}
	at := map[string]ast.Node{}
	for _, q := range r.pairs(p.value, "metric "+p.name) {
		at[q.name] = q.value
		switch q.name {
		case "alt_name":
			if name, ok := r.text(q.value, q.name); ok {
				if m.Name = name; !namePattern.MatchString(name) {
					r.problem(q.value, "alt_name %s: letters, digits and _.:@/#- only, at most 128", ratebatch.Quote(name))
				}
			}
		case "description":
			m.Description, _ = r.text(q.value, q.name)
		case "unit":
			if unit, ok := r.text(q.value, q.name); ok {
				if m.Unit = unit; unit == "" || len(unit) > 64 || strings.ContainsFunc(unit, control) {
					r.problem(q.value, "unit must have 1 to 64 bytes and no control characters")
				}
			}
		case "table":
			r.table(q.value, m)
		case "time":
			m.Time = r.column(q.value, q.name)
		case "bucket":
			m.Bucket = r.bucket(q.value)
		case "key":
			m.RowKey = r.columns(q.value, q.name)
		case "version":
			m.Version = r.columns(q.value, q.name)
		case "quantity":
			m.Quantity = oneOf(r, q, kinds)
		case "value":
			m.Value = r.columns(q.value, q.name)
		case "integral":
			m.Integral = r.column(q.value, q.name)
		case "covered":
			m.Covered = r.column(q.value, q.name)
		case "region_key":
			m.RegionKey = r.regionKey(q.value)
		case "scope_key":
			m.ScopeKey = r.column(q.value, q.name)
		case "resource":
			m.Resource = r.columns(q.value, q.name)
		case "groupby":
			m.Groupby = r.attributes(q.value, q.name)
		case "metadata":
			m.Metadata = r.attributes(q.value, q.name)
		case "factor":
			m.Factor = r.number(q.value, q.name)
		case "offset":
			m.Offset = r.number(q.value, q.name)
		case "mutate":
			m.Mutate = oneOf(r, q, mutates)
		case "mutate_map":
			m.Map = r.mutateMap(q.value)
		default:
			r.unknown(q, metricKeys)
		}
	}
	for _, required := range []string{"unit", "table", "quantity"} {
		if at[required] == nil {
			r.problem(p.key, "metric %s needs %s", p.name, required)
		}
	}
	c := check{r, m, p, at}
	if m.tier != nil {
		c.tier()
	} else if m.Table != "" {
		c.operator()
	}
	c.quantity()
	c.names()
	if at["mutate_map"] != nil && m.Mutate != Map {
		r.problem(at["mutate_map"], "mutate_map is only used with mutate: MAP")
	}
	if m.Mutate == Map && at["mutate_map"] == nil {
		r.problem(at["mutate"], "mutate: MAP needs a mutate_map")
	}
	return m
}

func control(c rune) bool { return c < 0x20 || c == 0x7f }

func (r *reader) unknown(p pair, known []string) {
	r.problem(p.key, "unknown key %s: known are %s", ratebatch.Quote(p.name), strings.Join(known, ", "))
}

func oneOf[T ~string](r *reader, p pair, known []T) T {
	text, ok := r.text(p.value, p.name)
	if ok && !slices.Contains(known, T(text)) {
		names := make([]string, len(known))
		for i, k := range known {
			names[i] = string(k)
		}
		r.problem(p.value, "%s %s: must be one of %s", p.name, ratebatch.Quote(text), strings.Join(names, ", "))
		return ""
	}
	return T(text)
}

func (r *reader) table(n ast.Node, m *Metric) {
	text, ok := r.text(n, "table")
	if !ok {
		return
	}
	database, _, qualified := strings.Cut(text, ".")
	switch {
	case !tablePattern.MatchString(text):
		r.problem(n, "table %s: a name or database.name of letters, digits and _", ratebatch.Quote(text))
	case qualified && (strings.EqualFold(database, "system") || strings.EqualFold(database, "information_schema")):
		r.problem(n, "table %s: the server's own tables hold no usage", text)
	default:
		m.Table = text
		m.tier, m.Bucket = tierOf(text)
	}
}

func (r *reader) column(n ast.Node, what string) string {
	text, ok := r.text(n, what)
	if ok && !columnPattern.MatchString(text) {
		r.problem(n, "%s %s: must be the name of a column (letters, digits and _), not an expression", what, ratebatch.Quote(text))
		return ""
	}
	return text
}

func (r *reader) regionKey(n ast.Node) string {
	if s, ok := n.(*ast.StringNode); ok && s.Value == "" {
		return ""
	}
	return r.column(n, "region_key")
}

func (r *reader) columns(n ast.Node, what string) []string {
	list := r.list(n, what)
	if list == nil {
		r.problem(n, "%s names no column", what)
	}
	for _, c := range list {
		if !columnPattern.MatchString(c) {
			r.problem(n, "%s %s: must be the name of a column (letters, digits and _), not an expression", what, ratebatch.Quote(c))
		}
	}
	return list
}

// attributes reads a list of columns or a mapping of names to columns.
func (r *reader) attributes(n ast.Node, what string) []Attribute {
	var out []Attribute
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		for _, p := range r.pairs(n, what) {
			if !attributePattern.MatchString(p.name) {
				r.problem(p.key, "%s: attribute name %s: letters, digits and _.:- only", what, ratebatch.Quote(p.name))
			}
			out = append(out, Attribute{p.name, r.column(p.value, what)})
		}
	case *ast.NullNode:
		r.problem(n, "%s is empty: write [] for none", what)
	default:
		if s, ok := n.(*ast.SequenceNode); ok && len(s.Values) == 0 {
			return []Attribute{}
		}
		for _, c := range r.columns(n, what) {
			out = append(out, Attribute{c, c})
		}
	}
	return out
}

func (r *reader) bucket(n ast.Node) time.Duration {
	const day = 24 * 60 * 60
	text, _ := scalar(n)
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 1 || seconds > day || day%seconds != 0 {
		r.problem(n, "bucket %s: must be whole seconds that divide a day (86400)", ratebatch.Quote(text))
		return 0
	}
	return time.Duration(seconds) * time.Second
}

func (r *reader) number(n ast.Node, what string) *big.Rat {
	text, ok := scalar(n)
	if !ok {
		r.problem(n, "%s must be a number or a fraction like 1/1048576", what)
		return new(big.Rat)
	}
	x, err := parseNumber(text)
	switch {
	case err != nil:
		r.problem(n, "%s %v", what, err)
		return new(big.Rat)
	case tooLarge(x):
		r.problem(n, "%s %s: as a reduced fraction it must stay below 2^66 over 2^66", what, text)
		return new(big.Rat)
	}
	return x
}

// mutateMap reads mutate_map. A key in quotes never matches in CloudKitty,
// which would bill nothing without a word, so it is refused.
func (r *reader) mutateMap(n ast.Node) []MapEntry {
	var values []*ast.MappingValueNode
	switch v := n.(type) {
	case *ast.MappingNode:
		values = v.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{v}
	default:
		r.problem(n, "mutate_map must map numbers to numbers")
		return nil
	}
	if len(values) == 0 {
		r.problem(n, "mutate_map is empty: every quantity would be 0")
	}
	var out []MapEntry
	for _, v := range values {
		key := r.plain(v.Key.(ast.Node))
		if s, ok := key.(*ast.StringNode); ok {
			r.problem(key, "mutate_map key %s is text and would never match: write a number without quotes", ratebatch.Quote(s.Value))
			continue
		}
		text, _ := scalar(key)
		from, err := parseNumber(text)
		if err != nil {
			r.problem(v.Key, "mutate_map key %v", err)
			continue
		}
		value := r.plain(v.Value)
		text, _ = scalar(value)
		x, err := parseNumber(text)
		if err != nil {
			r.problem(v.Value, "mutate_map value %v", err)
			continue
		}
		to, err := toDecimal(x)
		if err != nil {
			r.problem(v.Value, "mutate_map value %v", err)
			continue
		}
		if slices.ContainsFunc(out, func(e MapEntry) bool { return e.From.Cmp(from) == 0 }) {
			r.problem(v.Key, "mutate_map has the key %s twice", from.RatString())
			continue
		}
		out = append(out, MapEntry{from, to})
	}
	slices.SortFunc(out, func(a, b MapEntry) int { return a.From.Cmp(b.From) })
	return out
}

// check holds one entry against the rules that tie its keys together.
type check struct {
	*reader
	m  *Metric
	p  pair
	at map[string]ast.Node
}

// on gives where to report a mistake about a key, which may be missing.
func (c check) on(key string) ast.Node {
	if n := c.at[key]; n != nil {
		return n
	}
	return c.p.key
}

// tier fills in what a tier knows by itself.
func (c check) tier() {
	m, f := c.m, c.m.tier
	for _, key := range []string{"time", "bucket", "key", "version", "covered"} {
		if c.at[key] != nil {
			c.problem(c.at[key], "%s is for tables of your own: %s knows its own", key, m.Table)
		}
	}
	m.Time, m.Version, m.Covered = tierTime, tierVersion, tierCovered
	_, m.Bucket = tierOf(m.Table)
	m.RowKey = f.key
	if c.at["resource"] == nil {
		m.Resource = f.resource
	}
	if c.at["groupby"] == nil && c.at["metadata"] == nil {
		for _, col := range f.key {
			if col != m.RegionKey && col != m.ScopeKey && !slices.Contains(m.Resource, col) {
				m.Groupby = append(m.Groupby, Attribute{col, col})
			}
		}
		m.Metadata = []Attribute{{"instance_name", "instance_name"}}
	}
	known := func(key, name string, numeric bool) {
		if name == "" {
			return // not given, or reported already
		}
		col, ok := f.columns[name]
		switch {
		case !ok:
			c.problem(c.on(key), "%s %s: %s has no such column", key, name, f.name)
		case numeric && !col.numeric():
			c.problem(c.on(key), "%s %s: not a number", key, name)
		case !numeric && (col.kind == fixed || col.nullable || col.bits == 64):
			c.problem(c.on(key), "%s %s: a measured value cannot tell usage apart", key, name)
		}
	}
	for _, name := range m.Value {
		known("value", name, true)
		if f.columns[name].scale != f.columns[m.Value[0]].scale {
			c.problem(c.on("value"), "value %s: has other digits after the point than %s, so they are not the same thing", name, m.Value[0])
		}
	}
	known("region_key", m.RegionKey, false)
	known("scope_key", m.ScopeKey, false)
	for _, name := range m.Resource {
		known("resource", name, false)
	}
	for _, a := range m.Groupby {
		known("groupby", a.Column, false)
	}
	for _, a := range m.Metadata {
		known("metadata", a.Column, false)
	}
	if m.Integral != "" {
		if col, ok := f.columns[m.Integral]; !ok || col != seconds {
			c.problem(c.on("integral"), "integral %s: %s has no such sum of value × seconds", m.Integral, f.name)
		}
	}
}

func (c check) operator() {
	m := c.m
	if c.at["time"] == nil {
		c.problem(c.p.key, "metric %s needs time: the column with the begin of each row of %s", c.p.name, m.Table)
	}
	if c.at["resource"] == nil {
		c.problem(c.p.key, "metric %s needs resource: the columns that name what was used", c.p.name)
	}
	if len(m.Version) > 0 && len(m.RowKey) == 0 {
		c.problem(c.on("version"), "version needs key: the columns that tell rows apart")
	}
	if c.at["covered"] != nil && m.Quantity != Time && m.Quantity != Avg {
		c.problem(c.on("covered"), "covered is only used with quantity time or avg")
	}
	if m.Quantity == Time && m.Integral == "" && m.Covered == "" && m.Bucket == 0 {
		c.problem(c.p.key, "metric %s needs covered (a column of seconds) or bucket: how long is a row?", c.p.name)
	}
}

func (c check) quantity() {
	m := c.m
	switch m.Quantity {
	case Sum, Max, Last, Avg:
		if c.at["value"] == nil {
			c.problem(c.p.key, "metric %s needs value: the column to take the %s of", c.p.name, m.Quantity)
		}
	case Presence:
		if c.at["value"] != nil {
			c.problem(c.at["value"], "quantity presence counts resources and reads no value")
		}
	case Time:
		if c.at["value"] != nil && c.at["integral"] != nil {
			c.problem(c.at["integral"], "value and integral exclude each other: integral is value × seconds already")
		}
	}
	if len(m.Value) > 1 && m.Quantity != Sum && m.Quantity != Presence && m.Quantity != "" {
		c.problem(c.at["value"], "only quantity sum adds up several columns")
	}
	if c.at["integral"] != nil && m.Quantity != Time && m.Quantity != "" {
		c.problem(c.at["integral"], "integral is only used with quantity time")
	}
}

func (c check) names() {
	seen := map[string]bool{}
	for _, a := range c.m.Groupby {
		seen[a.Name] = true
	}
	for _, a := range c.m.Metadata {
		if seen[a.Name] {
			c.problem(c.on("metadata"), "attribute %s is in groupby and in metadata", ratebatch.Quote(a.Name))
		}
	}
}
