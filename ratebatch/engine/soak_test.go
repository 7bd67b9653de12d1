package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
)

// EnvSoak lengthens TestSoak, for example RATEBATCH_SOAK=10m, and has
// TestBoundedMemory move 20 million rows instead of 4.
const envSoak = "RATEBATCH_SOAK"

// process is what the kernel and the endpoint say of the engine.
type process struct {
	rss, peak  int // MiB
	fds        int
	threads    int
	Goroutines int
	Statements int
	Sessions   int
}

func (p process) String() string {
	return fmt.Sprintf("RSS %d MiB (peak %d), %d descriptors, %d threads, %d goroutines, %d statements, %d sessions", p.rss, p.peak, p.fds, p.threads, p.Goroutines, p.Statements, p.Sessions)
}

func inspect(t *testing.T, dir string) process {
	t.Helper()
	at := endpointOf(dir)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", at.PID))
	if err != nil {
		t.Fatal(err)
	}
	field := func(name string) int {
		_, after, _ := strings.Cut(string(text), "\n"+name+":")
		n, _ := strconv.Atoi(strings.Fields(after)[0])
		return n
	}
	p := process{rss: field("VmRSS") >> 10, peak: field("VmHWM") >> 10, threads: field("Threads")}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", at.PID))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		// Each of the engine's worker threads keeps three files of /proc open.
		if target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", at.PID, fd.Name())); err == nil && !strings.HasPrefix(target, "/proc/") {
			p.fds++
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at.URL+"/ratebatch/status", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth(at.User, at.Password)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(&p); err != nil {
		t.Fatal(err)
	}
	return p
}

// soakBlock is one insert: so many rows that belong together.
type soakBlock struct {
	client, number uint64
	rows           uint64
}

// soak is what eight clients do to an engine that is killed now and then.
type soak struct {
	dir                                       string
	inserts, reads, cancels, merges, restarts atomic.Int64
	mu                                        sync.Mutex
	acknowledged, unknown                     map[soakBlock]bool
}

func TestSoak(t *testing.T) {
	length := 15 * time.Second
	if text := os.Getenv(envSoak); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	every := min(time.Minute, length/3)
	s := &soak{dir: t.TempDir(), acknowledged: map[soakBlock]bool{}, unknown: map[soakBlock]bool{}}
	goroutines := runtime.NumGoroutine()
	e := open(t, s.dir)
	if err := e.Conn().Exec(t.Context(), "CREATE TABLE soak (client UInt64, block UInt64, n UInt64, amount Decimal(38, 18)) ENGINE = MergeTree PARTITION BY client ORDER BY (block, n)"); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var wg sync.WaitGroup
	for client := range uint64(8) {
		wg.Go(func() { s.client(ctx, t, client) })
	}
	kills := 0
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(every):
			if pid := endpointOf(s.dir).PID; pid != 0 && time.Now().Add(every/2).Before(deadline(ctx)) {
				t.Logf("before kill -9: %v", inspect(t, s.dir))
				if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
					kills++
				}
			}
		}
	}
	wg.Wait()

	e = open(t, s.dir)
	stored := map[soakBlock]bool{}
	rows, err := e.Conn().Query(t.Context(), "SELECT client, block, count(), uniqExact(n), toString(sum(amount)) FROM soak GROUP BY client, block")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var b soakBlock
		var distinct uint64
		var sum string
		if err := rows.Scan(&b.client, &b.number, &b.rows, &distinct, &sum); err != nil {
			t.Fatal(err)
		}
		if distinct != b.rows || sum != strconv.FormatUint(b.rows, 10) {
			t.Errorf("block %v: %d distinct rows, sum %s", b, distinct, sum)
		}
		stored[b] = true
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		t.Fatal(err)
	}
	total := uint64(0)
	for b := range s.acknowledged {
		total += b.rows
		if !stored[b] {
			t.Errorf("block %v was acknowledged and is not there once", b)
		}
		delete(stored, b)
	}
	for b := range stored {
		if !s.unknown[b] {
			t.Errorf("block %v is there and nobody inserted it", b)
		}
	}
	var merges uint64
	if err := e.Conn().QueryRow(t.Context(), "SELECT sum(value) FROM system.events WHERE event = 'Merge'").Scan(&merges); err != nil {
		t.Error(err)
	}
	quiet := inspect(t, s.dir)
	t.Logf("%s, %d × kill -9 (%d reconnections): %d blocks with %d rows acknowledged, each there once; %d blocks of unknown outcome, %d of them stored; %d reads, %d cancels, %d merges asked for, %d merges since the last start",
		length, kills, s.restarts.Load(), len(s.acknowledged), total, len(s.unknown), len(stored), s.reads.Load(), s.cancels.Load(), s.merges.Load(), merges)
	t.Logf("at the end: %v", quiet)
	if kills == 0 || len(s.acknowledged) == 0 || s.cancels.Load() == 0 {
		t.Error("the soak did not do its work")
	}
	if quiet.rss > 1000 || quiet.fds > 100 || quiet.threads > 400 || quiet.Goroutines > 40 || quiet.Statements > 0 {
		t.Errorf("the engine leaks: %v", quiet)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	for range 50 {
		if runtime.NumGoroutine() <= goroutines+2 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("this process has %d goroutines, and had %d", runtime.NumGoroutine(), goroutines)
}

func deadline(ctx context.Context) time.Time { d, _ := ctx.Deadline(); return d }

// client works until ctx ends, and joins the next engine when one is killed.
func (s *soak) client(ctx context.Context, t *testing.T, number uint64) {
	random := rand.New(rand.NewPCG(1, number))
	var e *engine.Engine
	defer func() {
		if e != nil {
			_ = e.Close() // it may be the killed one
		}
	}()
	for block := uint64(0); ctx.Err() == nil; block++ {
		if e == nil {
			var err error
			e, err = engine.Open(t.Context(), engine.Options{DataDir: s.dir, Database: "d"})
			if err != nil {
				e = nil
				// It may be killed while it starts, or between join and ping.
				if ratebatch.ExitCode(err) != ratebatch.ExitTryAgain {
					t.Errorf("client %d: open: %v", number, err)
					return
				}
				continue
			}
		}
		err := s.step(t.Context(), e, random, number, block)
		switch {
		case err == nil:
		case errors.Is(err, engine.ErrEngineGone):
			_ = e.Close() // it is gone
			e = nil
			s.restarts.Add(1)
		default:
			t.Errorf("client %d: %v", number, err)
			return
		}
	}
}

func (s *soak) step(ctx context.Context, e *engine.Engine, random *rand.Rand, client, block uint64) error {
	switch random.IntN(10) {
	case 0, 1, 2, 3, 4:
		return s.insert(ctx, e, soakBlock{client, block, 1 + random.Uint64N(5000)})
	case 5, 6:
		rows, err := e.Conn().Query(ctx, "SELECT n, amount FROM soak ORDER BY n DESC LIMIT 20000")
		if err != nil {
			return err
		}
		for rows.Next() {
		}
		s.reads.Add(1)
		return errors.Join(rows.Err(), rows.Close())
	case 7:
		short, cancel := context.WithTimeout(ctx, time.Duration(1+random.IntN(50))*time.Millisecond)
		defer cancel()
		err := e.Conn().Exec(short, "SELECT sum(sipHash64(number)) FROM numbers(1000000000000)")
		if errors.Is(err, context.DeadlineExceeded) {
			s.cancels.Add(1)
			return nil
		}
		var exception *clickhouse.Exception
		if errors.As(err, &exception) && (exception.Code == 159 || exception.Code == 394) {
			return nil
		}
		return err
	case 8:
		s.merges.Add(1)
		return e.Conn().Exec(ctx, "OPTIMIZE TABLE soak PARTITION "+strconv.FormatUint(client, 10))
	default:
		var exception *clickhouse.Exception
		if err := e.Conn().Exec(ctx, "SELECT nope"); !errors.As(err, &exception) {
			return err
		}
		return nil
	}
}

func (s *soak) insert(ctx context.Context, e *engine.Engine, b soakBlock) error {
	batch, err := e.Conn().PrepareBatch(ctx, "INSERT INTO soak")
	if err != nil {
		return err
	}
	for n := range b.rows {
		if err := batch.Append(b.client, b.number, n, dec("1")); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.unknown[b] = true
	s.mu.Unlock()
	if err := batch.Send(); err != nil {
		return err
	}
	s.inserts.Add(1)
	s.mu.Lock()
	delete(s.unknown, b)
	s.acknowledged[b] = true
	s.mu.Unlock()
	return nil
}

// TestNothingPilesUp repeats everything that takes something in the engine: one
// engine, so that what a statement leaves behind adds up.
func TestNothingPilesUp(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir)
	if err := e.Conn().Exec(t.Context(), "CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY a"); err != nil {
		t.Fatal(err)
	}
	round := func() {
		var wg sync.WaitGroup
		for client := range 4 {
			wg.Go(func() {
				for i := range 8 {
					settings := clickhouse.Settings{"max_block_size": 1000 + i}
					if i%4 == 0 {
						settings["session_id"] = fmt.Sprintf("s%d-%d", client, i)
						settings["close_session"] = 1
					}
					ctx := clickhouse.Context(t.Context(), clickhouse.WithSettings(settings))
					if err := e.Conn().Exec(ctx, "SELECT 1"); err != nil {
						t.Error(err)
					}
					if _, err := drain(t, &endpointUnderTest{Engine: e}, "SELECT number FROM numbers(100000)"); err != nil {
						t.Error(err)
					}
					_ = e.Conn().Exec(ctx, "SELECT nope") // it fails, as it should
					short, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
					_ = e.Conn().Exec(short, "SELECT sum(sipHash64(number)) FROM numbers(1000000000000)") // cancelled
					cancel()
					left, leave := context.WithCancel(t.Context())
					if rows, err := e.Conn().Query(left, "SELECT number FROM numbers(100000000)"); err == nil {
						rows.Next()
						leave()
						_ = rows.Close() // given up early
					}
					leave()
				}
			})
		}
		wg.Wait()
		if err := e.Conn().Exec(t.Context(), "INSERT INTO t SELECT number FROM numbers(1000)"); err != nil {
			t.Error(err)
		}
	}
	rounds := 6
	if os.Getenv(envSoak) != "" {
		rounds = 40
	}
	var early process
	for i := range rounds {
		round()
		if i == 2 {
			time.Sleep(500 * time.Millisecond)
			early = inspect(t, dir)
		}
	}
	time.Sleep(500 * time.Millisecond)
	late := inspect(t, dir)
	t.Logf("after 3 rounds: %v", early)
	t.Logf("after %d rounds: %v", rounds, late)
	if late.rss > early.rss+150 || late.fds > early.fds+10 || late.Goroutines > early.Goroutines+5 || late.Statements > 0 || late.Sessions > early.Sessions {
		t.Error("something piles up in the engine")
	}
}

// TestBoundedMemory moves many rows through the endpoint in one INSERT and one
// SELECT: the engine must not keep them.
func TestBoundedMemory(t *testing.T) {
	million := 4
	if os.Getenv(envSoak) != "" {
		million = 20
	}
	dir := t.TempDir()
	e := open(t, dir)
	const columns = "id UInt64, ts DateTime64(3, 'UTC'), project LowCardinality(String), name String, seconds UInt32, amount Decimal(38, 18), attributes Map(String, String)"
	if err := e.Conn().Exec(t.Context(), "CREATE TABLE t ("+columns+") ENGINE = MergeTree PARTITION BY toDate(ts) ORDER BY (project, ts)"); err != nil {
		t.Fatal(err)
	}
	at := endpointOf(dir)
	send := func(query string, body io.Reader) (int64, time.Duration) {
		t.Helper()
		started := time.Now()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at.URL+"/?"+url.Values{"database": {"d"}, "query": {query}}.Encode(), body)
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth(at.User, at.Password)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		n, err := io.Copy(io.Discard, response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response.Status, err)
		}
		return n, time.Since(started)
	}
	const rows = 50000
	block := nativeBlock(t, rows)
	_, insertTook := send("INSERT INTO t FORMAT Native", &repeat{block: block, times: million * 1000000 / rows})
	inserted := inspect(t, dir)
	var n, sum uint64
	if err := e.Conn().QueryRow(t.Context(), "SELECT count(), sum(seconds) FROM t").Scan(&n, &sum); err != nil || n != uint64(million)*1000000 {
		t.Errorf("%d rows, %v", n, err)
	}
	read, readTook := send("SELECT * FROM t FORMAT Native", http.NoBody)
	http.DefaultClient.CloseIdleConnections()
	after := inspect(t, dir)
	t.Logf("%d M rows × 7 columns: inserted in %s, peak RSS %d MiB; read (%d MiB) in %s, peak RSS %d MiB", million, insertTook.Round(time.Millisecond), inserted.peak, read>>20, readTook.Round(time.Millisecond), after.peak)
	if after.peak >= 800 {
		t.Errorf("peak RSS of the engine is %d MiB, want less than 800", after.peak)
	}
}

// repeat reads the same block a number of times.
type repeat struct {
	block []byte
	times int
	at    int
}

func (r *repeat) Read(p []byte) (int, error) {
	if r.times == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.block[r.at:])
	if r.at += n; r.at == len(r.block) {
		r.at, r.times = 0, r.times-1
	}
	return n, nil
}

// nativeBlock is one block of the table of TestBoundedMemory.
func nativeBlock(t *testing.T, rows int) []byte {
	t.Helper()
	var id proto.ColUInt64
	ts := (&proto.ColDateTime64{}).WithPrecision(proto.PrecisionMilli).WithLocation(time.UTC)
	project := new(proto.ColStr).LowCardinality()
	var name proto.ColStr
	var seconds proto.ColUInt32
	amount := &proto.ColDecimal128{}
	attributes := proto.NewMap(new(proto.ColStr), new(proto.ColStr))
	for i := range rows {
		id.Append(uint64(i))
		ts.Append(moment(time.Duration(i) * time.Second))
		project.Append("project-" + strconv.Itoa(i%500))
		name.Append("instance-" + strconv.Itoa(i))
		seconds.Append(uint32(i % 3600))
		amount.Append(proto.Decimal128(proto.Int128FromInt(i)))
		attributes.Append(map[string]string{"flavor": "m1.small"})
	}
	var b proto.Buffer
	block := proto.Block{Rows: rows, Columns: 7}
	if err := block.EncodeRawBlock(&b, 0, []proto.InputColumn{
		{Name: "id", Data: id},
		{Name: "ts", Data: ts},
		{Name: "project", Data: project},
		{Name: "name", Data: name},
		{Name: "seconds", Data: seconds},
		{Name: "amount", Data: proto.Alias(amount, "Decimal(38, 18)")},
		{Name: "attributes", Data: attributes},
	}); err != nil {
		t.Fatal(err)
	}
	return b.Buf
}
