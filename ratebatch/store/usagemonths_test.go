package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// What is noted of months that are over is what reading them gives, and is read
// again after whatever changes them.
func TestUsageMonthsAreReadAgainWhenTheyChange(t *testing.T) {
	e := storetest.Fresh(t)
	s := store.New(e.Conn(), e.Database())
	exec := func(text string) {
		t.Helper()
		if err := e.Conn().Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	add := func(bucket, region, scope string) {
		t.Helper()
		exec(fmt.Sprintf(`INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, samples, covered_seconds)
			VALUES ('%s', '%s', generateUUIDv4(), '%s', 'm1', 60, 3600)`, bucket, region, scope))
	}
	exec("CREATE TABLE own (owner Nullable(String), at DateTime('UTC')) ENGINE = MergeTree ORDER BY at")
	defer exec("DROP TABLE own")
	tables := []store.UsageTable{
		{Table: "instance_metrics_hourly", Scope: "project_id", Region: "region", Time: "bucket", Tier: true},
		{Table: "own", Scope: "owner", Time: "at"},
	}
	ended := time.Date(2026, 5, 3, 0, 0, 0, 0, time.UTC)
	// look gives the usages from a day on, how many months had to be read, and
	// notes those that are over.
	look := func(since string) (string, int) {
		t.Helper()
		from, err := time.Parse(time.DateOnly, since)
		if err != nil {
			t.Fatal(err)
		}
		usages, read, err := s.UsageByMonth(t.Context(), tables, from)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.NoteUsageMonths(t.Context(), read, ended); err != nil {
			t.Fatal(err)
		}
		var text string
		for _, u := range usages {
			text += fmt.Sprintf("%s/%s %s\n", u.Scope, u.Region, u.FirstUsage.UTC().Format("01-02 15h"))
		}
		return text, len(read)
	}
	expect := func(since, want string, months int) {
		t.Helper()
		got, read := look(since)
		if diff := cmp.Diff(want, got); diff != "" || read != months {
			t.Errorf("since %s: %d months were read, want %d; usages (-want +got):\n%s", since, read, months, diff)
		}
	}
	add("2026-03-10 05:00:00", "one", "alpha")
	add("2026-03-20 05:00:00", "one", "alpha")
	add("2026-04-02 07:00:00", "two", "alpha")
	add("2026-04-03 00:00:00", "one", "")
	add("2026-05-01 01:00:00", "one", "beta")
	exec("INSERT INTO own VALUES ('alpha', '2026-03-01 02:00:00'), (NULL, '2026-05-02 00:00:00')")
	all := "alpha/ 03-01 02h\nalpha/one 03-10 05h\nalpha/two 04-02 07h\nbeta/one 05-01 01h\nunattributed/ 05-02 00h\nunattributed/one 04-03 00h\n"
	expect("2026-01-01", all, 3)
	expect("2026-01-01", all, 1) // May is not over
	expect("2026-04-01", "alpha/two 04-02 07h\nbeta/one 05-01 01h\nunattributed/ 05-02 00h\nunattributed/one 04-03 00h\n", 1)
	// In the middle of a noted month the hint says too much: it is read.
	expect("2026-03-15", "alpha/one 03-20 05h\nalpha/two 04-02 07h\nbeta/one 05-01 01h\nunattributed/ 05-02 00h\nunattributed/one 04-03 00h\n", 1)

	add("2026-03-09 00:00:00", "one", "gamma") // late, and a new scope
	add("2026-03-01 00:00:00", "one", "alpha")
	all = "alpha/ 03-01 02h\nalpha/one 03-01 00h\nalpha/two 04-02 07h\nbeta/one 05-01 01h\ngamma/one 03-09 00h\nunattributed/ 05-02 00h\nunattributed/one 04-03 00h\n"
	expect("2026-01-01", all, 2)
	expect("2026-01-01", all, 1)
	exec("INSERT INTO own VALUES ('delta', '2026-03-02 00:00:00')") // no tier: read each time
	all = "alpha/ 03-01 02h\nalpha/one 03-01 00h\nalpha/two 04-02 07h\nbeta/one 05-01 01h\ndelta/ 03-02 00h\ngamma/one 03-09 00h\nunattributed/ 05-02 00h\nunattributed/one 04-03 00h\n"
	expect("2026-01-01", all, 1)

	// A merge changes the parts and not what they hold; a deletion both.
	exec("OPTIMIZE TABLE instance_metrics_hourly FINAL")
	if got, _ := look("2026-01-01"); got != all {
		t.Errorf("after a merge:\n%s", cmp.Diff(all, got))
	}
	expect("2026-01-01", all, 1)
	exec("ALTER TABLE instance_metrics_hourly DELETE WHERE project_id = 'gamma' SETTINGS mutations_sync = 2")
	all = "alpha/ 03-01 02h\nalpha/one 03-01 00h\nalpha/two 04-02 07h\nbeta/one 05-01 01h\ndelta/ 03-02 00h\nunattributed/ 05-02 00h\nunattributed/one 04-03 00h\n"
	if got, _ := look("2026-01-01"); got != all {
		t.Errorf("after a deletion:\n%s", cmp.Diff(all, got))
	}
	exec("ALTER TABLE instance_metrics_hourly DROP PARTITION '2026-03-20'")
	expect("2026-01-01", all, 2)

	// Another column for the scope is another question.
	tables[0].Scope = "flavor_name"
	expect("2026-04-01", "m1/one 04-03 00h\nm1/two 04-02 07h\nunattributed/ 05-02 00h\n", 2)
}

// A month that changed while it was read is not noted.
func TestAMonthThatChangedMeanwhileIsNotNoted(t *testing.T) {
	e := storetest.Fresh(t)
	s := store.New(e.Conn(), e.Database())
	add := func(scope string) {
		t.Helper()
		if err := e.Conn().Exec(t.Context(), `INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, samples, covered_seconds)
			VALUES ('2026-03-10 05:00:00', 'one', generateUUIDv4(), '`+scope+`', 'm1', 60, 3600)`); err != nil {
			t.Fatal(err)
		}
	}
	tables := []store.UsageTable{{Table: "instance_metrics_hourly", Scope: "project_id", Region: "region", Time: "bucket", Tier: true}}
	add("alpha")
	_, read, err := s.UsageByMonth(t.Context(), tables, time.Unix(0, 0))
	if err != nil || len(read) != 1 {
		t.Fatalf("%d months were read: %v", len(read), err)
	}
	add("beta")
	if err := s.NoteUsageMonths(t.Context(), read, time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	usages, read, err := s.UsageByMonth(t.Context(), tables, time.Unix(0, 0))
	if err != nil || len(usages) != 2 || len(read) != 1 {
		t.Errorf("%d scopes, %d months were read: %v; want 2 and 1, for the note would lack beta", len(usages), len(read), err)
	}
}
