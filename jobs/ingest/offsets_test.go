package ingest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/simulate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Offsets that the job noted and that the broker has no more, or has with other
// records: the topic was made anew, or what was not read expired.
func TestATopicMadeAnewIsReportedAndReadFromItsBeginning(t *testing.T) {
	for _, follow := range []bool{false, true} {
		t.Run(fmt.Sprintf("follow %v", follow), func(t *testing.T) {
			p := newPipe(t, 2, kafkatest.Config{})
			admin := p.broker.Admin(t)
			all := pieces(batches(t, cloud(2, simulate.Faults{})), 3)
			anew := func() {
				if r, err := admin.DeleteTopics(t.Context(), p.topics.Port); err != nil || r.Error() != nil {
					t.Fatal(err, r.Error())
				}
				if r, err := admin.CreateTopics(t.Context(), 2, -1, nil, p.topics.Port); err != nil || r.Error() != nil {
					t.Fatal(err, r.Error())
				}
				p.client = p.broker.Client(t) // a producer holds on to the old topic as well
			}
			p.options.Follow, p.options.BatchTime = follow, 100*time.Millisecond
			if !follow {
				p.send(all[0])
				p.drain()
				anew()
				p.send(all[1])
				p.send(all[2])
				result, err := p.job().Run(t.Context(), uuid.New())
				if ratebatch.ExitCode(err) != ratebatch.ExitRejected || len(result.Losses) == 0 || result.Losses[0].Cause != "recreated" {
					t.Errorf("%v, losses %+v; want exit 3 and losses that say recreated", err, result.Losses)
				}
			} else {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				done := p.inBackground(ctx)
				p.send(all[0])
				p.until("the first part is there", func() bool { return p.stored() == p.distinct() })
				p.until("it is noted", func() bool {
					return p.number("SELECT count() FROM ingest_progress FINAL WHERE next_offset > 0 AND topic = '"+p.topics.Port+"'") == 2
				})
				anew()
				p.send(all[1])
				p.send(all[2])
				p.until("all is there", func() bool { return p.stored() == p.distinct() })
				stop()
				p.wait(done)
			}
			p.everything()
			losses, err := p.store.Losses(t.Context(), time.Now().Add(-time.Hour))
			if err != nil || !slices.ContainsFunc(losses, func(x store.Loss) bool { return x.Cause == "recreated" && x.Topic == p.topics.Port }) {
				t.Errorf("losses that are kept: %+v, %v", losses, err)
			}
		})
	}
}

// A topic that is made anew has other records at the same offsets: neither the
// samples nor the rejected records of the two take each other's place, and the
// second insert is no repetition of the first.
func TestATopicMadeAnewHasOtherRecordsAtTheSameOffsets(t *testing.T) {
	p := newPipe(t, 1, kafkatest.Config{})
	admin := p.broker.Admin(t)
	all := batches(t, cloud(1, simulate.Faults{}))
	for i := range 2 {
		p.send(simulate.Batch{Ports: all.Ports[100*i : 100*(i+1)]})
		// The same garbage at the same place, in another topic: two records.
		p.produce(&kgo.Record{Topic: p.topics.Port, Key: []byte("k"), Value: []byte("garbage")})
		p.drain()
		if i == 0 {
			if r, err := admin.DeleteTopics(t.Context(), p.topics.Port); err != nil || r.Error() != nil {
				t.Fatal(err, r.Error())
			}
			if r, err := admin.CreateTopics(t.Context(), 1, -1, nil, p.topics.Port); err != nil || r.Error() != nil {
				t.Fatal(err, r.Error())
			}
			p.client = p.broker.Client(t)
		}
	}
	p.everySample()
	if got := p.texts("SELECT toString(offset) FROM rejected_records FINAL WHERE record = 'garbage' ORDER BY offset"); !slices.Equal(got, []string{"100", "100"}) {
		t.Errorf("rejected records at offsets %v, want two at 100", got)
	}
}

func TestRecordsThatExpiredUnreadAreReported(t *testing.T) {
	p := newPipe(t, 1, kafkatest.Config{})
	admin := p.broker.Admin(t)
	all := pieces(batches(t, cloud(2, simulate.Faults{})), 3)
	p.send(all[0])
	p.drain()
	kept := p.sent
	p.send(all[1])
	ends, err := admin.ListEndOffsets(t.Context(), p.topics.Port)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := admin.DeleteRecords(t.Context(), ends.Offsets()); err != nil || r.Error() != nil {
		t.Fatal(err, r.Error())
	}
	p.sent = kept
	p.sent.Instances = append(slices.Clone(kept.Instances), all[1].Instances...)
	p.sent.Disks = append(slices.Clone(kept.Disks), all[1].Disks...)
	p.send(all[2])
	result, err := p.job().Run(t.Context(), uuid.New())
	if ratebatch.ExitCode(err) != ratebatch.ExitRejected || len(result.Losses) != 1 {
		t.Fatalf("%v, losses %+v; want exit 3 and one loss", err, result.Losses)
	}
	if x := result.Losses[0]; x.Cause != "expired" || x.FromOffset != int64(len(all[0].Ports)) || x.ToOffset-x.FromOffset != int64(len(all[1].Ports)) {
		t.Errorf("%+v, want the %d records of the second part", x, len(all[1].Ports))
	}
	p.everything()
	if again := p.drain(); len(again.Losses) != 0 {
		t.Errorf("the next run reports it again: %+v", again.Losses)
	}
}
