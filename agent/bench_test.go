package agent

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/agent/clock"
	"github.com/ratebatch/ratebatch/agent/libvirt"
	"github.com/ratebatch/ratebatch/agent/spool"
)

// BenchmarkPoll500 is what a poll of 500 domains costs beside libvirt and
// Kafka: 2,000 records computed, encoded, compressed, saved with the readings.
func BenchmarkPoll500(b *testing.B) {
	var domains []libvirt.Domain
	for i := range 500 {
		d := vm(int32(i+1), 0, 0, 0, 0)
		d.UUID[14], d.UUID[15] = byte(i>>8), byte(i)
		id := uuid.MustParse(portID)
		id[14], id[15] = byte(i>>8), byte(i)
		d.Interfaces[0].InterfaceID = id.String()
		d.Disks = append(d.Disks, d.Disks[0])
		d.Disks[1].Device = "vdb"
		domains = append(domains, d)
	}
	moment := at(0)
	s, _, err := spool.Open(b.Context(), spool.Options{Dir: b.TempDir(), Clock: func() clock.Moment { return moment }, Log: quiet})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	m := meter{resolver: InterfaceIDs{}, interval: time.Minute, hold: time.Hour, agentVersion: "v1.0.0"}
	st := newState("RegionOne", "compute-1", moment)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		moment = at(60 * float64(n))
		for i := range domains {
			d := &domains[i]
			*d.CPUTimeNS += 30e9
			*d.Interfaces[0].RxBytes += 180_000
			*d.Interfaces[0].TxBytes += 120_000
		}
		step := m.advance(st, &libvirt.Snapshot{At: moment.Wall, Mono: moment.Since, Domains: domains}, moment, hint{})
		data, err := step.State.encode()
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Append(b.Context(), step.Records, data); err != nil {
			b.Fatal(err)
		}
		st = step.State
		b.ReportMetric(float64(s.Stats().Bytes), "spool-bytes/poll")
		b.ReportMetric(float64(len(data)), "state-bytes")
		if batch, ok, err := s.Next(b.Context()); err != nil {
			b.Fatal(err)
		} else if ok {
			if err := s.Done(batch.Number); err != nil {
				b.Fatal(err)
			}
		}
	}
}
