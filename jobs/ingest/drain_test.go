package ingest_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/simulate"
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
