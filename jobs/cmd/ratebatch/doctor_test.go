package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/jobs/topics"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// doctorSays runs the doctor and returns what it found by check: levels and texts.
func doctorSays(t *testing.T, args ...string) (int, map[string]string) {
	t.Helper()
	code, stdout, stderr := cli(t, append(args, "--output", "json")...)
	var findings []finding
	if err := json.Unmarshal([]byte(stdout), &findings); err != nil {
		t.Fatalf("exit %d: %v\n%s%s", code, err, stdout, stderr)
	}
	out := map[string]string{}
	for _, f := range findings {
		out[f.Check] += f.Level + ": " + f.What + "\n"
		if (f.Level == levelError || f.Level == levelWarning) && f.Remedy == "" {
			t.Errorf("%s (%s) has no remedy", f.Check, f.What)
		}
	}
	return code, out
}

func wantFinding(t *testing.T, got map[string]string, check, want string) {
	t.Helper()
	if !strings.Contains(got[check], want) {
		t.Errorf("%s is %q, want %q", check, got[check], want)
	}
}

func TestDoctorFindsWhatIsWrong(t *testing.T) {
	withoutVariables(t)
	flags, e := database(t)
	sql := func(text string) {
		t.Helper()
		if err := e.Conn().Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	place := t.TempDir()
	doctor := func(more ...string) (int, map[string]string) {
		t.Helper()
		return doctorSays(t, append(append(append([]string{}, flags...), "doctor"), more...)...)
	}
	must(t, append(append(append([]string{}, flags...), "rate"), now...)...)
	code, got := doctor("--place", place)
	if code != 0 {
		t.Errorf("a healthy deployment: exit %d %v", code, got)
	}
	for _, check := range []string{"clickhouse", "version", "settings", "clock", "schema", "plan", "metrics", "retention", "commits", "leases", "runs", "parts", "views", "exports"} {
		if !strings.HasPrefix(got[check], levelOK) {
			t.Errorf("%s is %q", check, got[check])
		}
	}
	wantFinding(t, got, "topics", levelSkipped)
	if entries, err := os.ReadDir(place); err != nil || len(entries) > 0 {
		t.Errorf("the doctor left %v in the place of exports (%v)", entries, err)
	}

	// A lease whose holder died, a run that was killed, too many parts, a view that
	// somebody stopped, a commit between two periods: warnings.
	sql("INSERT INTO period_commits (scope, begin, end, revision, kind, run_id) SELECT 'alpha', '2026-11-01 01:30:00', '2026-11-01 02:30:00', 1, 'rated', generateUUIDv4()")
	sql("INSERT INTO leases (name, holder, state, claimed_at, beat_at) VALUES ('rate', 'elsewhere boot 1 1 run', 'claimed', now64(6) - 4000, now64(6) - 3600)")
	sql("INSERT INTO job_runs (run_id, job, state, host, started_at) VALUES (generateUUIDv4(), 'rate', 'running', 'node7', now64(6) - INTERVAL 2 DAY)")
	sql("SYSTEM STOP MERGES watermarks")
	sql("INSERT INTO watermarks (region, complete_until) SELECT toString(number), now() FROM numbers(310) SETTINGS max_block_size = 1, min_insert_block_size_rows = 1, min_insert_block_size_bytes = 1, max_insert_threads = 1")
	sql("SYSTEM STOP VIEW port_volume_hourly_refresh")
	code, got = doctor()
	wantFinding(t, got, "commits", "scope alpha: 1 of its commits begin within a period (from 2026-11-01T01:00:00Z to 2026-11-01T02:00:00Z)")
	wantFinding(t, got, "leases", "lease rate: its holder (elsewhere boot 1 1 run) has been silent")
	wantFinding(t, got, "runs", "on node7 and never ended")
	wantFinding(t, got, "parts", "of watermarks has 31")
	wantFinding(t, got, "views", "port_volume_hourly_refresh is stopped")
	if code != 0 {
		t.Errorf("warnings: exit %d", code)
	}
	if code, _ := doctor("--strict"); code != 20 {
		t.Errorf("warnings with --strict: exit %d", code)
	}
	sql("SYSTEM START MERGES watermarks")
	sql("TRUNCATE TABLE watermarks")

	// Usage that is not rated and older than its tier keeps; a plan that ended; a
	// place that is none: errors.
	must(t, append(append([]string{}, flags...), "watermark", "--region", "one", "--until", "2026-11-03T00:00:00Z")...)
	sql("TRUNCATE TABLE period_commits")
	must(t, append(append([]string{}, flags...), "migrate", "--retention", "hourly=72h")...)
	sql("ALTER TABLE rate_plans UPDATE valid_to = '2026-11-05 00:00:00' WHERE 1 SETTINGS mutations_sync = 2")
	file := filepath.Join(place, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	code, got = doctor("--place", file)
	wantFinding(t, got, "retention", "older than their tier keeps")
	wantFinding(t, got, "plan", "no rate plan is in force now")
	wantFinding(t, got, "exports", levelError)
	if code != 20 {
		t.Errorf("errors: exit %d", code)
	}
	sql("ALTER TABLE rate_plans UPDATE body = 'currency: [' WHERE 1 SETTINGS mutations_sync = 2")
	_, got = doctor()
	wantFinding(t, got, "plan", "cannot be read")

	// A newer schema, none, no server, no data.
	sql("INSERT INTO schema_migrations (version, name, digest) VALUES (999, '999_x', 'x')")
	_, got = doctor()
	wantFinding(t, got, "schema", "migration 999, which this program does not know")
	sql("TRUNCATE TABLE schema_migrations")
	code, got = doctor()
	wantFinding(t, got, "schema", levelError)
	wantFinding(t, got, "billing", levelSkipped)
	if code != 20 {
		t.Errorf("no schema: exit %d", code)
	}
	code, got = doctorSays(t, "--clickhouse", "http://127.0.0.1:1", "doctor")
	wantFinding(t, got, "clickhouse", levelError)
	if code != 20 {
		t.Errorf("no server: exit %d", code)
	}
}

func TestDoctorLooksAtTheTopics(t *testing.T) {
	withoutVariables(t)
	b := kafkatest.Start(t, kafkatest.Config{})
	if b.Outside {
		t.Skip("an outside broker may have the topics")
	}
	address := strings.Join(b.Options.Brokers, ",")
	examine := func() []finding {
		o := doctorOptions{topics: topics.Options{Any: true, Partitions: topics.DefaultPartitions, Replication: -1, Retention: topics.DefaultRetention, Segment: topics.DefaultSegment, Mechanism: "SCRAM-SHA-256"}}
		o.kafka.brokers = []string{address}
		o.topics.Topics.Port, o.topics.Topics.Instance, o.topics.Topics.Disk = "port-stats", "instance-stats", "disk-stats"
		return (&program{now: time.Now}).examineTopics(t.Context(), &o)
	}
	if got := examine(); len(got) < 3 || got[0].Level != levelError || !strings.Contains(got[0].Remedy, "topics apply") {
		t.Errorf("without topics: %+v", got)
	}
	must(t, "topics", "apply", "--kafka", address, "--acls=false")
	if got := examine(); len(got) != 1 || got[0].Level != levelOK {
		t.Errorf("with topics: %+v", got)
	}
	must(t, "topics", "apply", "--kafka", address, "--acls=false", "--retention", "10m")
	if got := examine(); got[0].Level != levelWarning || !strings.Contains(got[0].What, "retention") {
		t.Errorf("with a short retention: %+v", got)
	}
}

// What a healthy machine does not show.
func TestDoctorsJudgement(t *testing.T) {
	good := map[string]string{"async_insert": "0", "decimal_check_overflow": "1", "session_timezone": "UTC", "compile_expressions": "0", "distributed_foreground_insert": "1", "max_memory_usage": "0"}
	with := func(name, value string) map[string]string {
		out := map[string]string{}
		for k, v := range good {
			out[k] = v
		}
		out[name] = value
		return out
	}
	day := func(n int) *time.Time {
		x := time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC)
		return &x
	}
	for name, tt := range map[string]struct {
		got         []finding
		level, what string
	}{
		"an old server":                  {judgeVersion("24.9.3.1"), levelError, "24.9.3.1 is older"},
		"the oldest that will do":        {judgeVersion("24.10.1.1"), levelOK, ""},
		"asynchronous inserts":           {judgeSettings(with("async_insert", "1")), levelError, "async_insert"},
		"overflow that wraps around":     {judgeSettings(with("decimal_check_overflow", "0")), levelError, "decimal_check_overflow"},
		"another time zone":              {judgeSettings(with("session_timezone", "Asia/Tehran")), levelError, "Asia/Tehran"},
		"little memory":                  {judgeSettings(with("max_memory_usage", "1000000000")), levelWarning, "953 MiB"},
		"good settings":                  {judgeSettings(good), levelOK, ""},
		"a clock that is 5 s ahead":      {judgeClock(5 * time.Second), levelOK, "ahead"},
		"a clock that is 6 s behind":     {judgeClock(-6 * time.Second), levelWarning, "behind"},
		"a clock that is an hour off":    {judgeClock(time.Hour), levelError, "1h0m0s ahead"},
		"a disk that is nearly full":     {judgeDisks([]store.Disk{{Name: "default", Free: 2 << 30, Total: 100 << 30}}), levelError, "2.0 of 100.0 GiB"},
		"a disk that fills":              {judgeDisks([]store.Disk{{Name: "default", Free: 9 << 30, Total: 100 << 30}}), levelWarning, "9.0"},
		"a disk with space":              {judgeDisks([]store.Disk{{Name: "default", Free: 50 << 30, Total: 100 << 30}}), levelOK, ""},
		"object storage only":            {judgeDisks(nil), levelSkipped, ""},
		"usage that goes in six days":    {judgeRetention("", day(7), 0, *day(1), 92*24*time.Hour), levelWarning, "deletes it in 144h"},
		"usage that goes in eight days":  {judgeRetention("", day(9), 0, *day(1), 92*24*time.Hour), levelOK, ""},
		"rate that would stop":           {judgeRetention("the plan is gone", nil, 0, *day(1), time.Hour), levelError, "the plan is gone"},
		"a thousand parts":               {judgeParts([]store.CrowdedPartition{{Table: "t", Partition: "p", Parts: 1000}}), levelError, "1000 parts"},
		"999 parts":                      {judgeParts([]store.CrowdedPartition{{Table: "t", Partition: "p", Parts: 999}}), levelWarning, "999 parts"},
		"a view that failed":             {judgeViews([]store.TierView{{View: "v", Exception: "Code: 241\nmore"}}), levelError, "v: Code: 241"},
		"a plan that ends in a week":     {judgeVersions("plan", []store.Version{{Version: 3, Body: "currency: EUR\nservices: []\n", ValidFrom: *day(1), ValidTo: *day(20)}}, *day(13)), levelWarning, "from 2026-11-20T00:00:00Z on"},
		"a plan that begins in the past": {judgeVersions("plan", []store.Version{{Version: 3, Body: "currency: EUR\nservices: []\n", ValidFrom: *day(1), ValidTo: store.OpenEnd}}, *day(13)), levelOK, "version 3"},
		"no plan at all":                 {judgeVersions("plan", nil, *day(13)), levelError, "no rate plan"},
		"what could not be read":         {found("disk", errors.New("no grant"), nil), levelError, "no grant"},
	} {
		f := tt.got[len(tt.got)-1]
		if f.Level != tt.level || !strings.Contains(f.What, tt.what) {
			t.Errorf("%s: %+v, want %s with %q", name, tt.got, tt.level, tt.what)
		}
		if f.Level != levelOK && f.Level != levelSkipped && f.Remedy == "" {
			t.Errorf("%s: no remedy", name)
		}
	}
}

// Topics that keep records for longer are right: to shorten them would delete what
// was not read yet.
func TestDoctorLeavesLongerTopicsAlone(t *testing.T) {
	for is, level := range map[string]string{"259200000": levelOK, "86400000": levelOK, "-1": levelOK, "3600000": levelWarning, "": levelError} {
		if got := judgeTopics(topics.Plan{Changes: []topics.Change{{What: "topic", Name: "port-stats", Setting: "retention.ms", Is: is, Wanted: "86400000"}}}); len(got) != 1 || got[0].Level != level {
			t.Errorf("retention.ms %q: %+v, want %s", is, got, level)
		}
	}
}
