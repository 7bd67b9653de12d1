package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// farBehind is how much later one source of a region may be than another until
// somebody should ask whether it is still there.
const farBehind = time.Hour

// watermarks moves the watermark of each region that came through ingest
// forward to where all its partitions are stored, less the allowance; never
// behind the one in force, and in steps.
func (s *session) watermarks(ctx context.Context, step time.Duration) error {
	j := s.job
	complete, err := j.Store.IngestComplete(ctx)
	if err != nil {
		return err
	}
	j.result.Regions = j.result.Regions[:0]
	for _, c := range complete {
		until := c.Until.Add(-j.Options.Allowance).Truncate(time.Second)
		r := Region{Region: c.Region, Watermark: c.Watermark}
		if until.After(c.Watermark) && until.Sub(c.Watermark) >= step && c.Until.Unix() > 0 {
			if err := j.Store.SetWatermark(ctx, store.Watermark{Region: c.Region, CompleteUntil: until, Source: "ingest"}, "group "+j.Options.Group); err != nil {
				return err
			}
			r.Watermark = until
		}
		if c.Slowest != s.source && c.Fastest.Sub(c.Until) > farBehind {
			r.WaitsFor, r.Drained = c.Slowest, c.Until.UTC()
			if s.unsaid(c.Slowest) {
				s.job.Log.WarnContext(ctx, "a watermark waits for another source", "region", c.Region, "waits_for", c.Slowest, "drained", c.Until.UTC(), "hint", r.Hint())
			}
		}
		j.result.Regions = append(j.result.Regions, r)
	}
	return nil
}

// Hint says what to do about the source that a region waits for.
func (r Region) Hint() string {
	return "run the ingest that reads it; if it is gone for good: ratebatch watermark --forget-source '" + r.WaitsFor + "'"
}

// unsaid is true once in a session for each topic or source that something is to
// be said of.
func (s *session) unsaid(of string) bool {
	said := s.warned[of]
	s.warned[of] = true
	return !said
}

// strike gives the partitions to strike out of topics that this group once read and
// is no longer told to read: one that was renamed would hold the watermark for ever.
// While it holds records that were not read, or a member of the group reads it, or
// that cannot be told, it does hold it, and that is said. What the brokers deleted of
// it before it was read is a loss.
func (s *session) strike(ctx context.Context, known []store.Progress) ([]store.Progress, error) {
	left := map[string][]store.Progress{}
	for _, p := range known {
		if !slices.Contains(s.job.Options.Topics.All(), p.Topic) {
			left[p.Topic] = append(left[p.Topic], p)
		}
	}
	s.left = false
	if len(left) == 0 {
		return nil, nil
	}
	now, err := s.lookAt(ctx, slices.Sorted(maps.Keys(left)))
	if err != nil {
		s.left = true
		if s.unsaid("") {
			s.job.Log.WarnContext(ctx, "whether topics that are no longer read still hold records is not known; the watermark waits for them", "error", err)
		}
		return nil, nil
	}
	var rows []store.Progress
	for topic, partitions := range left {
		var unread int64
		var unknown error
		for _, p := range partitions {
			state := now.of(p)
			switch {
			case p.Gone:
				unread += state.unread // that came after it was struck out
			case state.err != nil:
				unknown, s.left = state.err, true
			case state.there && (state.unread > 0 || state.read || s.job.Now().Sub(p.DrainedAt) < s.job.Options.Allowance):
				// Somebody may tell ingest of a new name before the agents: what they
				// still write to the old one has come when the allowance is over.
				unread += state.unread
				s.left = true
			default:
				if state.lost != nil {
					s.mu.Lock()
					err := s.lose(ctx, *state.lost)
					s.mu.Unlock()
					if err != nil {
						return nil, err
					}
				}
				p.Gone = true
				rows = append(rows, p)
			}
		}
		switch {
		case unread > 0 && s.unsaid(topic):
			s.job.Log.WarnContext(ctx, "nobody reads a topic that has records", "topic", topic, "records", unread,
				"hint", "run ingest with this topic's name until it is drained; if the records do not matter: ratebatch watermark --forget-source '"+s.source+"' --topic "+topic+", and delete the topic")
		case unknown != nil && s.unsaid(topic):
			s.job.Log.WarnContext(ctx, "whether a topic that is no longer read still holds records is not known; the watermark waits for it", "topic", topic, "error", unknown,
				"hint", "let the Kafka user read it; if it does not matter: ratebatch watermark --forget-source '"+s.source+"' --topic "+topic)
		}
	}
	return rows, nil
}

// topicsNow is what the brokers say of topics.
type topicsNow struct {
	meta         kadm.Metadata
	starts, ends kadm.ListedOffsets
	committed    kadm.OffsetResponses
	read         kadm.TopicsSet // by members of the group
}

func (s *session) lookAt(ctx context.Context, topics []string) (x topicsNow, err error) {
	group := s.job.Options.Group
	if x.meta, err = s.admin.Metadata(ctx, topics...); err != nil {
		return x, err
	}
	var there []string
	for _, name := range topics {
		if t, ok := x.meta.Topics[name]; ok && t.Err == nil {
			there = append(there, name)
		}
	}
	if len(there) == 0 {
		return x, nil
	}
	members, err := s.admin.DescribeGroups(ctx, group)
	if err == nil {
		err = members.Error()
	}
	if err != nil {
		return x, fmt.Errorf("members of the group: %w", err)
	}
	x.read = members.AssignedPartitions()
	if x.committed, err = s.admin.FetchOffsets(ctx, group); err != nil {
		return x, fmt.Errorf("offsets of the group: %w", err)
	}
	if x.starts, err = s.admin.ListStartOffsets(ctx, there...); err != nil {
		return x, fmt.Errorf("begins of the topics: %w", err)
	}
	if x.ends, err = s.admin.ListEndOffsets(ctx, there...); err != nil {
		return x, fmt.Errorf("ends of the topics: %w", err)
	}
	return x, nil
}

// partitionNow is what became of a partition that was read once.
type partitionNow struct {
	there  bool        // it is, and its topic is the same
	read   bool        // by a member of the group
	unread int64       // records that it holds
	lost   *store.Loss // what it no longer holds and was not read
	err    error       // it is not known
}

func (x topicsNow) of(p store.Progress) partitionNow {
	t, ok := x.meta.Topics[p.Topic]
	if ok && t.Err != nil && !errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
		return partitionNow{err: t.Err}
	}
	_, there := t.Partitions[p.Partition]
	if !ok || t.Err != nil || !there || p.TopicID != uuid.Nil && p.TopicID != uuid.UUID(t.ID) {
		return partitionNow{lost: &store.Loss{Topic: p.Topic, Partition: p.Partition, TopicID: p.TopicID, Cause: "deleted", FromOffset: p.NextOffset, ToOffset: -1,
			Detail: "the topic was deleted when ingest was no longer told to read it; what came after " + p.DrainedAt.UTC().Format(time.RFC3339) + " and had not been read is gone"}}
	}
	start, okStart := x.starts.Lookup(p.Topic, p.Partition)
	end, okEnd := x.ends.Lookup(p.Topic, p.Partition)
	if !okStart || !okEnd || start.Err != nil || end.Err != nil {
		return partitionNow{err: errors.Join(start.Err, end.Err, errOf(!okStart || !okEnd, "its offsets are not listed"))}
	}
	next := p.NextOffset
	if c, ok := x.committed.Lookup(p.Topic, p.Partition); ok && c.Err == nil {
		next = max(next, c.At)
	}
	state := partitionNow{there: true, read: x.read.Lookup(p.Topic, p.Partition), unread: max(0, end.Offset-max(next, start.Offset))}
	if start.Offset == end.Offset && next < end.Offset && !state.read {
		state.there = false
		state.lost = &store.Loss{Topic: p.Topic, Partition: p.Partition, TopicID: p.TopicID, Cause: "expired", FromOffset: next, ToOffset: end.Offset,
			Detail: fmt.Sprintf("%d records were deleted before they were read: ingest was no longer told to read the topic", end.Offset-next)}
	}
	return state
}
