package ingest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// announce gives every partition a row, so that one that nobody reads yet holds
// the watermark up, and strikes out those that are no more.
func (s *session) announce(ctx context.Context, partitions []place) error {
	known, err := s.job.Store.IngestProgress(ctx, s.source)
	if err != nil {
		return err
	}
	var rows []store.Progress
	seen := map[place]bool{}
	for _, p := range known {
		at := place{p.Topic, p.Partition}
		there := slices.Contains(partitions, at)
		seen[at] = there && !p.Gone
		if !there && !p.Gone && s.ids[p.Topic] != [16]byte{} {
			p.Gone = true
			rows = append(rows, p)
		}
	}
	struck, err := s.strike(ctx, known)
	if err != nil {
		return err
	}
	rows = append(rows, struck...)
	for _, at := range partitions {
		if !seen[at] {
			rows = append(rows, store.Progress{Topic: at.topic, Partition: at.partition, DrainedAt: time.Unix(0, 0).UTC(), Regions: []string{}})
		}
	}
	return s.job.Store.SetIngestProgress(ctx, s.source, s.run, rows)
}

// look takes a picture of where the topics end now.
func (s *session) look(ctx context.Context) error {
	at := s.job.Now()
	ends, err := s.admin.ListEndOffsets(ctx, s.job.Options.Topics.All()...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("ends of the topics: %w", err)
	}
	p := picture{at: at, ends: map[place]int64{}}
	for topic, partitions := range ends {
		for partition, end := range partitions {
			p.ends[place{topic, partition}] = end.Offset
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.picture, s.lastLive = p, clock()
	return nil
}

// lookAgain sees that the brokers are there and the topics are the same, and
// when all of the last picture is stored and we follow, takes the next one.
func (s *session) lookAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pictureEvery)
	defer cancel()
	meta, err := s.admin.Metadata(ctx, s.job.Options.Topics.All()...)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if away := clock().Sub(s.lastLive); away > s.job.Options.RetryFor {
			return &ratebatch.TryAgainError{Err: fmt.Errorf("kafka is away for %s: %w", away.Round(time.Second), err), Hint: "what was stored is committed; run the same command again"}
		}
		s.job.Log.WarnContext(ctx, "kafka does not answer", "error", err)
		return nil
	}
	var all []place
	grown := false
	s.mu.Lock()
	s.lastLive = clock()
	for name, id := range s.ids {
		t := meta.Topics[name]
		if t.Err != nil || t.ID != id {
			s.mu.Unlock()
			return fmt.Errorf("topic %s: %w", name, errTopicChanged)
		}
		for p := range t.Partitions {
			at := place{name, p}
			all = append(all, at)
			if _, ok := s.picture.ends[at]; !ok {
				grown = true
			}
		}
	}
	next := s.picture.at.IsZero() || grown
	s.mu.Unlock()
	if grown || s.left {
		if err := s.announce(ctx, all); err != nil {
			return err
		}
	}
	if next && s.job.Options.Follow {
		if err := s.look(ctx); err != nil {
			s.job.Log.WarnContext(ctx, "kafka does not answer", "error", err)
		}
	}
	return nil
}

// placed says whether the group has answered, and of all that it gave us it is
// known from where on it is read.
func (s *session) placed() bool {
	for at := range s.given {
		if s.parts[at] == nil {
			return false
		}
	}
	return s.joined
}

// reached says whether all partitions that are ours are read (or stored) up to
// where they ended in the picture. Before it is known what is ours it is false.
func (s *session) reached(of func(*assigned) int64) bool {
	if !s.placed() || s.picture.at.IsZero() {
		return false
	}
	for at, a := range s.parts {
		if end, ok := s.picture.ends[at]; ok && of(a) < end {
			return false
		}
	}
	return true
}

// whole says whether the partitions that are not ours are stored up to the
// picture as well: a run that drains the topics does not end before. Whoever has
// them says so in ingest_progress; if that was a member that died, they become
// ours when the group has noticed. Others wait for us in the same way, so what
// is ours is noted first.
func (s *session) whole(ctx context.Context) (bool, error) {
	missing := map[place]int64{}
	for at, end := range s.picture.ends {
		if s.parts[at] == nil && end > 0 {
			missing[at] = end
		}
	}
	now := clock()
	switch {
	case len(missing) == 0:
		return true, nil
	case now.Sub(s.asked) < time.Second:
		return false, nil
	case s.asked.IsZero():
		s.job.Log.InfoContext(ctx, "waiting for partitions that another member of the group has", "partitions", len(missing))
	}
	s.asked = now
	if err := s.note(ctx); err != nil {
		return false, err
	}
	known, err := s.job.Store.IngestProgress(ctx, s.source)
	if err != nil {
		return false, err
	}
	for _, p := range known {
		at := place{p.Topic, p.Partition}
		if end, ok := missing[at]; ok && p.TopicID == uuid.UUID(s.ids[p.Topic]) && p.NextOffset >= end {
			delete(missing, at)
		}
	}
	return len(missing) == 0, nil
}

// drained notes that our partitions are stored up to the picture, and moves the
// watermarks.
func (s *session) drained(ctx context.Context, last bool) error {
	for at, a := range s.parts {
		if _, ok := s.picture.ends[at]; ok && a.drained.Before(s.picture.at) {
			a.drained = s.picture.at
		}
	}
	if last {
		// A partition without records has its place committed too, so that a topic
		// that is made anew under its name is noticed.
		if err := s.commit(ctx, s.offsets()); err != nil {
			return err
		}
	}
	if err := s.note(ctx); err != nil {
		return err
	}
	s.picture = picture{}
	step := time.Minute
	if last {
		step = 0
	}
	return s.watermarks(ctx, step)
}

// note writes how far our partitions are, where that has changed.
func (s *session) note(ctx context.Context) error {
	var rows []store.Progress
	changed := map[*assigned]store.Progress{}
	for at, a := range s.parts {
		p := store.Progress{Topic: at.topic, Partition: at.partition, TopicID: uuid.UUID(a.topicID), NextOffset: a.stored, DrainedAt: a.drained.UTC().Truncate(time.Millisecond), Regions: slices.Sorted(maps.Keys(a.regions))}
		if p.Regions == nil {
			p.Regions = []string{}
		}
		if a.written.TopicID == p.TopicID && a.written.NextOffset == p.NextOffset && a.written.DrainedAt.Equal(p.DrainedAt) && slices.Equal(a.written.Regions, p.Regions) && !a.written.Gone {
			continue
		}
		changed[a] = p
		rows = append(rows, p)
	}
	if err := s.job.retry(ctx, "write to ingest_progress", func(ctx context.Context) error {
		return s.job.Store.SetIngestProgress(ctx, s.source, s.run, rows)
	}); err != nil {
		return err
	}
	for a, p := range changed {
		a.written = p
	}
	return nil
}

// finish counts what arrived and asks who is silent.
func (j *Job) finish(ctx context.Context) error {
	if err := j.Store.CountIngested(ctx); err != nil {
		return err
	}
	silent, err := j.Store.SilentHosts(ctx, j.Now().Add(-j.Options.SilentAfter))
	if err != nil {
		return err
	}
	j.result.Silent = append(j.result.Silent, silent...)
	return nil
}
