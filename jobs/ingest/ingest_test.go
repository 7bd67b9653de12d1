package ingest_test

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/simulate"
	"github.com/ratebatch/ratebatch/jobs/ingest"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(envVictim) != "" {
		os.Exit(victim())
	}
	enginetest.Main(m)
}

// pipe is a broker, a database and the options of an ingest between them.
type pipe struct {
	testing.TB
	broker  *kafkatest.Broker
	topics  wire.Topics
	store   *store.Store
	options ingest.Options
	client  *kgo.Client
	engine  *engine.Engine
	dataDir string         // of the engine
	sent    simulate.Batch // every sample that was produced, repeats included
}

func newPipe(t testing.TB, partitions int32, c kafkatest.Config) *pipe {
	t.Helper()
	e := storetest.Shared(t)
	p := &pipe{TB: t, broker: kafkatest.Start(t, c), engine: e, store: store.New(e.Conn(), e.Database()), dataDir: enginetest.Options(t).DataDir}
	p.topics = p.broker.Topics(t, partitions)
	p.client = p.broker.Client(t)
	p.options = ingest.DefaultOptions()
	p.options.Broker, p.options.Topics, p.options.Group = p.broker.Options, p.topics, p.broker.Name("group")
	p.options.RetryFirst, p.options.Session = 20*time.Millisecond, 6*time.Second
	return p
}

func (p *pipe) job() *ingest.Job {
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return &ingest.Job{Store: p.store, Log: log, Options: p.options, Now: time.Now}
}

// drain runs ingest until the topics are empty.
func (p *pipe) drain() ingest.Result {
	p.Helper()
	result, err := p.job().Run(p.Context(), uuid.New())
	if err != nil && ratebatch.ExitCode(err) != ratebatch.ExitRejected {
		p.Fatal(err)
	}
	return result
}

// send produces samples as an agent would, and waits for the brokers.
func (p *pipe) send(b simulate.Batch) {
	p.Helper()
	p.produce(records(p.topics, b)...)
	p.sent.Instances = append(p.sent.Instances, b.Instances...)
	p.sent.Ports = append(p.sent.Ports, b.Ports...)
	p.sent.Disks = append(p.sent.Disks, b.Disks...)
}

func (p *pipe) produce(records ...*kgo.Record) {
	p.Helper()
	if err := p.client.ProduceSync(p.Context(), records...).FirstErr(); err != nil {
		p.Fatal(err)
	}
}

// records are samples as they stand in the topics.
func records(topics wire.Topics, b simulate.Batch) []*kgo.Record {
	var out []*kgo.Record
	common := func(s store.Sample) wire.Common {
		c := wire.Common{TS: s.At.Unix(), Host: s.Host, RegionName: s.Region, InstanceUUID: s.InstanceUUID}
		if s.Epoch == 0 {
			return c
		}
		c.V, c.BeginMS, c.EndMS, c.Epoch, c.Sequence = wire.Version, s.Begin.UnixMilli(), s.At.UnixMilli(), s.Epoch, s.Sequence
		c.ProjectID, c.UserID, c.FlavorName, c.VCPUs = s.ProjectID, s.UserID, s.FlavorName, s.VCPUs
		c.ImageID, c.InstanceName, c.DomainID, c.AgentVersion = s.ImageID, s.InstanceName, s.DomainID, s.AgentVersion
		return c
	}
	for _, x := range b.Ports {
		r := wire.Port{Common: common(x.Sample), PortUUID: x.PortUUID, NetworkUUID: x.NetworkUUID, RxBytes: x.RxBytes, TxBytes: x.TxBytes}
		out = append(out, &kgo.Record{Topic: topics.Port, Key: r.Key(), Value: r.Append(nil)})
	}
	for _, x := range b.Instances {
		r := wire.Instance{Common: common(x.Sample), CPUPct: wire.Hundredths(x.CPUPct.Shift(2).IntPart()), MemoryActualBytes: x.MemoryActualBytes, MemoryRSSBytes: x.MemoryRSSBytes, MemoryUsableBytes: x.MemoryUsableBytes}
		out = append(out, &kgo.Record{Topic: topics.Instance, Key: r.Key(), Value: r.Append(nil)})
	}
	for _, x := range b.Disks {
		r := wire.Disk{Common: common(x.Sample), Device: x.Device, ReadBytes: x.ReadBytes, WriteBytes: x.WriteBytes, ReadRequests: x.ReadRequests, WriteRequests: x.WriteRequests,
			CapacityBytes: x.CapacityBytes, AllocationBytes: x.AllocationBytes, PhysicalBytes: x.PhysicalBytes}
		out = append(out, &kgo.Record{Topic: topics.Disk, Key: r.Key(), Value: r.Append(nil)})
	}
	return out
}

// cloud streams a simulated cloud's samples of the last hours.
func cloud(hours int, faults simulate.Faults) simulate.Cloud {
	return simulate.Cloud{Seed: 7, Instances: 20, Hosts: 3, Hours: hours, Begin: time.Now().UTC().Truncate(time.Hour).Add(-time.Duration(hours) * time.Hour), Faults: faults}
}

// everySample compares what is stored with what was produced: each distinct
// sample once after deduplication, with all its values.
func (p *pipe) everySample() {
	p.Helper()
	want := p.sent.Distinct()
	var lines []string
	for _, s := range want.Ports {
		lines = append(lines, fmt.Sprint("port ", identity(s.Sample), " ", s.PortUUID, " ", s.NetworkUUID, " ", s.RxBytes, " ", s.TxBytes))
	}
	for _, s := range want.Instances {
		lines = append(lines, fmt.Sprint("instance ", identity(s.Sample), " ", s.CPUPct.StringFixed(2), " ", text(s.MemoryActualBytes), " ", text(s.MemoryRSSBytes), " ", text(s.MemoryUsableBytes)))
	}
	for _, s := range want.Disks {
		lines = append(lines, fmt.Sprint("disk ", identity(s.Sample), " ", s.Device, " ", text(s.ReadBytes), " ", text(s.WriteBytes), " ", text(s.ReadRequests), " ", text(s.WriteRequests), " ",
			text(s.CapacityBytes), " ", text(s.AllocationBytes), " ", text(s.PhysicalBytes)))
	}
	const common = `region, ' ', host, ' ', toString(epoch), ' ', toString(sequence), ' ', toString(toUnixTimestamp64Milli(begin)), ' ', toString(toUnixTimestamp64Milli(ts)), ' ', toString(instance_uuid), ' ',
		project_id, ' ', user_id, ' ', flavor_name, ' ', toString(vcpus), ' ', image_id, ' ', instance_name, ' ', domain_id, ' ', agent_version`
	number := func(names ...string) string {
		out := ""
		for _, n := range names {
			out += ", ' ', ifNull(toString(" + n + "), 'null')"
		}
		return out
	}
	got := p.texts("SELECT concat('port ', " + common + ", ' ', toString(port_uuid), ' ', toString(network_uuid)" + number("rx_bytes", "tx_bytes") + ") FROM port_samples FINAL" +
		" UNION ALL SELECT concat('instance ', " + common + ", ' ', toDecimalString(cpu_pct, 2)" + number("memory_actual_bytes", "memory_rss_bytes", "memory_usable_bytes") + ") FROM instance_samples FINAL" +
		" UNION ALL SELECT concat('disk ', " + common + ", ' ', device" + number("read_bytes", "write_bytes", "read_requests", "write_requests", "capacity_bytes", "allocation_bytes", "physical_bytes") + ") FROM disk_samples FINAL")
	count := map[string]int{}
	for _, line := range lines {
		count[line]++
	}
	for _, line := range got {
		count[line]--
	}
	missing, extra := 0, 0
	for line, n := range count {
		if n == 0 {
			continue
		}
		if n > 0 {
			missing++
		} else {
			extra++
		}
		if missing+extra <= 4 {
			p.Errorf("%+d too few: %s", n, line)
		}
	}
	if missing+extra > 0 || len(lines) == 0 {
		p.Fatalf("of %d samples %d are missing and %d too many", len(lines), missing, extra)
	}
}

func identity(s store.Sample) string {
	return fmt.Sprint(s.Region, " ", s.Host, " ", s.Epoch, " ", s.Sequence, " ", s.Begin.UnixMilli(), " ", s.At.UnixMilli(), " ", s.InstanceUUID, " ", s.ProjectID, " ", s.UserID, " ", s.FlavorName, " ", s.VCPUs, " ",
		s.ImageID, " ", s.InstanceName, " ", s.DomainID, " ", s.AgentVersion)
}

func text(v *uint64) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprint(*v)
}

func (p *pipe) texts(query string) []string {
	p.Helper()
	rows, err := p.store.Conn().Query(p.Context(), query)
	if err != nil {
		p.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			p.Fatal(err)
		}
		out = append(out, s)
	}
	if err := rows.Err(); err != nil {
		p.Fatal(err)
	}
	return out
}

func (p *pipe) number(query string) uint64 {
	p.Helper()
	var n uint64
	if err := p.store.Conn().QueryRow(p.Context(), query).Scan(&n); err != nil {
		p.Fatal(err)
	}
	return n
}

// batches collects a cloud's samples.
func batches(t testing.TB, c simulate.Cloud) (all simulate.Batch) {
	t.Helper()
	for b, err := range c.Samples() {
		if err != nil {
			t.Fatal(err)
		}
		all.Instances = append(all.Instances, b.Instances...)
		all.Ports = append(all.Ports, b.Ports...)
		all.Disks = append(all.Disks, b.Disks...)
	}
	return all
}

func TestEverySampleArrivesWithAllItsValues(t *testing.T) {
	p := newPipe(t, 3, kafkatest.Config{})
	p.send(batches(t, cloud(2, simulate.Faults{Duplicates: 10_000, Migrations: 2, Resizes: 2})))
	result := p.drain()
	if int(result.Records) != p.sent.Len() || result.Rejected != 0 || result.Late != 0 || len(result.Losses) != 0 {
		t.Errorf("%+v, want %d records", result, p.sent.Len())
	}
	p.everySample()
	if again := p.drain(); again.Records != 0 {
		t.Errorf("%d records were read a second time", again.Records)
	}
	if len(result.Regions) != 1 || time.Since(result.Regions[0].Watermark) > time.Minute+p.options.Allowance || time.Since(result.Regions[0].Watermark) < p.options.Allowance {
		t.Errorf("watermarks %+v", result.Regions)
	}
}

func TestRecordsOfTheOriginalProducerLoad(t *testing.T) {
	p := newPipe(t, 1, kafkatest.Config{})
	at := time.Now().UTC().Add(-time.Hour).Unix()
	instance, port := "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	head := fmt.Sprintf(`{"ts": %d, "host": "node-1", "region_name": "RegionOne", "instance_uuid": %q, `, at, instance)
	p.produce(
		&kgo.Record{Topic: p.topics.Port, Value: []byte(head + fmt.Sprintf(`"port_uuid": %q, "network_uuid": %q, "rx_bytes": 1500, "tx_bytes": 0}`, port, port))},
		&kgo.Record{Topic: p.topics.Instance, Value: []byte(head + `"cpu_pct": 12.3, "memory_actual_bytes": 2147483648, "memory_rss_bytes": null, "memory_usable_bytes": 1}`)},
		&kgo.Record{Topic: p.topics.Disk, Value: []byte(head + `"device": "vda", "read_bytes": 1, "write_bytes": 2, "read_requests": 3, "write_requests": null, "capacity_bytes": 5, "allocation_bytes": 6, "physical_bytes": 7}`)},
		&kgo.Record{Topic: p.topics.Disk, Value: []byte(head + `"device": "vdb", "read_bytes": 10, "write_bytes": 2, "read_requests": 3, "write_requests": null, "capacity_bytes": 5, "allocation_bytes": 6, "physical_bytes": 7}`)},
	)
	if r := p.drain(); r.Rejected != 0 || r.Records != 4 {
		t.Errorf("%+v", r)
	}
	got := strings.Join(append(p.texts(fmt.Sprintf("SELECT concat(device, ' ', toString(read_bytes), ' ', toString(toUnixTimestamp(begin) = %[1]d AND toUnixTimestamp(ts) = %[1]d AND epoch = 0 AND sequence = 0)) FROM disk_samples FINAL ORDER BY 1", at)),
		p.texts("SELECT concat(toString(cpu_pct), ' ', toString(memory_actual_bytes), ' ', toString(isNull(memory_rss_bytes))) FROM instance_samples FINAL")...), "; ")
	if want := "vda 1 1; vdb 10 1; 12.3 2147483648 1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The watermark is the least of all sources, goes forward only, and an operator
// may set it ahead.
func TestTheWatermarkGoesForwardOnly(t *testing.T) {
	p := newPipe(t, 1, kafkatest.Config{})
	mark := func() time.Time {
		t.Helper()
		marks, err := p.store.Watermarks(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return marks["RegionOne"].CompleteUntil
	}
	p.send(batches(t, cloud(1, simulate.Faults{})))
	p.drain()
	first := mark()
	if behind := time.Since(first); behind < p.options.Allowance || behind > p.options.Allowance+time.Minute {
		t.Errorf("the watermark is %s behind, want the allowance of %s", behind, p.options.Allowance)
	}
	// Another source of the region is behind: the watermark stays.
	other := store.Progress{Topic: "other", TopicID: uuid.New(), NextOffset: 1, DrainedAt: time.Now().Add(-3 * time.Hour).UTC(), Regions: []string{"RegionOne"}}
	if err := p.store.SetIngestProgress(t.Context(), "elsewhere/group", uuid.New(), []store.Progress{other}); err != nil {
		t.Fatal(err)
	}
	p.drain()
	if got := mark(); !got.Equal(first) {
		t.Errorf("with a source behind the watermark went from %s to %s", first, got)
	}
	// That source is gone for good; an operator goes ahead of ingest.
	other.Gone = true
	if err := p.store.SetIngestProgress(t.Context(), "elsewhere/group", uuid.New(), []store.Progress{other}); err != nil {
		t.Fatal(err)
	}
	ahead := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	if err := p.store.SetWatermark(t.Context(), store.Watermark{Region: "RegionOne", CompleteUntil: ahead, Source: "operator"}, "test"); err != nil {
		t.Fatal(err)
	}
	p.drain()
	if got := mark(); !got.Equal(ahead) {
		t.Errorf("the operator's watermark %s became %s", ahead, got)
	}
	// It was too far; taken back, with an earlier one or altogether, ingest goes on.
	for _, back := range []store.Watermark{{CompleteUntil: first, Source: "operator"}, {CompleteUntil: time.Unix(0, 0), Source: "unset"}} {
		for _, w := range []store.Watermark{{CompleteUntil: ahead.AddDate(1, 0, 0), Source: "operator"}, back} {
			w.Region = "RegionOne"
			if err := p.store.SetWatermark(t.Context(), w, "test"); err != nil {
				t.Fatal(err)
			}
		}
		p.drain()
		marks, err := p.store.Watermarks(t.Context())
		if got := marks["RegionOne"]; err != nil || got.Source != "ingest" || !got.CompleteUntil.After(first) || got.CompleteUntil.After(time.Now()) {
			t.Errorf("after a watermark of %s by %s it is %s by %s (%v), want a later one by ingest", back.CompleteUntil, back.Source, got.CompleteUntil, got.Source, err)
		}
	}
}

func TestHostsThatFellSilentAreNamed(t *testing.T) {
	p := newPipe(t, 1, kafkatest.Config{})
	b := batches(t, cloud(1, simulate.Faults{}))
	b = simulate.Batch{Ports: b.Ports[:2]}
	b.Ports[0].Host, b.Ports[0].At = "quiet", time.Now().Add(-16*time.Minute).Truncate(time.Millisecond)
	b.Ports[0].Begin = b.Ports[0].At.Add(-time.Minute)
	b.Ports[1].Host, b.Ports[1].At = "loud", time.Now().Add(-14*time.Minute).Truncate(time.Millisecond)
	b.Ports[1].Begin = b.Ports[1].At.Add(-time.Minute)
	p.send(b)
	result := p.drain()
	if len(result.Silent) != 1 || result.Silent[0].Host != "quiet" || result.Silent[0].Region != "RegionOne" {
		t.Errorf("silent hosts %+v, want the one without a sample for more than 15 minutes", result.Silent)
	}
}
