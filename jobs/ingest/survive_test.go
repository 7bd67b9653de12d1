package ingest_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/simulate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// envFaults set to all runs the long series of every fault.
const envFaults = "RATEBATCH_TEST_FAULTS"

func series(short, long int) int {
	if os.Getenv(envFaults) == "all" {
		return long
	}
	return short
}

// pieces cuts a batch into n parts of about the same time.
func pieces(b simulate.Batch, n int) []simulate.Batch {
	out := make([]simulate.Batch, n)
	for i := range out {
		out[i].Instances = b.Instances[len(b.Instances)*i/n : len(b.Instances)*(i+1)/n]
		out[i].Ports = b.Ports[len(b.Ports)*i/n : len(b.Ports)*(i+1)/n]
		out[i].Disks = b.Disks[len(b.Disks)*i/n : len(b.Disks)*(i+1)/n]
	}
	return out
}

// everything checks what has to hold after whatever happened: each distinct
// sample once, tiers that equal a direct computation, counts that equal them.
func (p *pipe) everything() {
	p.Helper()
	p.everySample()
	distinct := p.sent.Distinct()
	w := storetest.World{Instances: distinct.Instances, Ports: distinct.Ports, Disks: distinct.Disks}
	if _, err := p.store.Rollup(p.Context(), time.Now().Add(-100*time.Hour), time.Time{}); err != nil {
		p.Fatal(err)
	}
	w.Compare(p, p.store, "RegionOne")
	if err := p.store.CountIngested(p.Context()); err != nil {
		p.Fatal(err)
	}
	for i, n := range []int{len(distinct.Instances), len(distinct.Ports), len(distinct.Disks)} {
		kind := []string{"instance", "port", "disk"}[i]
		if got := p.number("SELECT sum(samples) FROM ingest_counts FINAL WHERE kind = '" + kind + "'"); got != uint64(n) {
			p.Errorf("%d %s samples were counted, %d were produced", got, kind, n)
		}
	}
}

// killed at any moment, ingest loses nothing and counts nothing twice.
func TestIngestKilledAtRandomMoments(t *testing.T) {
	kills := series(6, 100)
	p := newPipe(t, 3, kafkatest.Config{})
	p.options.BatchRecords, p.options.Session = 400, time.Second
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	killed := 0
	for i, piece := range pieces(batches(t, cloud(4, simulate.Faults{Duplicates: 10_000, Migrations: 3})), kills) {
		p.send(piece)
		c := p.start()
		after := time.Duration(100+random.IntN(2200)) * time.Millisecond
		time.Sleep(after)
		if c.Process.Signal(syscall.Signal(0)) == nil {
			killed++
		}
		if err := c.Process.Kill(); err != nil && !strings.Contains(err.Error(), "already finished") {
			t.Fatal(err)
		}
		_ = c.Wait()
		t.Logf("%d: killed after %s, %d rows are there", i, after, p.number("SELECT count() FROM port_samples"))
	}
	if killed == 0 {
		t.Error("every ingest was done before it was killed")
	}
	p.broker.Bury(t, p.options.Group, 5*p.options.Session)
	result := p.drain()
	t.Logf("the last run read %d of %d records", result.Records, p.sent.Len())
	p.everything()
}

func (p *pipe) exec(statements ...string) {
	p.Helper()
	for _, s := range statements {
		if err := p.store.Conn().Exec(p.Context(), s); err != nil {
			p.Fatal(err)
		}
	}
}

// inBackground runs ingest beside the test.
func (p *pipe) inBackground(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	job := p.job()
	go func() {
		_, err := job.Run(ctx, uuid.New())
		done <- err
	}()
	return done
}

func (p *pipe) wait(done <-chan error) {
	p.Helper()
	select {
	case err := <-done:
		if err != nil && ratebatch.ExitCode(err) != ratebatch.ExitRejected {
			p.Fatal(err)
		}
	case <-time.After(2 * time.Minute):
		p.Fatal("ingest did not end within two minutes")
	}
}

func TestClickHouseRefusesInserts(t *testing.T) {
	for name, c := range map[string]struct{ refuse, allow string }{
		"too many parts": {"MODIFY SETTING parts_to_throw_insert = 1, parts_to_delay_insert = 1", "RESET SETTING parts_to_throw_insert, parts_to_delay_insert"},
		"read-only":      {"MODIFY SETTING table_readonly = 1", "RESET SETTING table_readonly"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPipe(t, 2, kafkatest.Config{})
			p.options.BatchRecords = 500
			all := pieces(batches(t, cloud(1, simulate.Faults{})), 2)
			p.send(all[0])
			p.drain()
			p.send(all[1])
			refuse, allow := []string{}, []string{}
			for _, table := range []string{"port_samples", "instance_samples", "disk_samples"} {
				refuse = append(refuse, "SYSTEM STOP MERGES "+table, "ALTER TABLE "+table+" "+c.refuse)
				allow = append(allow, "ALTER TABLE "+table+" "+c.allow, "SYSTEM START MERGES "+table)
			}
			p.exec(refuse...)
			t.Cleanup(func() { p.exec2(allow...) })
			done := p.inBackground(t.Context())
			select {
			case err := <-done:
				t.Fatalf("ingest ended while ClickHouse refused: %v", err)
			case <-time.After(1500 * time.Millisecond):
			}
			if committed := p.committed(); committed != int64(all[0].Len()) {
				t.Errorf("offsets of %d records are committed, %d are stored", committed, all[0].Len())
			}
			p.exec(allow...)
			p.wait(done)
			p.everything()
		})
	}
}

// ClickHouse goes away in the middle of an insert and comes back: connections
// break, others are refused, and nothing is lost.
func TestClickHouseIsDownForAWhile(t *testing.T) {
	p := newPipe(t, 2, kafkatest.Config{})
	p.options.BatchRecords = 300
	way := newProxy(t, p.engine.URL())
	o := p.engine.ClientOptions()
	u := url.URL{Scheme: "http", User: url.UserPassword(o.Auth.Username, o.Auth.Password), Host: way.address, Path: "/" + p.store.Database()}
	e, err := engine.Open(t.Context(), engine.Options{URL: u.String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	straight := p.store
	p.store = store.New(e.Conn(), e.Database())
	p.send(batches(t, cloud(2, simulate.Faults{})))
	done := p.inBackground(t.Context())
	p.store = straight
	p.until("the first rows are there", func() bool { return p.stored() > 0 })
	way.stop()
	time.Sleep(time.Second)
	way.start(t)
	p.wait(done)
	p.everything()
}

// proxy is a way to ClickHouse that can be closed.
type proxy struct {
	address, target string
	listener        net.Listener
	mu              sync.Mutex
	open            []net.Conn
	running         sync.WaitGroup
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	x := &proxy{address: "127.0.0.1:0", target: u.Host}
	x.start(t)
	t.Cleanup(x.stop)
	return x
}

func (x *proxy) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", x.address)
	if err != nil {
		t.Fatal(err)
	}
	x.listener, x.address = listener, listener.Addr().String()
	x.running.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", x.target)
			if err != nil {
				_ = in.Close()
				continue
			}
			x.mu.Lock()
			x.open = append(x.open, in, out)
			x.mu.Unlock()
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				x.running.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].Close()
				})
			}
		}
	})
}

// stop cuts what is on its way, too.
func (x *proxy) stop() {
	_ = x.listener.Close()
	x.mu.Lock()
	for _, c := range x.open {
		_ = c.Close()
	}
	x.open = nil
	x.mu.Unlock()
	x.running.Wait()
}

// exec2 is exec in a cleanup, where the test's context is over.
func (p *pipe) exec2(statements ...string) {
	for _, s := range statements {
		_ = p.store.Conn().Exec(context.Background(), s)
	}
}

// committed sums the group's offsets.
func (p *pipe) committed() (n int64) {
	p.Helper()
	offsets, err := p.broker.Admin(p).FetchOffsets(p.Context(), p.options.Group)
	if err != nil {
		p.Fatal(err)
	}
	offsets.Each(func(o kadm.OffsetResponse) { n += max(0, o.At) })
	return n
}

func TestClickHouseAwayLongerThanTheRunWaits(t *testing.T) {
	p := newPipe(t, 2, kafkatest.Config{})
	p.options.RetryFor = 300 * time.Millisecond
	p.send(batches(t, cloud(1, simulate.Faults{})))
	// The rows of one kind are refused for good: nothing at all is committed.
	p.exec("ALTER TABLE disk_samples MODIFY SETTING parts_to_throw_insert = 1, parts_to_delay_insert = 1", "SYSTEM STOP MERGES disk_samples")
	allow := []string{"ALTER TABLE disk_samples RESET SETTING parts_to_throw_insert, parts_to_delay_insert", "SYSTEM START MERGES disk_samples"}
	t.Cleanup(func() { p.exec2(allow...) })
	// One part has to be there to be one too many.
	if err := p.store.InsertDiskSamples(t.Context(), p.sent.Disks[:1], ""); err != nil {
		t.Fatal(err)
	}
	_, err := p.job().Run(t.Context(), uuid.New())
	if ratebatch.ExitCode(err) != ratebatch.ExitTryAgain || !strings.Contains(err.Error(), "disk_samples") {
		t.Errorf("%v, want exit 75 that names the table", err)
	}
	if n := p.committed(); n != 0 {
		t.Errorf("offsets of %d records are committed without their rows", n)
	}
	p.exec(allow...)
	p.drain()
	p.everything()
}

func TestMemoryLimitIsWaitedOut(t *testing.T) {
	p := newPipe(t, 2, kafkatest.Config{})
	p.options.RetryFor = 300 * time.Millisecond
	p.send(batches(t, cloud(1, simulate.Faults{})))
	job := p.job()
	_, err := job.Run(store.Settings(t.Context(), map[string]any{"max_memory_usage": 100_000}), uuid.New())
	if ratebatch.ExitCode(err) != ratebatch.ExitTryAgain {
		t.Errorf("%v, want exit 75", err)
	}
	p.drain()
	p.everything()
}

// Brokers that are just starting when ingest does: it waits a moment for them.
func TestBrokerStartsAfterIngest(t *testing.T) {
	p := newPipe(t, 2, kafkatest.Config{Keep: true})
	p.send(batches(t, cloud(1, simulate.Faults{})))
	p.broker.Own(t)
	p.broker.Pause()
	done := p.inBackground(t.Context())
	select {
	case err := <-done:
		t.Fatalf("ingest ended while the brokers were starting: %v", err)
	case <-time.After(time.Second):
	}
	p.broker.Resume(t)
	p.wait(done)
	p.everything()
}

func TestBrokerRestartsWhileReading(t *testing.T) {
	p := newPipe(t, 3, kafkatest.Config{Keep: true})
	p.broker.Own(t)
	p.options.Follow, p.options.BatchRecords, p.options.BatchTime = true, 300, 100*time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := p.inBackground(ctx)
	for i, piece := range pieces(batches(t, cloud(2, simulate.Faults{Duplicates: 10_000})), 3) {
		p.send(piece)
		if i < 2 {
			p.broker.Restart(t)
		}
	}
	p.until("all samples are there", func() bool { return p.stored() == p.distinct() })
	stop()
	p.wait(done)
	p.options.Follow = false
	p.drain()
	p.everything()
}

// stored is the number of distinct samples in the raw tables.
func (p *pipe) stored() int {
	p.Helper()
	return int(p.number("SELECT (SELECT count() FROM port_samples FINAL) + (SELECT count() FROM instance_samples FINAL) + (SELECT count() FROM disk_samples FINAL)"))
}

// distinct is the number of samples that should be there.
func (p *pipe) distinct() int {
	d := p.sent.Distinct()
	return d.Len()
}

func (p *pipe) until(what string, is func() bool) {
	p.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			p.Fatalf("after a minute it is still not so that %s", what)
		}
	}
}

func TestTwoIngestsAndAPartitionAdded(t *testing.T) {
	p := newPipe(t, 2, kafkatest.Config{})
	p.options.Follow, p.options.BatchRecords, p.options.BatchTime, p.options.Session = true, 300, 100*time.Millisecond, 2*time.Second
	all := pieces(batches(t, cloud(3, simulate.Faults{Duplicates: 10_000})), 4)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	first := p.inBackground(ctx)
	p.send(all[0])
	p.until("the first ingest works", func() bool { return p.stored() > 0 })
	short, stopSecond := context.WithCancel(ctx)
	second := p.inBackground(short)
	p.send(all[1])
	p.until("the second ingest has partitions", func() bool { return p.members() == 2 })
	for _, topic := range p.topics.All() {
		if r, err := p.broker.Admin(t).UpdatePartitions(ctx, 4, topic); err != nil || r.Error() != nil {
			t.Fatal(err, r.Error())
		}
	}
	p.client = p.broker.Client(t) // the old one learns of the new partitions only after minutes
	p.send(all[2])
	stopSecond()
	p.wait(second)
	p.send(all[3])
	stop()
	p.wait(first)
	p.options.Follow = false
	p.drain()
	p.everything()
	if n := p.number("SELECT uniqExact(topic, partition) FROM ingest_progress WHERE next_offset > 0"); n != 12 {
		t.Errorf("%d partitions were read, want 12", n)
	}
}

// members is the number of members of the group that have partitions.
func (p *pipe) members() (n int) {
	p.Helper()
	groups, err := p.broker.Admin(p).DescribeGroups(p.Context(), p.options.Group)
	if err != nil {
		p.Fatal(err)
	}
	for _, m := range groups[p.options.Group].Members {
		if c, ok := m.Assigned.AsConsumer(); ok && len(c.Topics) > 0 {
			n++
		}
	}
	return n
}

// One percent repeats, one percent five hours late, garbage: afterwards every
// sample is there once and every piece of garbage is listed.
func TestRepeatsLateOnesAndGarbage(t *testing.T) {
	p := newPipe(t, 3, kafkatest.Config{})
	c := cloud(8, simulate.Faults{Duplicates: 10_000, Late: 10_000, Migrations: 3, Vanish: 1})
	var garbage []string
	for i, piece := range pieces(batches(t, c), 40) {
		p.send(piece)
		for _, topic := range p.topics.All() {
			value := fmt.Sprintf("garbage %d {\"ts\": \x00", i)
			p.produce(&kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte(value)})
			garbage = append(garbage, topic+" "+value)
		}
		if i%13 == 5 {
			p.drain()
		}
	}
	result, err := p.job().Run(t.Context(), uuid.New())
	if ratebatch.ExitCode(err) != ratebatch.ExitRejected || result.Rejected == 0 {
		t.Errorf("%v, %d rejected; want exit 3", err, result.Rejected)
	}
	p.everything()
	got := p.texts("SELECT concat(topic, ' ', record) FROM rejected_records FINAL WHERE key = 'k' AND reason LIKE '%is not a JSON object%'")
	slices.Sort(got)
	slices.Sort(garbage)
	if !slices.Equal(got, garbage) {
		t.Errorf("%d rejected records are listed, %d were sent", len(got), len(garbage))
	}
}

// Samples that the tiers would not take up are listed as late, those a moment
// younger are rolled up.
func TestSamplesOlderThanTheRawTierAreListed(t *testing.T) {
	p := newPipe(t, 1, kafkatest.Config{})
	keep := func(raw time.Duration) {
		t.Helper()
		o := store.MigrateOptions{Retention: store.Retention{Raw: raw, FiveMin: storetest.Forever.FiveMin, Hourly: storetest.Forever.Hourly}, SetRetention: true}
		if _, err := p.store.Migrate(context.WithoutCancel(t.Context()), o); err != nil {
			t.Fatal(err)
		}
	}
	keep(54 * time.Hour)
	t.Cleanup(func() { keep(storetest.Forever.Raw) })
	cutoff := time.Now().UTC().Add(-54 * time.Hour).Truncate(time.Hour).Add(2 * time.Hour)
	var b simulate.Batch
	one := batches(t, cloud(1, simulate.Faults{}))
	add := func(i int, begin, at time.Time) {
		x := one.Ports[i]
		x.Begin, x.At = begin, at
		b.Ports = append(b.Ports, x)
	}
	add(0, cutoff, cutoff.Add(time.Minute))                        // the youngest hour's beginning
	add(1, cutoff.Add(-time.Millisecond), cutoff.Add(time.Minute)) // a part of it is too old
	add(2, cutoff.Add(-time.Minute), cutoff)                       // ends on the edge: belongs to the hour before
	add(3, cutoff.Add(-70*time.Hour), cutoff.Add(-69*time.Hour))
	p.send(b)
	result := p.drain()
	if result.Late != 3 || result.Samples["port"] != 1 {
		t.Errorf("%d late and %d stored, want 3 and 1", result.Late, result.Samples["port"])
	}
	if n := p.number("SELECT count() FROM late_samples FINAL WHERE kind = 'port' AND JSONExtractUInt(record, 'rx_bytes') > 0"); n != 3 {
		t.Errorf("%d late samples are listed", n)
	}
	// A longer retention brings back none of the samples that those hours had.
	keep(240 * time.Hour)
	b = simulate.Batch{}
	add(4, cutoff.Add(-10*time.Hour), cutoff.Add(-10*time.Hour+time.Minute))
	p.send(b)
	if result := p.drain(); result.Late != 1 || result.Samples["port"] != 0 {
		t.Errorf("after a longer retention %d late and %d stored, want 1 and 0", result.Late, result.Samples["port"])
	}
}
