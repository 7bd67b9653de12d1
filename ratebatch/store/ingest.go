package store

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
)

// Late is a sample that came when the tiers no longer take it up: they leave
// buckets alone that the raw tier does not keep whole.
type Late struct {
	Kind   string // port, instance or disk
	Sample Sample
	Record []byte // the whole record, as JSON
}

// Rejected is a record that did not decode, with its place in the topic.
type Rejected struct {
	Topic     string
	TopicID   uuid.UUID // of the topic then: one that is made anew under the name has other records at the same places
	Partition int32
	Offset    int64
	Key       []byte
	Record    []byte
	Reason    string
}

// InsertLate lists samples that came too late.
func (s *Store) InsertLate(ctx context.Context, rows []Late, token string) error {
	return s.insertRows(ctx, len(rows), "INSERT INTO late_samples (kind, region, host, epoch, sequence, begin, ts, instance_uuid, project_id, record)", token, func(batch driver.Batch) error {
		for i := range rows {
			r := &rows[i]
			x := &r.Sample
			if err := batch.Append(r.Kind, x.Region, x.Host, x.Epoch, x.Sequence, x.Begin, x.At, x.InstanceUUID, x.ProjectID, string(r.Record)); err != nil {
				return err
			}
		}
		return nil
	})
}

// InsertRejected lists records that did not decode.
func (s *Store) InsertRejected(ctx context.Context, rows []Rejected, token string) error {
	return s.insertRows(ctx, len(rows), "INSERT INTO rejected_records (topic, topic_id, partition, offset, key, record, reason)", token, func(batch driver.Batch) error {
		for i := range rows {
			r := &rows[i]
			if err := batch.Append(r.Topic, r.TopicID, r.Partition, r.Offset, string(r.Key), string(r.Record), r.Reason); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) insertRows(ctx context.Context, n int, statement, token string, fill func(driver.Batch) error) error {
	if n == 0 {
		return nil
	}
	batch, err := s.conn.PrepareBatch(insertSettings(ctx, token), statement)
	if err == nil {
		defer batch.Close() //nolint:errcheck // after Send it has nothing to say, before it the first error counts
		if err = fill(batch); err == nil {
			err = batch.Send()
		}
	}
	if err != nil {
		return fmt.Errorf("%.40s …: %w", statement, describe(err))
	}
	return nil
}

// CountIngested brings ingest_counts up to date for the hours that have ended:
// those that a sample reached since the last count. It may be repeated.
func (s *Store) CountIngested(ctx context.Context) error {
	var now, since time.Time
	if err := s.Row(ctx, "server_time", nil, &now); err != nil {
		return err
	}
	if err := s.Row(ctx, "last_count", nil, &since); err != nil {
		return err
	}
	kept, err := s.RawKept(ctx)
	if err != nil {
		return err
	}
	oldest := kept.FirstWholeHour(now)
	if oldest.IsZero() {
		oldest = time.Unix(0, 0).UTC()
	}
	// The sequences first, and the count's moment from before them: the next time
	// starts from it, and what arrives in between must not be passed over by any.
	if err := s.Exec(ctx, "count_sequences", Params{"since": since}); err != nil {
		return err
	}
	if err := s.countRanges(ctx, since); err != nil {
		return err
	}
	return s.Exec(ctx, "count_ingested", Params{"since": since, "counted_at": now, "oldest": oldest, "to": now.UTC().Truncate(time.Hour)})
}

const (
	maxRangeHours    = 6         // that one statement notes ranges of
	maxRangeArrivals = 1_000_000 // and arrivals in them, unless a single hour has more: what bounds its memory
)

// countRanges brings ingest_ranges up to date.
func (s *Store) countRanges(ctx context.Context, since time.Time) error {
	if err := s.Row(ctx, "ranges_since", Params{"since": since}, &since); err != nil {
		return err
	}
	type hourCount struct {
		begin   time.Time
		arrived uint64
	}
	hours, err := Collect(ctx, s, "touched_hours", Params{"since": since}, func(rows driver.Rows) (h hourCount, err error) {
		err = rows.Scan(&h.begin, &h.arrived)
		return h, err
	})
	if err != nil {
		return err
	}
	for i := 0; i < len(hours); {
		from, to, arrived := hours[i].begin, hours[i].begin.Add(time.Hour), hours[i].arrived
		for i++; i < len(hours) && hours[i].begin.Before(from.Add(maxRangeHours*time.Hour)) && arrived+hours[i].arrived <= maxRangeArrivals; i++ {
			to, arrived = hours[i].begin.Add(time.Hour), arrived+hours[i].arrived
		}
		if err := s.Exec(ctx, "count_ranges", Params{"from": from, "to": to}); err != nil {
			return err
		}
	}
	return nil
}

// Loss is what a topic no longer held when ingest came for it.
type Loss struct {
	Source     string    `json:"source"`
	Topic      string    `json:"topic"`
	Partition  int32     `json:"partition"`
	TopicID    uuid.UUID `json:"topic_id"`
	Cause      string    `json:"cause"` // expired, recreated, truncated or deleted
	FromOffset int64     `json:"from_offset"`
	ToOffset   int64     `json:"to_offset"` // not included; -1: not known
	Detail     string    `json:"detail"`
	RunID      uuid.UUID `json:"run_id"`
	FoundAt    time.Time `json:"found_at"`
}

// AddLoss notes a loss.
func (s *Store) AddLoss(ctx context.Context, x Loss) error {
	return s.Exec(ctx, "insert_ingest_loss", Params{
		"source": x.Source, "topic": x.Topic, "partition": x.Partition, "topic_id": x.TopicID, "cause": x.Cause,
		"from_offset": x.FromOffset, "to_offset": x.ToOffset, "detail": x.Detail, "run_id": x.RunID, "found_at": x.FoundAt.Truncate(time.Millisecond),
	})
}

// Losses lists what was lost since a moment.
func (s *Store) Losses(ctx context.Context, since time.Time) ([]Loss, error) {
	return Collect(ctx, s, "ingest_losses", Params{"since": since.Truncate(time.Second)}, func(rows driver.Rows) (Loss, error) {
		var x Loss
		err := rows.Scan(&x.Source, &x.Topic, &x.Partition, &x.TopicID, &x.Cause, &x.FromOffset, &x.ToOffset, &x.Detail, &x.RunID, &x.FoundAt)
		return x, err
	})
}

// Progress is how far ingest has read a partition.
type Progress struct {
	Topic      string
	Partition  int32
	TopicID    uuid.UUID
	NextOffset int64
	DrainedAt  time.Time // what was in the partition then is stored; 1970: not known
	Regions    []string
	Gone       bool // the partition is no more
}

// IngestProgress lists the partitions of a source.
func (s *Store) IngestProgress(ctx context.Context, source string) ([]Progress, error) {
	return Collect(ctx, s, "ingest_progress", Params{"source": source}, func(rows driver.Rows) (Progress, error) {
		var x Progress
		err := rows.Scan(&x.Topic, &x.Partition, &x.TopicID, &x.NextOffset, &x.DrainedAt, &x.Regions, &x.Gone)
		return x, err
	})
}

// SetIngestProgress notes how far partitions of a source are read.
func (s *Store) SetIngestProgress(ctx context.Context, source string, run uuid.UUID, rows []Progress) error {
	return s.insertRows(ctx, len(rows), "INSERT INTO ingest_progress (source, topic, partition, topic_id, next_offset, drained_at, regions, gone, run_id)", "", func(batch driver.Batch) error {
		for _, x := range rows {
			if err := batch.Append(source, x.Topic, x.Partition, x.TopicID, x.NextOffset, x.DrainedAt, x.Regions, x.Gone, run); err != nil {
				return err
			}
		}
		return nil
	})
}

// IngestSource is a consumer group of a cluster that ingest reads as.
type IngestSource struct {
	Source    string
	DrainedAt time.Time // what all its partitions held then is stored; 1970: not known
	Regions   []string
}

// IngestSources lists the sources that watermarks wait for.
func (s *Store) IngestSources(ctx context.Context) ([]IngestSource, error) {
	return Collect(ctx, s, "ingest_sources", nil, func(rows driver.Rows) (IngestSource, error) {
		var x IngestSource
		err := rows.Scan(&x.Source, &x.DrainedAt, &x.Regions)
		return x, err
	})
}

// ForgetSource strikes out a source, or one topic of it, so that no watermark waits
// for it any more, and lists what was struck. An ingest that still reads it brings it
// back by going on.
func (s *Store) ForgetSource(ctx context.Context, source, topic string) ([]Progress, error) {
	known, err := s.IngestProgress(ctx, source)
	if err != nil {
		return nil, err
	}
	var rows []Progress
	for _, p := range known {
		if !p.Gone && (topic == "" || p.Topic == topic) {
			p.Gone = true
			rows = append(rows, p)
		}
	}
	return rows, s.SetIngestProgress(ctx, source, uuid.Nil, rows)
}

// Complete is up to when everything that a region's topics held is stored, and
// the watermark that is in force for it.
type Complete struct {
	Region    string
	Until     time.Time
	Slowest   string    // of its sources, the one that is complete up to there
	Fastest   time.Time // up to when the source is complete that is ahead of the others
	Watermark time.Time // 1970: none, or taken back
}

// IngestComplete lists the regions that came through ingest.
func (s *Store) IngestComplete(ctx context.Context) ([]Complete, error) {
	return Collect(ctx, s, "ingest_complete", nil, func(rows driver.Rows) (Complete, error) {
		var x Complete
		err := rows.Scan(&x.Region, &x.Until, &x.Slowest, &x.Fastest, &x.Watermark)
		return x, err
	})
}

// SilentHost sent samples once and none lately.
type SilentHost struct {
	Region      string    `json:"region"`
	Host        string    `json:"host"`
	LastSample  time.Time `json:"last_sample"`
	LastArrival time.Time `json:"last_arrival"`
}

// hostGone is how long a host may be silent until nobody asks for it any more.
const hostGone = 30 * 24 * time.Hour

// SilentHosts lists hosts without a sample that ended after since.
func (s *Store) SilentHosts(ctx context.Context, since time.Time) ([]SilentHost, error) {
	return Collect(ctx, s, "silent_hosts", Params{"since": since.Truncate(time.Second), "gone": since.Add(-hostGone).Truncate(time.Second)}, func(rows driver.Rows) (SilentHost, error) {
		var x SilentHost
		err := rows.Scan(&x.Region, &x.Host, &x.LastSample, &x.LastArrival)
		return x, err
	})
}

// IngestLeftovers counts records that were rejected and samples that came too
// late for the raw tier, since a moment.
func (s *Store) IngestLeftovers(ctx context.Context, since time.Time) (rejected, late uint64, err error) {
	err = s.Row(ctx, "ingest_leftovers", Params{"since": since.Truncate(time.Second)}, &rejected, &late)
	return rejected, late, err
}
