package store_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

func TestMigrateTwiceAppliesNothingTheSecondTime(t *testing.T) {
	for _, server := range enginetest.Servers(t) {
		t.Run(server.Name, func(t *testing.T) {
			e := server.Open(t)
			s := store.New(e.Conn(), e.Database())
			if err := s.CheckSchema(t.Context()); ratebatch.ExitCode(err) != ratebatch.ExitConfig || !strings.Contains(err.Error(), "ratebatch migrate") {
				t.Errorf("CheckSchema of an empty database = %v, want a configuration error that names migrate", err)
			}
			first, err := s.Migrate(t.Context(), store.MigrateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(first.Applied) < 30 {
				t.Errorf("the first Migrate applied %d migrations: %v", len(first.Applied), first.Applied)
			}
			second, err := s.Migrate(t.Context(), store.MigrateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(second.Applied) != 0 || second.Version != first.Version {
				t.Errorf("the second Migrate = %+v, want nothing applied at version %d", second, first.Version)
			}
			if err := s.CheckSchema(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// An older program leaves a database alone that a newer one migrated: it neither
// migrates it nor passes the check that each job begins with.
func TestAnOlderProgramHaltsAtANewerSchema(t *testing.T) {
	e := enginetest.Open(t)
	s := store.New(e.Conn(), e.Database())
	if _, err := s.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := e.Conn().Exec(t.Context(), "INSERT INTO schema_migrations (version, name, digest) VALUES (998, '998_y', 'y'), (999, '999_x', 'x')"); err != nil {
		t.Fatal(err)
	}
	_, migrated := s.Migrate(t.Context(), store.MigrateOptions{})
	for what, err := range map[string]error{"CheckSchema": s.CheckSchema(t.Context()), "Migrate": migrated} {
		if ratebatch.ExitCode(err) != ratebatch.ExitHalted || !errors.Is(err, store.ErrNewerSchema) || !strings.Contains(err.Error(), "migration 999, which this program does not know: use the newer program") {
			t.Errorf("%s = %v", what, err)
		}
	}
}

// After a restore of the state raw samples and views may be gone: Migrate makes
// them again. A table that held state it leaves to a person.
func TestMigrateMakesAgainWhatHoldsNoState(t *testing.T) {
	e := enginetest.Open(t)
	s := store.New(e.Conn(), e.Database())
	if _, err := s.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	gone := []string{"port_samples", "instances_mv", "port_volume_5min_refresh", "rated", "leases"}
	for _, statement := range []string{"DROP TABLE port_samples SYNC", "DROP VIEW instances_mv SYNC", "DROP VIEW port_volume_5min_refresh SYNC", "DROP VIEW rated SYNC", "DROP TABLE leases SYNC"} {
		if err := e.Conn().Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	missing, lost, err := s.Missing(t.Context())
	slices.Sort(missing)
	slices.Sort(gone)
	if err != nil || !slices.Equal(missing, gone) || !slices.Equal(lost, []string{"leases"}) {
		t.Errorf("missing %v, lost %v, %v", missing, lost, err)
	}
	result, err := s.Migrate(t.Context(), store.MigrateOptions{})
	if err != nil || !slices.Equal(result.Applied, []string{"001_port_samples", "012_instances_mv", "089_rated", "017_port_volume_5min_refresh"}) {
		t.Errorf("made again: %v, %v", result.Applied, err)
	}
	if missing, _, err := s.Missing(t.Context()); err != nil || !slices.Equal(missing, []string{"leases"}) {
		t.Errorf("still missing: %v, %v", missing, err)
	}
}

// A cluster's tables and those of a single server are never mixed.
func TestMigrateRefusesTheOtherKindOfTables(t *testing.T) {
	e := enginetest.Open(t)
	s := store.New(e.Conn(), e.Database())
	tables := func() (n uint64) {
		if err := e.Conn().QueryRow(t.Context(), "SELECT count() FROM system.tables WHERE database = currentDatabase()").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := e.Conn().Exec(t.Context(), "CREATE TABLE port_samples_local (ts DateTime) ENGINE = MergeTree ORDER BY ts"); err != nil {
		t.Fatal(err)
	}
	_, err := s.Migrate(t.Context(), store.MigrateOptions{})
	if ratebatch.ExitCode(err) != ratebatch.ExitConfig || !strings.Contains(err.Error(), "those of a cluster") {
		t.Errorf("migrate without --cluster = %v", err)
	}
	if err := e.Conn().Exec(t.Context(), "DROP TABLE port_samples_local SYNC"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := tables()
	_, err = s.Migrate(t.Context(), store.MigrateOptions{Cluster: "billing"})
	if ratebatch.ExitCode(err) != ratebatch.ExitConfig || !strings.Contains(err.Error(), "those of a single server, not of the cluster billing") {
		t.Errorf("migrate of a single server's tables with --cluster = %v", err)
	}
	if n := tables(); n != before {
		t.Errorf("%d tables, %d before the refused migrate", n, before)
	}
}

func TestMigrateSetsAndKeepsRetention(t *testing.T) {
	e := enginetest.Open(t)
	s := store.New(e.Conn(), e.Database())
	if _, err := s.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	check := func(table string, want time.Duration) {
		t.Helper()
		got, err := s.TierRetention(t.Context(), table)
		if err != nil || got != want {
			t.Errorf("retention of %s = %s, %v, want %s", table, got, err, want)
		}
	}
	check("instance_metrics_hourly", store.DefaultRetention.Hourly)
	check("instance_samples", store.DefaultRetention.Raw)
	long := store.Retention{Raw: 60 * time.Hour, FiveMin: 8 * 24 * time.Hour, Hourly: 400 * 24 * time.Hour}
	if _, err := s.Migrate(t.Context(), store.MigrateOptions{Retention: long}); err != nil {
		t.Fatal(err)
	}
	check("instance_metrics_hourly", store.DefaultRetention.Hourly) // not asked for
	if _, err := s.Migrate(t.Context(), store.MigrateOptions{Retention: long, SetRetention: true}); err != nil {
		t.Fatal(err)
	}
	check("instance_metrics_hourly", long.Hourly)
	check("port_volume_5min", long.FiveMin)
	check("disk_samples", long.Raw)
	// A tier that is not named stays as it is.
	if _, err := s.Migrate(t.Context(), store.MigrateOptions{Retention: store.Retention{Hourly: 500 * 24 * time.Hour}, SetRetention: true}); err != nil {
		t.Fatal(err)
	}
	check("instance_metrics_hourly", 500*24*time.Hour)
	check("tier_bases", 500*24*time.Hour)
	check("port_volume_5min", long.FiveMin)
	check("disk_samples", long.Raw)
}

func TestParseRetention(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want store.Retention
		err  string
	}{
		"empty names none":        {"", store.Retention{}, ""},
		"one duration is for all": {"20y", store.Retention{Raw: 175200 * time.Hour, FiveMin: 175200 * time.Hour, Hourly: 175200 * time.Hour}, ""},
		"one that is named":       {"hourly=400d", store.Retention{Hourly: 9600 * time.Hour}, ""},
		"nothing":                 {"raw=0h", store.Retention{}, "nothing would be kept"},
		"unknown tier":            {"weekly=1d", store.Retention{}, `no tier is called "weekly"`},
		"no duration":             {"raw=soon", store.Retention{}, "write 54h, 7d or 20y"},
		"no unit":                 {"7", store.Retention{}, "write 54h, 7d or 20y"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := store.ParseRetention(tt.text)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || ratebatch.ExitCode(err) != ratebatch.ExitConfig {
					t.Fatalf("ParseRetention(%q) error = %v, want a configuration error with %q", tt.text, err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("ParseRetention(%q) = %+v, %v, want %+v", tt.text, got, err, tt.want)
			}
		})
	}
	short := store.Retention{Raw: 5 * time.Hour, FiveMin: 7 * 24 * time.Hour, Hourly: 92 * 24 * time.Hour}
	if err := short.Validate(); err == nil || !strings.Contains(err.Error(), "raw tier") {
		t.Errorf("Validate of raw=5h = %v, want a refusal: late samples would be deleted at insert", err)
	}
}

// The schema for a cluster cannot be run on the embedded engine; its text can
// be checked.
func TestMigrationsForAClusterReplicateAndDistribute(t *testing.T) {
	migrations, err := store.Migrations(store.MigrateOptions{Cluster: "billing"})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range migrations {
		text := strings.Join(m.Statements, "\n")
		if strings.Contains(text, "{{") || strings.Contains(text, "non_replicated") {
			t.Errorf("%s: not rendered for a cluster:\n%s", m.Name, text)
		}
		if !strings.Contains(text, "ON CLUSTER `billing`") {
			t.Errorf("%s: no ON CLUSTER", m.Name)
		}
		if strings.Contains(m.Statements[0], "ENGINE = ") && !strings.Contains(m.Statements[0], "ENGINE = Replicated") {
			t.Errorf("%s: not replicated:\n%s", m.Name, m.Statements[0])
		}
		if strings.Contains(m.Statements[0], "CREATE TABLE") && (len(m.Statements) != 2 || !strings.Contains(m.Statements[1], "ENGINE = Distributed(`billing`")) {
			t.Errorf("%s: no Distributed table beside the local one", m.Name)
		}
	}
}

// Every query file states its contract, and every table and column it names
// exists: EXPLAIN with empty values for its parameters goes through.
func TestEveryQueryIsExplained(t *testing.T) {
	s := storetest.Fresh(t)
	param := regexp.MustCompile(`\{([a-z_]+):([A-Za-z0-9(), ']+)\}`)
	for _, name := range store.QueryNames() {
		t.Run(name, func(t *testing.T) {
			text := store.SQL(name)
			for _, header := range []string{"-- name:    " + name + "\n", "-- purpose: "} {
				if !strings.Contains(text, header) {
					t.Errorf("no header %q", strings.TrimSpace(header))
				}
			}
			bound := store.Params{}
			for _, match := range param.FindAllStringSubmatch(text, -1) {
				bound[match[1]] = zeroOf(name, match[2])
				if !strings.Contains(text, "-- params:") || !strings.Contains(text[:strings.Index(text, "\n"+firstStatementWord(text))], match[1]) {
					t.Errorf("parameter %s is not in the header", match[1])
				}
			}
			statement := strings.ReplaceAll(text, "/* JUDGED */", store.SQL("late_judged"))
			if strings.Contains(statement, "KILL QUERY") || strings.Contains(statement, "CREATE TABLE") || strings.Contains(statement, "TRUNCATE") || strings.Contains(statement, "ALTER TABLE") || strings.Contains(statement, "{{") {
				return // EXPLAIN does not take it; Kill and Migrate have tests of their own
			}
			statement = strings.ReplaceAll(statement, "/* SCOPES */", "SELECT '' AS scope, toDateTime(0, 'UTC') AS first, toDateTime(3600, 'UTC') AS until, 0::Int64 AS again")
			statement = strings.ReplaceAll(statement, "/* CANDIDATES */", "SELECT '' AS scope, toDateTime(0, 'UTC') AS begin, 0::Int64 AS committed, true AS comparable")
			statement = strings.ReplaceAll(statement, "/* ROWS */", "SELECT '' AS scope, '' AS region, toDateTime(0, 'UTC') AS bucket, true AS tier, toDateTime(0, 'UTC') AS refreshed_at")
			statement = strings.ReplaceAll(statement, "/* TIERED */", "SELECT scope, begin, region, qty, '' AS account_, 1 AS t_ FROM rated_lines")
			statement = strings.ReplaceAll(statement, "/* EDGES */", "CAST('[1]', 'Array(Int128)')")
			statement = strings.ReplaceAll(statement, "/* VOLUME */", "tariff IN (1)")
			statement = strings.ReplaceAll(statement, "/* DISCOUNTS */", "SELECT CAST('[]', 'Array(Tuple(UInt32, UInt32, String, String, String, String, String))')")
			if kind, ok := strings.CutPrefix(name, "base_late_"); ok {
				bound["target"] = zeroOf("tier_"+kind, "Identifier")
			}
			for kind, table := range map[string]string{"port": "port_volume_hourly", "instance": "instance_metrics_hourly", "disk": "disk_metrics_hourly"} {
				if strings.HasSuffix(name, "_late_"+kind) {
					statement = strings.ReplaceAll(statement, "/* LATE */", "SELECT * FROM "+table)
				}
			}
			statement = strings.ReplaceAll(statement, "/* DAYS */", "SELECT today() AS day, '' AS scope")
			statement = strings.ReplaceAll(statement, "/* USAGE */", "SELECT region, scope, begin, metric, resource, attributes, qty FROM rated_lines")
			for _, match := range param.FindAllStringSubmatch(statement, -1) {
				if _, ok := bound[match[1]]; !ok {
					bound[match[1]] = zeroOf(name, match[2]) // of a text that was filled in
				}
			}
			if _, ok := bound["zone"]; ok {
				bound["zone"] = "UTC" // no time zone is empty
			}
			if at := regexp.MustCompile(`(?m)^(SELECT|WITH)\b`).FindStringIndex(statement); strings.HasPrefix(firstStatementWord(text), "INSERT") && at != nil {
				statement = statement[at[0]:] // EXPLAIN takes the SELECT of an INSERT … SELECT only
			}
			if err := s.Conn().Exec(store.WithParams(t.Context(), bound), "EXPLAIN "+statement); err != nil {
				t.Errorf("EXPLAIN: %v", err)
			}
		})
	}
}

func firstStatementWord(text string) string {
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" && !strings.HasPrefix(line, "--") {
			return strings.Fields(line)[0]
		}
	}
	return ""
}

func zeroOf(query, typ string) any {
	switch {
	case strings.HasPrefix(typ, "Array"):
		return []string{}
	case strings.HasPrefix(typ, "Map"):
		return map[string]string{}
	case strings.HasPrefix(typ, "DateTime"):
		return time.Unix(3600, 0)
	case typ == "Date":
		return "2026-11-01"
	case typ == "Bool":
		return true
	case typ == "UUID":
		return uuid.Nil
	case typ == "String":
		return ""
	case typ == "Identifier":
		return map[string]string{"tier_instance": "instance_metrics_hourly", "tier_disk": "disk_metrics_hourly", "tier_port": "port_volume_hourly"}[query]
	default:
		return 1
	}
}

// Whatever a name holds, it reaches SQL as a value.
func TestParamsCarryAnyText(t *testing.T) {
	s := storetest.Fresh(t)
	for name, text := range map[string]string{
		"quotes":    `it's "quoted" and 'nested'`,
		"backslash": `a\b\\c\'`,
		"injection": `'); DROP TABLE rated_lines; --`,
		"controls":  "tab\tnewline\nreturn\rbell\a nul\x00 end",
		"unicode":   "Zürich 東京 🚀 \u202e\U0001F468\u200d\U0001F469",
		"braces":    "{from:DateTime} ${x} {{y}}",
		"long":      strings.Repeat("x'\\\n", 10_000),
	} {
		t.Run(name, func(t *testing.T) {
			ctx := store.WithParams(t.Context(), store.Params{"text": text, "list": []string{text, "plain"}})
			var got string
			var list []string
			if err := s.Conn().QueryRow(ctx, "SELECT {text:String}, {list:Array(String)}").Scan(&got, &list); err != nil {
				t.Fatalf("%.200s", err)
			}
			if got != text {
				t.Errorf("String parameter came back as %.80q, want %.80q", got, text)
			}
			if len(list) != 2 || list[0] != text || list[1] != "plain" {
				t.Errorf("Array parameter came back as %.80q", list)
			}
			var literal string
			if err := s.Conn().QueryRow(t.Context(), "SELECT "+sqltext.String(text)).Scan(&literal); err != nil {
				t.Fatal(err)
			}
			if literal != text {
				t.Errorf("the literal came back as %.80q, want %.80q", literal, text)
			}
		})
	}
}

func TestInForce(t *testing.T) {
	at := func(day int) time.Time { return time.Date(2026, 11, day, 0, 0, 0, 0, time.UTC) }
	versions := []store.Version{
		{Version: 1, ValidFrom: at(1), ValidTo: store.OpenEnd},
		{Version: 2, ValidFrom: at(10), ValidTo: at(20)},
		{Version: 3, ValidFrom: at(15), ValidTo: at(18)},
	}
	var got []string
	for _, span := range store.InForce(versions, at(1).AddDate(0, -1, 0), at(30)) {
		version := "none"
		if span.Version != nil {
			version = string(rune('0' + span.Version.Version))
		}
		got = append(got, span.Begin.Format("0102")+"-"+span.End.Format("0102")+":"+version)
	}
	want := "1001-1101:none 1101-1110:1 1110-1115:2 1115-1118:3 1118-1120:2 1120-1130:1"
	if strings.Join(got, " ") != want {
		t.Errorf("InForce = %v, want %s", got, want)
	}
}

func TestExitCodeTakesTheGravest(t *testing.T) {
	err := errors.Join(ratebatch.ErrRejected, &ratebatch.HaltError{Err: errors.New("digest differs"), Hint: "look"})
	if got := ratebatch.ExitCode(err); got != ratebatch.ExitHalted {
		t.Errorf("ExitCode = %d, want %d", got, ratebatch.ExitHalted)
	}
}

// Of two that run at once each migration is claimed by one.
func TestTwoMigratesAtOnceShareTheWork(t *testing.T) {
	e := enginetest.Open(t)
	results := make([]store.MigrateResult, 2)
	errs := make([]error, 2)
	var wait sync.WaitGroup
	for i := range results {
		wait.Go(func() {
			results[i], errs[i] = store.New(e.Conn(), e.Database()).Migrate(t.Context(), store.MigrateOptions{})
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	all, err := store.Migrations(store.MigrateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claimed := map[string]int{}
	for _, r := range results {
		for _, name := range r.Applied {
			claimed[name]++
		}
	}
	for _, m := range all {
		if claimed[m.Name] != 1 {
			t.Errorf("%d of two migrates claim %s", claimed[m.Name], m.Name)
		}
	}
}
