package ingest_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/simulate"
	"github.com/ratebatch/ratebatch/jobs/ingest"
)

// away takes a table away and gives the way to bring it back.
func (p *pipe) away(table string) (back func()) {
	p.Helper()
	p.exec("RENAME TABLE " + table + " TO " + table + "_away")
	returns := []string{"RENAME TABLE " + table + "_away TO " + table}
	p.Cleanup(func() { p.exec2(returns...) })
	return func() { p.exec(returns...); returns = nil }
}

// A rebalance in which what was read cannot be written ends the run, also where
// it takes no partition away: reading on would commit past records that nobody
// stored.
func TestABatchThatFailsInARebalanceIsReadAgain(t *testing.T) {
	p := newPipe(t, 2, kafkatest.Config{})
	p.options.Follow, p.options.BatchTime, p.options.Session = true, time.Hour, 2*time.Second
	all := pieces(batches(t, cloud(1, simulate.Faults{})), 3)
	p.send(all[0])
	done := p.inBackground(t.Context())
	p.until("the first piece is stored", func() bool { return p.stored() == p.distinct() })
	back := p.away("instance_samples")
	p.send(all[1])
	time.Sleep(time.Second) // it is read, and waits in the batch
	idle := p.broker.Client(t, kgo.ConsumerGroup(p.options.Group), kgo.ConsumeTopics(p.topics.All()...), kgo.DisableAutoCommit(), kgo.SessionTimeout(p.options.Session), kgo.HeartbeatInterval(p.options.Session/10))
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "instance_samples") {
			t.Errorf("%v, want an error that names the table", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("ingest goes on after a batch that it dropped")
	}
	back()
	p.send(all[2])
	idle.LeaveGroup()
	p.options.Follow = false
	p.drain()
	p.everything()
}

// A signal makes ingest write what it has read, but not behind a batch that
// failed: its offsets would speak for the failed one's, too.
func TestNothingIsWrittenBehindABatchThatFailedAsASignalCame(t *testing.T) {
	p := newPipe(t, 1, kafkatest.Config{})
	p.options.BatchRecords = 10
	ports := batches(t, cloud(1, simulate.Faults{})).Ports
	back := p.away("rejected_records")
	p.send(simulate.Batch{Ports: ports[:15]})
	p.produce(&kgo.Record{Topic: p.topics.Port, Key: []byte("k"), Value: []byte("garbage")}) // in the second batch
	p.send(simulate.Batch{Ports: ports[15:60]})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	job := p.job()
	job.Progress = func(ingest.Result) { stop() } // the first batch is stored
	if _, err := job.Run(ctx, uuid.New()); err == nil || !strings.Contains(err.Error(), "rejected_records") {
		t.Errorf("%v, want the second batch's error", err)
	}
	if n := p.committed(); n != 10 {
		t.Errorf("offset %d is committed, the records below 10 are stored", n)
	}
	back()
	p.drain()
	p.everySample()
	if got := p.texts("SELECT toString(offset) FROM rejected_records FINAL WHERE record = 'garbage'"); !slices.Equal(got, []string{"15"}) {
		t.Errorf("rejected records at offsets %v, want one at 15", got)
	}
}
