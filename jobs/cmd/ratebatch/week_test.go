package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/jobs/reconcile"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/schedules"
)

// cronLine is a line of the rendered crontab.
type cronLine struct {
	cron schedules.Cron
	args []string
}

// crontab reads the rendered crontab as cron does: five fields, the user, and a
// command, of which what follows ratebatch is taken.
func crontab(t *testing.T, schedule string) []cronLine {
	t.Helper()
	var out []cronLine
	for line := range strings.SplitSeq(must(t, "schedule", "render", "crontab", "--file", schedule), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 7 || strings.HasPrefix(line, "#") {
			continue
		}
		c, err := schedules.ParseCron(strings.Join(fields[:5], " "), time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.Index(fields, "/usr/bin/ratebatch")
		if i < 0 {
			t.Fatalf("no command in %s", line)
		}
		out = append(out, cronLine{c, fields[i+1:]})
	}
	return out
}

// guest is an instance with a port, and what an agent tells of it: a sample of
// either every quarter of an hour.
type guest struct {
	project string
	begin   time.Time
	minutes int // of each hour that it runs
}

// agents write what the guests' hosts would have written, and keep the bill by
// themselves: exact, from what they wrote, with nothing of the program's.
type agents struct {
	*testing.T
	client   *kgo.Client
	topics   wire.Topics
	guests   []guest
	at       time.Time // written up to here
	sequence uint64
	again    []*kgo.Record             // to be sent once more
	bill     map[string]map[int64]bill // project, hour
}

type bill struct{ seconds, bytes int64 }

const every = 15 * time.Minute

// until writes the samples that end up to a moment. Each seventh record comes
// again with the next ones, as after a lost acknowledgement.
func (a *agents) until(moment time.Time) {
	a.Helper()
	records := a.again
	a.again = nil
	add := func(topic string, key, value []byte) {
		r := &kgo.Record{Topic: topic, Key: key, Value: value}
		records = append(records, r)
		if a.sequence%7 == 0 {
			a.again = append(a.again, &kgo.Record{Topic: topic, Key: key, Value: value})
		}
	}
	for end := a.at.Add(every); !end.After(moment); end = end.Add(every) {
		begin := end.Add(-every)
		a.at = end
		for i, g := range a.guests {
			if begin.Before(g.begin) || begin.Minute() >= g.minutes {
				continue
			}
			common := func() wire.Common {
				a.sequence++
				return wire.Common{V: wire.Version, TS: end.Unix(), Host: "host-1", RegionName: "one", InstanceUUID: uuid.UUID{1, byte(i)}, BeginMS: begin.UnixMilli(), EndMS: end.UnixMilli(),
					Epoch: 1, Sequence: a.sequence, ProjectID: g.project, UserID: "u", FlavorName: "m1", VCPUs: 2, InstanceName: "vm", AgentVersion: "test"}
			}
			memory := uint64(1 << 30)
			instance := wire.Instance{Common: common(), CPUPct: 1234, MemoryActualBytes: &memory, MemoryRSSBytes: &memory, MemoryUsableBytes: &memory}
			add(a.topics.Instance, instance.Key(), instance.Append(nil))
			port := wire.Port{Common: common(), PortUUID: uuid.UUID{2, byte(i)}, NetworkUUID: uuid.UUID{3}, RxBytes: a.sequence << 20, TxBytes: 5}
			add(a.topics.Port, port.Key(), port.Append(nil))
			hours := a.bill[g.project]
			if hours == nil {
				hours = map[int64]bill{}
				a.bill[g.project] = hours
			}
			h := hours[begin.Truncate(time.Hour).Unix()]
			hours[begin.Truncate(time.Hour).Unix()] = bill{h.seconds + int64(every/time.Second), h.bytes + int64(port.RxBytes)}
		}
	}
	if err := a.client.ProduceSync(a.Context(), records...).FirstErr(); err != nil {
		a.Fatal(err)
	}
}

// owed is what each project owes for the hours of [begin, end) by weekPlan, and
// all of them together.
func (a *agents) owed(begin, end time.Time) (list string, total decimal.Decimal) {
	var out []string
	for _, project := range slices.Sorted(maps.Keys(a.bill)) {
		sum := decimal.Zero
		for hour, b := range a.bill[project] {
			if hour >= begin.Unix() && hour < end.Unix() {
				// Quarters of an hour, and whole MiB of a price per GiB: the quotients are exact.
				sum = sum.Add(decimal.NewFromInt(b.seconds).Div(decimal.NewFromInt(3600)).Mul(decimal.RequireFromString("0.0123"))).
					Add(decimal.NewFromInt(b.bytes).Div(decimal.NewFromInt(1 << 30)).Mul(decimal.RequireFromString("0.0000007")))
			}
		}
		out = append(out, project+" "+sum.String())
		total = total.Add(sum)
	}
	return strings.Join(out, ", "), total
}

const weekPlan = `
currency: EUR
services:
  - name: instance
    mappings: [{cost: "0.0123", type: flat}]
  - name: network.incoming
    mappings: [{cost: "0.0000007", type: flat}]
`

// weekSchedule is the built-in schedule, but that ingest and rate run twice a day:
// hundreds of runs more would show nothing more. RATEBATCH_TEST_FAULTS=all leaves
// it as it is. It also says at which minutes the two run.
func weekSchedule(t *testing.T) (file string, ingests, rates func(time.Time) bool) {
	t.Helper()
	file = "../../../schedules/default.yaml"
	if os.Getenv(envFaults) == "all" {
		return file, func(at time.Time) bool { return at.Minute()%5 == 0 }, func(at time.Time) bool { return at.Minute() == 7 }
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for often, seldom := range map[string]string{"*/5 * * * *": "4 2-23/12 * * *", "7 * * * *": "7 2-23/12 * * *"} {
		often, seldom = `cron: "`+often+`"`, `cron: "`+seldom+`"`
		if bytes.Count(text, []byte(often)) != 1 {
			t.Fatalf("the built-in schedule has no %s", often)
		}
		text = bytes.Replace(text, []byte(often), []byte(seldom), 1)
	}
	file = filepath.Join(t.TempDir(), "schedule.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, func(at time.Time) bool { return at.Hour()%12 == 2 && at.Minute() == 4 }, func(at time.Time) bool { return at.Hour()%12 == 2 && at.Minute() == 7 }
}

// A week in which cron runs what was rendered and nobody does anything, but that
// the machine is off for two days: all usage comes through Kafka, and at the end
// the last month is closed, exported and reconciled, exact to the last digit. It
// is a week of the past: the tiers take up only what has ended by the server's clock.
func TestAWeekOfTheCrontab(t *testing.T) {
	withoutVariables(t)
	schedule, ingests, rates := weekSchedule(t)
	lines := crontab(t, schedule)
	if len(lines) != 7 {
		t.Fatalf("%d lines", len(lines))
	}
	broker := kafkatest.Start(t, kafkatest.Config{})
	topics := broker.Topics(t, 2)
	o := enginetest.Options(t)
	files := t.TempDir()
	for name, value := range map[string]string{
		"DATA": o.DataDir, "DATABASE": o.Database, "EXPORT_TO": files, "INGEST_GROUP": broker.Name("group"),
		"KAFKA": strings.Join(broker.Options.Brokers, ","), "KAFKA_USER": broker.Options.User, "KAFKA_PASSWORD": broker.Options.Password, "KAFKA_SASL": broker.Options.Mechanism, "KAFKA_CA": broker.Options.CAFile,
		"KAFKA_PORT_TOPIC": topics.Port, "KAFKA_INSTANCE_TOPIC": topics.Instance, "KAFKA_DISK_TOPIC": topics.Disk,
	} {
		if value != "" {
			t.Setenv("RATEBATCH_"+name, value)
		}
	}
	must(t, "migrate", "--retention", "40y")
	e, err := engine.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	plan := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(plan, []byte(weekPlan), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "plan", "apply", plan)

	day := func(month time.Month, d, h, m int) time.Time { return time.Date(2025, month, d, h, m, 0, 0, time.UTC) }
	begin, end := day(time.March, 31, 0, 30), day(time.April, 7, 0, 30)
	offFrom, offTo := day(time.April, 1, 6, 0), day(time.April, 3, 6, 0)
	a := &agents{T: t, client: broker.Client(t), topics: topics, at: day(time.March, 30, 22, 0), bill: map[string]map[int64]bill{}, guests: []guest{
		{"alpha", day(time.March, 30, 22, 0), 60}, {"beta", day(time.March, 30, 22, 0), 30}, {"gamma", day(time.March, 31, 12, 15), 60},
	}}
	var rated time.Time // hours before it were ready when rate ran last
	reconciled := 0
	for at := begin.Add(time.Minute); at.Before(end); at = at.Add(time.Minute) {
		if at.After(offFrom) && at.Before(offTo) {
			continue
		}
		for _, line := range lines {
			if !line.cron.Next(at.Add(-time.Minute)).Equal(at) {
				continue
			}
			a.until(at)
			var stdout, stderr bytes.Buffer
			p := &program{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, now: func() time.Time { return at }}
			if code := p.run(t.Context(), line.args); code != 0 {
				t.Fatalf("%s ratebatch %s: exit %d\n%s%s", at.Format(time.RFC3339), strings.Join(line.args, " "), code, stdout.String(), stderr.String())
			}
			switch line.args[0] {
			case "rate":
				rated = at.Truncate(time.Hour).Add(-time.Hour)
			case "reconcile":
				reconciled++
			}
		}
	}
	if reconciled != 5 { // it only reads, so it is in no run log
		t.Errorf("reconcile ran %d times", reconciled)
	}
	runs(t, e, begin, end, func(at time.Time) bool { return at.After(offFrom) && at.Before(offTo) }, ingests, rates)

	april := day(time.April, 1, 0, 0)
	var got string
	err = e.Conn().QueryRow(t.Context(), "SELECT arrayStringConcat(groupArray(concat(scope, ' ', toString(price))), ', ') FROM (SELECT scope, sum(price) AS price FROM rated GROUP BY scope ORDER BY scope)").Scan(&got)
	if want, _ := a.owed(time.Time{}, rated); err != nil || got != want {
		t.Errorf("rated: %s (%v), by what the agents wrote %s", got, err, want)
	}
	_, march := a.owed(time.Time{}, april)
	var closes closesList
	if err := json.Unmarshal([]byte(must(t, "close", "--list", "--output", "json")), &closes); err != nil {
		t.Fatal(err)
	}
	if len(closes.Closes) != 1 || closes.Closes[0].Month.Format("2006-01") != "2025-03" || closes.Closes[0].Total.String() != march.String() || closes.Closes[0].Periods != 3*31*24 || len(closes.Corrections) != 0 {
		t.Errorf("closes, with %s owed for March: %+v", march, closes)
	}
	if out := must(t, "export", "verify", files); !strings.Contains(out, " "+march.String()+" EUR ") {
		t.Errorf("the exported month, with %s owed:\n%s", march, out)
	}
	// What the schedule's own run found of April, right after its export, is in its
	// exit codes above.
	var r reconcile.Report
	if err := json.Unmarshal([]byte(must(t, "reconcile", "--output", "json", "--month", "2025-03", "--files", files)), &r); err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Steps {
		if x.Result != reconcile.Holds {
			t.Errorf("reconcile: %+v", x)
		}
	}
	if len(r.Steps) < 20 {
		t.Errorf("reconcile: %d steps", len(r.Steps))
	}
	must(t, "status", "--check", "--max-lag", "12h", "--now", end.Format(time.RFC3339))
}

// runs compares the run log with when each job should have run.
func runs(t *testing.T, e *engine.Engine, begin, end time.Time, off, ingests, rates func(time.Time) bool) {
	t.Helper()
	want := map[string][]string{}
	for at := begin; at.Before(end); at = at.Add(time.Minute) {
		if off(at) {
			continue
		}
		now := at.Format("02 15:04")
		for job, due := range map[string]bool{
			"ingest": ingests(at), "rate": rates(at), "export": strings.HasSuffix(now, " 02:30") || at.Day() >= 4 && at.Day() <= 10 && (strings.HasSuffix(now, " 09:30") || strings.HasSuffix(now, " 15:30")),
			"retention": strings.HasSuffix(now, " 05:45"), "close": at.Day() == 4 && at.Minute() == 0 && at.Hour() >= 6 && at.Hour() <= 12,
		} {
			if due {
				want[job] = append(want[job], now)
			}
		}
	}
	got := map[string][]string{}
	rows, err := e.Conn().Query(t.Context(), "SELECT job, groupArray(formatDateTime(started_at, '%d %H:%i')) FROM (SELECT * FROM job_runs WHERE state = 'done' ORDER BY started_at) GROUP BY job")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var job string
		var at []string
		if err := rows.Scan(&job, &at); err != nil {
			t.Fatal(err)
		}
		got[job] = at
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}
