package store

import (
	"context"
	"fmt"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
)

// TierRetention is how long a table keeps rows by their own time, at least;
// zero if it has no TTL. A TTL that cannot be told in seconds is an error: taken for "for
// ever" it would have expired usage rated as zero.
func (s *Store) TierRetention(ctx context.Context, table string) (time.Duration, error) {
	var seconds int64
	var text string
	if err := s.Row(ctx, "tier_retention", Params{"table": table}, &seconds, &text); err != nil {
		return 0, err
	}
	if seconds < 0 {
		return 0, &ratebatch.ConfigError{Err: fmt.Errorf("table %s has the TTL %q, from which nobody can tell how long a bucket stays", table, text),
			Hint: "set it with 'ratebatch migrate --retention raw=…,5min=…,hourly=…', or as 'bucket + INTERVAL n DAY' (raw samples: toDateTime(ts)) without a condition"}
	}
	return time.Duration(seconds) * time.Second, nil
}

// Kept says which rows of a table are there for sure.
type Kept struct {
	Keep  time.Duration // by their own time; 0: for ever
	Noted time.Time     // what is older may be gone whatever Keep says; 1970: nothing was noted
}

// KeptSince is from when on a table has every row at a moment; zero if it always
// had.
func (s *Store) KeptSince(ctx context.Context, table string, now time.Time) (time.Time, error) {
	k, err := s.kept(ctx, table)
	return k.Since(now), err
}

func (s *Store) kept(ctx context.Context, table string) (k Kept, err error) {
	if k.Keep, err = s.TierRetention(ctx, table); err != nil {
		return k, err
	}
	return k, s.Row(ctx, "kept_since", Params{"table": table}, &k.Noted)
}

// RawKept says which raw samples are there for sure, of all kinds.
func (s *Store) RawKept(ctx context.Context) (Kept, error) {
	all := Kept{Noted: time.Unix(0, 0).UTC()}
	for i := range tierKinds {
		k, err := s.kept(ctx, tierKinds[i].samples)
		if err != nil {
			return all, err
		}
		all = all.and(k)
	}
	return all, nil
}

// and is what two tables both have.
func (k Kept) and(other Kept) Kept {
	if k.Keep == 0 || other.Keep > 0 && other.Keep < k.Keep {
		k.Keep = other.Keep
	}
	if other.Noted.After(k.Noted) {
		k.Noted = other.Noted
	}
	return k
}

// Since is from when on every row is there at a moment; zero if it always was.
func (k Kept) Since(now time.Time) time.Time {
	var since time.Time
	if k.Keep > 0 {
		since = now.UTC().Add(-k.Keep)
	}
	if k.Noted.Unix() > 0 && k.Noted.After(since) {
		since = k.Noted.UTC()
	}
	return since
}

// FirstWholeHour is the beginning of the oldest hour that is whole at a moment;
// zero if all are. Tiers do not recompute older hours: some of their raw samples
// may be gone.
func (k Kept) FirstWholeHour(now time.Time) time.Time {
	since := k.Since(now)
	if since.IsZero() {
		return since
	}
	if since.Equal(k.Noted.UTC()) {
		return since.Add(time.Hour - 1).Truncate(time.Hour)
	}
	first := since.Truncate(time.Hour).Add(time.Hour)
	if first.Unix() < 0 {
		return time.Unix(0, 0).UTC()
	}
	return first
}

// frozenAt is when FirstWholeHour reaches the end of the hour that a moment lies
// in or ends: late samples of that hour can be added from then on. It is now or
// later; zero if it never does.
func (k Kept) frozenAt(now, moment time.Time) time.Time {
	end := moment.UTC().Add(time.Hour - 1).Truncate(time.Hour)
	switch {
	case !end.After(k.FirstWholeHour(now)):
		return now.UTC()
	case k.Keep == 0:
		return time.Time{}
	}
	return end.Add(k.Keep - time.Hour)
}

// LateBefore is the hour before which samples are late when they are stored:
// the tiers leave it alone, or will before they have taken up what is written
// now; an hour is time enough for that.
func (k Kept) LateBefore(now time.Time) time.Time {
	late := k.FirstWholeHour(now)
	if k.Keep == 0 {
		return late
	}
	if going := (Kept{Keep: k.Keep}).FirstWholeHour(now).Add(time.Hour); going.After(late) {
		return going
	}
	return late
}

// OldestRatable is the begin of the first period from which on the tiers have
// all usage for sure, and how far back that is; zero where nothing expires. What
// a period reads is said by the metric set in force for it: one metric that
// names a tier of five minutes has a period's usage go with that tier.
func (s *Store) OldestRatable(ctx context.Context, now time.Time, period time.Duration) (time.Time, time.Duration, error) {
	versions, err := s.Versions(ctx, MetricVersions)
	if err != nil {
		return time.Time{}, 0, err
	}
	if len(versions) == 0 {
		versions = []Version{{Body: string(metric.Default()), ValidTo: OpenEnd}}
	}
	kept := map[string]time.Time{} // since when, by table
	var oldest time.Time
	var keep time.Duration
	for _, span := range PeriodSpans(versions, time.Unix(0, 0).UTC(), now.UTC(), period) {
		if span.Version == nil {
			continue // nothing is rated there
		}
		since, err := s.usageSince(ctx, span.Version, now, period, kept)
		if err != nil {
			return time.Time{}, 0, err
		}
		if since.IsZero() {
			continue
		}
		until := ratebatch.BeginFrom(since, period)
		if span.End.Before(until) {
			until = span.End
		}
		if span.Begin.Before(until) && until.After(oldest) {
			oldest, keep = until, now.UTC().Sub(since)
		}
	}
	return oldest, keep, nil
}

// UsageSince is the begin of the first period from which on the tiers that a
// metric set reads have all usage for sure; zero where nothing expires.
func (s *Store) UsageSince(ctx context.Context, v Version, now time.Time, period time.Duration) (time.Time, error) {
	since, err := s.usageSince(ctx, &v, now, period, map[string]time.Time{})
	if err != nil || since.IsZero() {
		return time.Time{}, err
	}
	return ratebatch.BeginFrom(since, period), nil
}

// usageSince is from when on the tiers that a metric set reads have all their
// rows; zero if nothing goes.
func (s *Store) usageSince(ctx context.Context, v *Version, now time.Time, period time.Duration, kept map[string]time.Time) (time.Time, error) {
	set, err := metric.Parse(fmt.Sprintf("metric set %d", v.Version), []byte(v.Body))
	if err != nil {
		return time.Time{}, err
	}
	var latest time.Time
	for _, m := range set.Metrics {
		if !m.Tiered() {
			continue // an operator's own table: how long it keeps usage is theirs to know
		}
		for _, table := range m.Tables(period) {
			since, known := kept[table]
			if !known {
				if since, err = s.KeptSince(ctx, table, now); err != nil {
					return time.Time{}, err
				}
				kept[table] = since
			}
			if since.After(latest) {
				latest = since
			}
		}
	}
	return latest, nil
}
