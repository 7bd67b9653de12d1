package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ratebatch/ratebatch/exporter"
	bucketfile "github.com/ratebatch/ratebatch/exporter/bucket/file"
	"github.com/ratebatch/ratebatch/fixtures/fault"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// The variables of TestSoak: for how long to go on (such as 1h; otherwise it is
// two days), and what to draw the months and the faults from.
const (
	envSoak     = "RATEBATCH_TEST_SOAK"
	envSoakSeed = "RATEBATCH_TEST_SOAK_SEED"
)

// soakPlan has a price of more digits than SQL takes, so that every pass has
// lines of both ways of pricing.
const soakPlan = `
currency: EUR
services:
  - name: instance
    fields:
      - name: flavor_name
        mappings:
          - {value: m1, cost: "0.0%d", type: flat}
          - {value: m2, cost: "1.%d", type: flat}
  - name: vcpu
    mappings:
      - {cost: "0.0300000000000000000000000001", type: flat}
    thresholds:
      - {level: "0", cost: "1.%d00000000000000000000000001", type: rate}
`

// soakSide is one of two databases that are told the same.
type soakSide struct {
	*billed
	files string
}

func newSoakSide(t *testing.T) *soakSide {
	t.Helper()
	o := enginetest.Options(t)
	flags := []string{"--data", o.DataDir, "--database", o.Database}
	must(t, append(flags, "migrate", "--retention", "40y")...)
	e, err := engine.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return &soakSide{&billed{T: t, e: e, s: store.New(e.Conn(), e.Database()), flags: flags}, t.TempDir()}
}

// soakFault is what happens to one statement of a command.
type soakFault int

const (
	noFault    soakFault = iota
	killBefore           // the process dies, the statement does not run
	killDuring           // the process dies while the statement runs
	killAfter            // the process dies, the statement has run
	refused              // the server refuses the statement and the two after it
	lost                 // the statement runs, its answer does not arrive
	faults
)

func (f soakFault) String() string {
	return [...]string{"none", "killed before", "killed during", "killed after", "refused", "answer lost"}[f]
}

// saboteur stands between one command at a time and the engine.
type saboteur struct {
	mu      sync.Mutex
	kind    soakFault
	at      int  // statement that breaks, from 1
	inserts bool // count only those that insert
	seen    int
	struck  [faults]int // how often each fault did
	process *os.Process
	proxy   *httputil.ReverseProxy
	url     *url.URL
}

func newSaboteur(t *testing.T, e *engine.Engine) *saboteur {
	t.Helper()
	target, err := url.Parse(e.URL())
	if err != nil {
		t.Fatal(err)
	}
	s := &saboteur{proxy: httputil.NewSingleHostReverseProxy(target)}
	s.proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {} // its client is dead
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	if s.url, err = url.Parse(server.URL); err != nil {
		t.Fatal(err)
	}
	auth := e.ClientOptions().Auth
	s.url.User = url.UserPassword(auth.Username, auth.Password)
	return s
}

// arm chooses the next command's fault.
func (s *saboteur) arm(kind soakFault, at int, inserts bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kind, s.at, s.inserts, s.seen, s.process = kind, at, inserts, 0, nil
}

// strikes says what becomes of a statement.
func (s *saboteur) strikes(insert bool) soakFault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kind == noFault || s.inserts && !insert {
		return noFault
	}
	s.seen++
	if s.seen != s.at && (s.kind != refused || s.seen < s.at || s.seen > s.at+2) {
		return noFault
	}
	s.struck[s.kind]++
	return s.kind
}

// hits is how often a fault struck, in all and of each kind.
func (s *saboteur) hits() (all int, kinds string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var parts []string
	for kind, n := range s.struck {
		if n > 0 {
			all += n
			parts = append(parts, fmt.Sprintf("%d %s", n, soakFault(kind)))
		}
	}
	return all, strings.Join(parts, ", ")
}

func (s *saboteur) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		_ = s.process.Kill() // it may be gone already
	}
}

func (s *saboteur) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	kind := s.strikes(fault.Writes(string(body)) || strings.Contains(r.URL.Query().Get("query"), "INSERT INTO"))
	switch kind {
	case killBefore:
		s.kill()
	case refused:
		w.Header().Set("X-ClickHouse-Exception-Code", "252")
		http.Error(w, "Code: 252. DB::Exception: Too many parts (injected). (TOO_MANY_PARTS)", http.StatusInternalServerError)
	case killAfter, lost:
		// It runs to its end, whatever becomes of the client.
		s.proxy.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
		if kind == killAfter {
			s.kill()
		}
		panic(http.ErrAbortHandler) // the connection ends without an answer
	case killDuring:
		time.AfterFunc(3*time.Millisecond, s.kill)
		s.proxy.ServeHTTP(w, r)
	default:
		s.proxy.ServeHTTP(w, r)
	}
}

// soakRun is the months, and both databases.
type soakRun struct {
	*testing.T
	clean, faulty *soakSide
	saboteur      *saboteur
	random        *rand.Rand // of what is told to both
	faults        *rand.Rand // of what befalls one
	today         time.Time  // the next day that is rated
	disabled      string
	closed        time.Time // months before it are closed

	commands, killed, failed int
}

func (r *soakRun) both(tell func(side *soakSide)) {
	tell(r.clean)
	tell(r.faulty)
}

// run gives both databases a command: one as it is, the other as processes that
// break until one ends well.
func (r *soakRun) run(args ...string) {
	r.Helper()
	r.commands++
	if code, stdout, stderr := cli(r.T, append(slices.Clone(r.clean.flags), args...)...); code != 0 {
		r.Fatalf("%s: the clean run of %v: exit %d\n%s%s", r.today.Format(time.DateOnly), args, code, stdout, stderr)
	}
	for try := 1; ; try++ {
		kind := noFault
		if try <= 4 && r.faults.IntN(3) > 0 {
			kind = soakFault(1 + r.faults.IntN(int(faults)-1))
		}
		inserts := r.faults.IntN(2) == 0
		at := 1 + r.faults.IntN(40)
		if inserts {
			at = 1 + r.faults.IntN(8)
		}
		code, output := r.process(kind, at, inserts, args...)
		switch {
		case code == 0:
			return
		case args[0] == "close" && strings.Contains(output, "is closed already"):
			return // it was before the answer was lost
		case code == -1:
			r.killed++
		case code == ratebatch.ExitTryAgain || code == ratebatch.ExitUnexpected && kind != noFault:
			r.failed++
		default:
			r.Fatalf("%s: %v with fault %d at %d: exit %d\n%s", r.today.Format(time.DateOnly), args, kind, at, code, output)
		}
		if try > 8 {
			r.Fatalf("%s: %v does not end well without faults: exit %d\n%s", r.today.Format(time.DateOnly), args, code, output)
		}
	}
}

// process runs a command as a process, with a fault at a statement.
func (r *soakRun) process(kind soakFault, at int, inserts bool, args ...string) (code int, output string) {
	r.Helper()
	executable, err := os.Executable()
	if err != nil {
		r.Fatal(err)
	}
	r.saboteur.arm(kind, at, inserts)
	var out bytes.Buffer
	cmd := exec.CommandContext(r.Context(), executable, append([]string{"--clickhouse", r.saboteur.url.String(), "--database", r.faulty.e.Database()}, args...)...)
	cmd.Env = append(os.Environ(), envProgram+"=1")
	cmd.Stdout, cmd.Stderr = &out, &out
	r.saboteur.mu.Lock()
	err = cmd.Start()
	r.saboteur.process = cmd.Process
	r.saboteur.mu.Unlock()
	if err != nil {
		r.Fatal(err)
	}
	_ = cmd.Wait() // its exit code says it
	return cmd.ProcessState.ExitCode(), out.String()
}

// perhaps is true n times in a hundred.
func (r *soakRun) perhaps(n int) bool { return r.random.IntN(100) < n }

// usage writes a day of some instances; the salt decides what they did.
func (r *soakRun) usage(day time.Time, instances, hours, salt int) {
	r.Helper()
	r.both(func(side *soakSide) {
		ctx := store.WithParams(side.Context(), store.Params{"day": day, "n": instances, "hours": hours, "salt": salt})
		if err := side.e.Conn().Exec(ctx, `INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, vcpus, instance_name, samples, samples_ended, covered_seconds)
			SELECT toDateTime({day:String}, 'UTC') + 3600 * (number % {hours:UInt32}), 'one', reinterpret(sipHash128({salt:UInt32}, intDiv(number, {hours:UInt32})), 'UUID'),
				concat('project-', toString(intDiv(number, {hours:UInt32}) % 4)), if(sipHash64({salt:UInt32}, number) % 3 = 0, 'm2', 'm1'), 1 + sipHash64(number) % 4, 'vm', 60, 60, toDecimal32(1 + sipHash64({salt:UInt32}, number) % 3600, 3)
			FROM numbers({n:UInt32} * {hours:UInt32})`); err != nil {
			side.Fatal(err)
		}
	})
}

func (r *soakRun) plan(more ...string) {
	r.Helper()
	a := 10 + r.random.IntN(90)
	file := r.clean.file("plan.yaml", fmt.Sprintf(soakPlan, a, a, a))
	r.run(append([]string{"plan", "apply", file}, more...)...)
}

// past is some hour of the last days, and one after it.
func (r *soakRun) past() (from, to time.Time) {
	from = r.today.Add(-time.Duration(1+r.random.IntN(20*24)) * time.Hour)
	if first := soakBegin.Add(24 * time.Hour); from.Before(first) {
		from = first
	}
	return from, from.Add(time.Duration(1+r.random.IntN(30)) * time.Hour)
}

var soakBegin = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// day is what happens on one of the simulated days.
func (r *soakRun) day() {
	r.Helper()
	day := r.today
	r.today = day.AddDate(0, 0, 1)
	stamp := func(t time.Time) string { return t.Format(time.RFC3339) }
	rate := func(at time.Time) {
		r.run("rate", "--now", stamp(at), "--first-period", "usage", "--late", "reprocess")
	}
	r.usage(day, 12, 24, int(day.Unix()/86400)%7)
	for _, hour := range []int{8, 16, 24} {
		until := day.Add(time.Duration(hour) * time.Hour)
		if hour < 24 && !r.perhaps(25) {
			continue
		}
		r.run("watermark", "--region", "one", "--until", stamp(until))
		rate(until.Add(3 * time.Hour))
	}
	now := r.today.Add(4 * time.Hour)
	if r.perhaps(20) {
		from, _ := r.past()
		r.usage(from.Truncate(24*time.Hour), 1+r.random.IntN(3), 24, 1000+r.random.IntN(1_000_000))
		rate(now)
	}
	if r.perhaps(12) {
		from := stamp(r.today)
		if r.perhaps(40) {
			back, _ := r.past()
			from = stamp(back)
		}
		r.plan("--from", from, "--force", "--reason", "soak")
	}
	if r.perhaps(15) {
		from, to := r.past()
		who := []string{"--all"}
		if r.perhaps(50) {
			who = []string{"--scope", fmt.Sprintf("project-%d", r.random.IntN(4))}
		}
		if r.disabled == "" {
			// Telling it twice would be two schedules: nothing breaks here.
			add := slices.Concat([]string{"reprocess", "add", "--from", stamp(from), "--to", stamp(to), "--now", stamp(now), "--first-period", "usage", "--reason", "soak"}, who)
			r.both(func(side *soakSide) { side.must(add...) })
			r.run("reprocess", "run", "--now", stamp(now), "--first-period", "usage")
		}
	}
	if r.perhaps(8) {
		back, _ := r.past()
		if back.Before(r.closed) {
			back = r.closed
		}
		r.run("reset", "--scope", fmt.Sprintf("project-%d", r.random.IntN(4)), "--to", stamp(back), "--reason", "soak", "--yes", "--now", stamp(now))
		rate(now)
	}
	if r.perhaps(10) {
		// By the server's clock everything is old: the moment of a commit is real.
		r.run("retention", "--unexported", "--dead-after", "1h", "--superseded-after", "1h", "--now", stamp(time.Now().Add(1000*time.Hour)))
	}
	switch {
	case r.disabled == "" && r.perhaps(5):
		r.disabled = fmt.Sprintf("project-%d", r.random.IntN(4))
		r.run("scopes", "disable", r.disabled, "--reason", "soak")
	case r.disabled != "" && r.perhaps(40):
		r.run("scopes", "enable", r.disabled, "--reason", "soak")
		r.disabled = ""
		rate(now)
	}
	if day.Day() == 3 && r.disabled == "" {
		// Those that were left out because a scope was disabled come first.
		for first := time.Date(day.Year(), day.Month(), 1, 0, 0, 0, 0, time.UTC); r.closed.Before(first); {
			r.run("close", "--month", r.closed.Format("2006-01"), "--reason", "soak", "--now", stamp(now), "--first-period", "usage")
			r.closed = r.closed.AddDate(0, 1, 0)
			r.same()
		}
	}
}

// state is everything readers see, scope by scope and month by month.
func (s *soakSide) state() string {
	s.Helper()
	return s.text(`SELECT arrayStringConcat(arraySort(groupArray(line)), '\n') FROM (
		SELECT concat('lines ', toString(toYYYYMM(begin)), ' ', scope, ' ', toString(count()), ' ', toString(sum(price)), ' ', toString(groupBitXor(sipHash64(begin, metric, resource, toString(attributes), qty, price, rule, bucket, part, revision)))) AS line FROM rated GROUP BY toYYYYMM(begin), scope
		UNION ALL SELECT concat('commits ', toString(toYYYYMM(begin)), ' ', scope, ' ', toString(count()), ' ', toString(sum(total)), ' ', toString(groupBitXor(sipHash64(begin, toString(kind), revision, lines, line_digest, total)))) FROM current_commits GROUP BY toYYYYMM(begin), scope
		UNION ALL SELECT concat('frozen ', toString(toYYYYMM(m.begin)), ' ', m.scope, ' ', toString(sum(m.total))) FROM month_commits AS m WHERE m.kind = 'commit' AND (m.month, m.closed) IN (SELECT month, closed FROM closed_months) GROUP BY toYYYYMM(m.begin), m.scope
		UNION ALL SELECT concat('schedules ', state, ' ', toString(count())) FROM (SELECT id, toString(argMax(state, changed_at)) AS state FROM reprocess_schedules GROUP BY id) GROUP BY state)`)
}

// sums are those of the data files of the months' current deliveries.
func (s *soakSide) sums(until time.Time) string {
	s.Helper()
	target, err := bucketfile.New(s.files)
	if err != nil {
		s.Fatal(err)
	}
	var out []string
	for month := soakBegin; month.Before(until); month = month.AddDate(0, 1, 0) {
		folder := exporter.Folder("lines", month.Format("2006-01"))
		manifest, _, err := exporter.ReadManifest(s.Context(), target, folder)
		if err != nil {
			s.Fatal(err)
		}
		for _, f := range manifest.Files {
			body, err := os.ReadFile(filepath.Join(s.files, folder, f.Path))
			if err != nil {
				s.Fatal(err)
			}
			sum := sha256.Sum256(body)
			out = append(out, folder+f.Path+" "+hex.EncodeToString(sum[:]))
		}
	}
	return strings.Join(out, "\n")
}

// same exports the months up to today from both databases and compares them.
func (r *soakRun) same() {
	r.Helper()
	if diff := cmp.Diff(strings.Split(r.clean.state(), "\n"), strings.Split(r.faulty.state(), "\n")); diff != "" {
		r.Fatalf("%s: (-clean +with faults)\n%.5000s", r.today.Format(time.DateOnly), diff)
	}
	for month := r.today.AddDate(0, 0, -1); month.After(soakBegin.AddDate(0, 0, -31)) && month.After(r.today.AddDate(0, -2, -3)); month = month.AddDate(0, -1, 0) {
		for _, side := range []*soakSide{r.clean, r.faulty} {
			args := []string{"export", "--month", month.Format("2006-01"), "--to", side.files, "--partial", "--first-period", "usage"}
			side.must(args...)
		}
		if r.perhaps(50) { // an export that dies leaves nothing behind that the next one does not mend
			code, output := r.process(soakFault(1+r.faults.IntN(int(faults)-1)), 1+r.faults.IntN(20), false, "export", "--month", month.Format("2006-01"), "--to", r.faulty.files, "--partial", "--first-period", "usage")
			if code == ratebatch.ExitHalted || code == ratebatch.ExitConfig {
				r.Fatalf("export: exit %d\n%s", code, output)
			}
			r.faulty.must("export", "--month", month.Format("2006-01"), "--to", r.faulty.files, "--partial", "--first-period", "usage")
		}
	}
	clean := r.clean.sums(r.today)
	if clean == "" {
		r.Fatal("nothing was exported")
	}
	if diff := cmp.Diff(strings.Split(clean, "\n"), strings.Split(r.faulty.sums(r.today), "\n")); diff != "" {
		r.Fatalf("%s: exported files (-clean +with faults)\n%.5000s", r.today.Format(time.DateOnly), diff)
	}
	r.faulty.must("export", "verify", r.faulty.files)
}

// Months in which commands are killed, refused and left without an answer, usage
// comes late, prices change and periods are rated again: what is owed, frozen and
// exported in the end is, to the last byte, what it is without any of the trouble.
func TestSoak(t *testing.T) {
	length, seed := time.Duration(0), uint64(1)
	var err error
	if text := os.Getenv(envSoak); text != "" {
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	if text := os.Getenv(envSoakSeed); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	r := &soakRun{T: t, clean: newSoakSide(t), faulty: newSoakSide(t), random: rand.New(rand.NewPCG(seed, 1)), faults: rand.New(rand.NewPCG(seed, 2)), today: soakBegin, closed: soakBegin}
	r.saboteur = newSaboteur(t, r.faulty.e)
	metrics := r.clean.file("metrics.yaml", faultMetrics)
	r.both(func(side *soakSide) { side.must("metrics", "apply", metrics) })
	r.plan()
	days := 0
	for end := time.Now().Add(length); days < 2 || time.Now().Before(end); days++ {
		r.day()
		if r.today.Day() == 1 {
			struck, kinds := r.saboteur.hits()
			t.Logf("%s: %d commands, %d processes killed, %d failed, %d faults struck: %s", r.today.Format(time.DateOnly), r.commands, r.killed, r.failed, struck, kinds)
		}
	}
	r.same()
	struck, kinds := r.saboteur.hits()
	t.Logf("seed %d: %d days, %d commands; of the processes %d were killed and %d failed, %d faults struck: %s", seed, days, r.commands, r.killed, r.failed, struck, kinds)
	if struck < days {
		t.Errorf("only %d faults struck in %d days", struck, days)
	}
}
