package ingest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/simulate"
	"github.com/ratebatch/ratebatch/ratebatch"
)

// A run that drains the topics does not end while another member of its group
// has partitions and leaves their records unread: when that one is gone, the run
// reads them.
func TestARunWaitsForPartitionsThatAnotherMemberHas(t *testing.T) {
	p := newPipe(t, 2, kafkatest.Config{})
	p.send(batches(t, cloud(1, simulate.Faults{})))
	idle := p.broker.Client(t, kgo.ConsumerGroup(p.options.Group), kgo.ConsumeTopics(p.topics.All()...), kgo.DisableAutoCommit(), kgo.SessionTimeout(p.options.Session))
	p.until("the idle member has partitions", func() bool { return p.members() == 1 })
	done := p.inBackground(t.Context())
	p.until("ingest has read its part", func() bool { return p.stored() > 0 && p.committed() == int64(p.stored()) })
	select {
	case err := <-done:
		t.Fatalf("ingest ended with %d of %d samples: %v", p.stored(), p.distinct(), err)
	case <-time.After(2 * time.Second):
	}
	idle.LeaveGroup()
	p.wait(done)
	p.everything()
}

// Brokers that answer and give nothing end a run that drains, also where the
// date that samples are judged by is given and stands still.
func TestBrokersThatGiveNothingEndADrain(t *testing.T) {
	t.Parallel() // it waits
	p := newPipe(t, 1, kafkatest.Config{})
	cluster := p.broker.Own(t).Cluster()
	p.send(batches(t, cloud(1, simulate.Faults{})))
	p.options.RetryFor = time.Second
	cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		cluster.SleepControl(func() { time.Sleep(100 * time.Millisecond) })
		return r.ResponseKind(), nil, true
	})
	job := p.job()
	now := time.Now()
	job.Now = func() time.Time { return now }
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	result, err := job.Run(ctx, uuid.New())
	if ratebatch.ExitCode(err) != ratebatch.ExitTryAgain || !strings.Contains(err.Error(), "gave no record for 2") || result.Records != 0 {
		t.Errorf("%d records, exit %d: %v; want exit %d and for how long nothing came", result.Records, ratebatch.ExitCode(err), err, ratebatch.ExitTryAgain)
	}
}
