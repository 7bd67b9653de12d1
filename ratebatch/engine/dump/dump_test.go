package dump

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

func exec(t *testing.T, e *engine.Engine, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if err := e.Conn().Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// fill makes tables of the kinds that Ratebatch has.
func fill(t *testing.T, e *engine.Engine) {
	t.Helper()
	exec(t, e,
		`CREATE TABLE samples (n UInt64, s LowCardinality(String), ns Nullable(String), d Decimal(38, 18), big Decimal(76, 36), m Map(LowCardinality(String), String),
			a Array(Nullable(UInt8)), t DateTime64(3, 'UTC'), day Date, u UUID, e Enum8('rated' = 1, 'reset' = 2), f FixedString(4), ip IPv4, ip6 IPv6, tu Tuple(x UInt8, y String), b Bool, fl Float64,
			extra String MATERIALIZED concat(s, '!'))
			ENGINE = ReplacingMergeTree PARTITION BY toYYYYMM(t) ORDER BY (s, n)`,
		`INSERT INTO samples SELECT number, toString(number % 7), if(number % 3 = 0, NULL, concat('it''s ', toString(number))), number / 3, -number, map('k', toString(number)), [1, NULL],
			toDateTime64(number * 1000, 3, 'UTC'), toDate(number % 20000), toUUID('0193d6a8-7b7a-7c3e-8000-0123456789ab'), if(number % 2 = 0, 'rated', 'reset'), 'abcd', toIPv4('10.0.0.1'), toIPv6('::1'), (1, 'y'), number % 2, number / 7
			FROM numbers(150000)`,
		"CREATE TABLE empty (a UInt8, s String) ENGINE = MergeTree ORDER BY a",
		"CREATE TABLE total (s String, n UInt64) ENGINE = SummingMergeTree ORDER BY s",
		"CREATE MATERIALIZED VIEW a_totals TO total AS SELECT s, count() AS n FROM "+e.Database()+".samples GROUP BY s",
		"INSERT INTO total SELECT s, count() FROM samples GROUP BY s",
		"CREATE VIEW b_second AS SELECT n, s FROM total",
		"CREATE VIEW a_first AS SELECT * FROM b_second WHERE n > 10",
	)
}

func TestDumpAndLoad(t *testing.T) {
	for _, format := range []string{Native, Parquet} {
		for _, server := range enginetest.Servers(t) {
			t.Run(format+"/"+server.Name, func(t *testing.T) {
				source := server.Open(t)
				fill(t, source)
				dir := filepath.Join(t.TempDir(), "dump")
				var told []string
				m, err := Dump(t.Context(), Options{Engine: source, Dir: dir, Format: format, Now: time.Now, Progress: func(_, _ int, table Table) { told = append(told, table.Name) }})
				if err != nil {
					t.Fatal(err)
				}
				if len(told) != len(m.Tables) || len(m.Tables) != 6 {
					t.Errorf("told of %v, dumped %d", told, len(m.Tables))
				}
				for _, target := range enginetest.Servers(t) {
					e := target.Open(t)
					if _, err := Load(t.Context(), Options{Engine: e, Dir: dir}); err != nil {
						t.Fatalf("into %s: %v", target.Name, err)
					}
					for _, query := range []string{
						"SELECT toString((count(), sum(d), sum(big), groupBitXor(cityHash64(toString(tuple(*))))))  FROM samples",
						"SELECT toString(groupArray((s, n))) FROM (SELECT s, sum(n) AS n FROM total GROUP BY s ORDER BY s)", "SELECT toString(count()) FROM a_first",
					} {
						var want, got string
						if err := source.Conn().QueryRow(t.Context(), query).Scan(&want); err != nil {
							t.Fatal(err)
						}
						if err := e.Conn().QueryRow(t.Context(), query).Scan(&got); err != nil || got != want {
							t.Errorf("%s: %s, want %s; %v", query, got, want, err)
						}
					}
					_, err := Load(t.Context(), Options{Engine: e, Dir: dir})
					if ratebatch.ExitCode(err) != ratebatch.ExitConfig || !strings.Contains(err.Error(), "rows already") {
						t.Errorf("a second load: %v", err)
					}
				}
			})
		}
	}
}

// Rows of one key that no merge has put together yet are one row in a dump: a
// load merges what it inserts, and a background merge may come at any time.
func TestRowsThatMergeAreDumpedMerged(t *testing.T) {
	for _, format := range []string{Native, Parquet} {
		source, target := enginetest.Open(t), enginetest.Open(t)
		exec(t, source,
			"CREATE TABLE hosts (host String, last SimpleAggregateFunction(max, DateTime('UTC'))) ENGINE = AggregatingMergeTree ORDER BY host",
			"CREATE TABLE tier (k String, v UInt64, samples UInt32) ENGINE = ReplacingMergeTree(samples) ORDER BY k",
			"SYSTEM STOP MERGES hosts", "SYSTEM STOP MERGES tier")
		for i := range 3 {
			exec(t, source, fmt.Sprintf("INSERT INTO hosts VALUES ('a', %d)", 100-i), fmt.Sprintf("INSERT INTO tier VALUES ('a', %d, %d)", i, 10-i))
		}
		dir := filepath.Join(t.TempDir(), "dump")
		if _, err := Dump(t.Context(), Options{Engine: source, Dir: dir, Format: format, Now: time.Now}); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(t.Context(), Options{Engine: target, Dir: dir}); err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		var got string
		if err := target.Conn().QueryRow(t.Context(), "SELECT concat((SELECT toString(groupArray((host, toUnixTimestamp(last)))) FROM hosts), (SELECT toString(groupArray((k, v, samples))) FROM tier))").Scan(&got); err != nil || got != "[('a',100)][('a',0,10)]" {
			t.Errorf("%s: %s, %v", format, got, err)
		}
	}
}

// Over the native protocol rows pass through the client. No server is needed to
// show that they stay what they are.
func TestRowsThroughTheClient(t *testing.T) {
	e := enginetest.Open(t)
	fill(t, e)
	exec(t, e, "CREATE TABLE copy AS samples")
	var b bytes.Buffer
	if err := copyRows(t.Context(), e, "SELECT * FROM samples", &b); err != nil {
		t.Fatal(err)
	}
	if err := insertBlocks(t.Context(), e, "copy", &b); err != nil {
		t.Fatal(err)
	}
	want, got := Table{Name: "samples"}, Table{Name: "copy"}
	for _, table := range []*Table{&want, &got} {
		if err := measure(t.Context(), e, table); err != nil {
			t.Fatal(err)
		}
	}
	if !sameRows(want, got) || got.Rows != 150000 {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestDamageIsFound(t *testing.T) {
	source := enginetest.Open(t)
	exec(t, source, "CREATE TABLE t (n UInt64, s String) ENGINE = MergeTree ORDER BY n", "INSERT INTO t SELECT number, 'x' FROM numbers(1000)")
	dump := func(t *testing.T) (dir string) {
		t.Helper()
		dir = filepath.Join(t.TempDir(), "dump")
		if _, err := Dump(t.Context(), Options{Engine: source, Dir: dir, Format: Native, Now: time.Now}); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	edit := func(t *testing.T, path string, change func([]byte) []byte) {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, change(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		damage func(t *testing.T, dir string)
		code   int
		want   string
	}{
		"a manifest that was not written": {func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Remove(filepath.Join(dir, ManifestFile)); err != nil {
				t.Fatal(err)
			}
		}, ratebatch.ExitConfig, "no complete dump"},
		"a manifest that is no JSON": {func(t *testing.T, dir string) {
			t.Helper()
			edit(t, filepath.Join(dir, ManifestFile), func(b []byte) []byte { return b[:len(b)/2] })
		}, ratebatch.ExitConfig, ManifestFile},
		"a manifest that points elsewhere": {func(t *testing.T, dir string) {
			t.Helper()
			edit(t, filepath.Join(dir, ManifestFile), func(b []byte) []byte {
				return bytes.Replace(b, []byte(`"t.native.zst"`), []byte(`"../../etc/passwd"`), 1)
			})
		}, ratebatch.ExitConfig, "outside the dump"},
		"a file cut short": {func(t *testing.T, dir string) {
			t.Helper()
			edit(t, filepath.Join(dir, "t.native.zst"), func(b []byte) []byte { return b[:len(b)-20] })
		}, ratebatch.ExitUnexpected, ""},
		"other sums": {func(t *testing.T, dir string) {
			t.Helper()
			edit(t, filepath.Join(dir, ManifestFile), func(b []byte) []byte { return bytes.Replace(b, []byte("499500"), []byte("499501"), 1) })
		}, ratebatch.ExitHalted, "499501"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := dump(t)
			tt.damage(t, dir)
			_, err := Load(t.Context(), Options{Engine: enginetest.Open(t), Dir: dir})
			if err == nil || ratebatch.ExitCode(err) != tt.code || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("exit %d, want %d and %q: %v", ratebatch.ExitCode(err), tt.code, tt.want, err)
			}
		})
	}
}

func TestDumpReplacesNothing(t *testing.T) {
	e := enginetest.Open(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"a folder with files": {Dir: dir},
		"a table that is not": {Dir: filepath.Join(dir, "x"), Tables: []string{"nope"}},
	} {
		o.Engine, o.Format, o.Now = e, Native, time.Now
		if _, err := Dump(t.Context(), o); ratebatch.ExitCode(err) != ratebatch.ExitConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestManifestIsReadable(t *testing.T) {
	e := enginetest.Open(t)
	exec(t, e, "CREATE TABLE t (n UInt64) ENGINE = MergeTree ORDER BY n", "INSERT INTO t VALUES (1), (2)")
	dir := filepath.Join(t.TempDir(), "d")
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	if _, err := Dump(t.Context(), Options{Engine: e, Dir: dir, Format: Native, Now: func() time.Time { return at }}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil || len(m.Tables) != 1 || m.Tables[0].Rows != 2 || m.Tables[0].Sums["n"] != "3" || !m.Made.Equal(at) {
		t.Errorf("%s %v", text, err)
	}
}
