package store

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// Version is one applied rate plan or metric set: immutable, and in force for
// periods that begin in [ValidFrom, ValidTo).
type Version struct {
	Version   uint32    `json:"version"`
	Digest    string    `json:"digest"`
	Body      string    `json:"-"` // the file as it was applied
	Currency  string    `json:"currency,omitempty"`
	Author    string    `json:"author"`
	Note      string    `json:"note"`
	ValidFrom time.Time `json:"valid_from"`
	ValidTo   time.Time `json:"valid_to"` // OpenEnd when open
	AppliedAt time.Time `json:"applied_at"`
}

// OpenEnd stands for "no end": the last moment that a DateTime holds.
var OpenEnd = time.Date(2106, 2, 7, 6, 28, 15, 0, time.UTC)

// VersionKind says which table versions live in.
type VersionKind string

// The two kinds of versions.
const (
	PlanVersions   VersionKind = "rate_plans"
	MetricVersions VersionKind = "metric_sets"
)

// Versions lists every applied version, oldest first.
func (s *Store) Versions(ctx context.Context, kind VersionKind) ([]Version, error) {
	return Collect(ctx, s, "list_"+string(kind), nil, func(rows driver.Rows) (Version, error) {
		var v Version
		err := rows.Scan(&v.Version, &v.Digest, &v.Body, &v.Currency, &v.Author, &v.Note, &v.ValidFrom, &v.ValidTo, &v.AppliedAt)
		return v, err
	})
}

// AddVersion stores v as the next version and returns it as stored: its number is
// one more than the highest so far. The row goes as data and not as parameters,
// which over HTTP are a part of the address: a plan may have megabytes.
func (s *Store) AddVersion(ctx context.Context, kind VersionKind, v Version) (Version, error) {
	if v.ValidTo.IsZero() {
		v.ValidTo = OpenEnd
	}
	before, err := s.Versions(ctx, kind)
	if err != nil {
		return v, err
	}
	next := uint32(1)
	for _, stored := range before {
		next = max(next, stored.Version+1)
	}
	batch, err := s.conn.PrepareBatch(Settings(ctx, map[string]any{"async_insert": 0}),
		"INSERT INTO "+string(kind)+" (version, digest, body, currency, author, note, valid_from, valid_to)")
	if err == nil {
		defer batch.Close() //nolint:errcheck // after Send it has nothing to say, before it the first error counts
		err = batch.Append(next, v.Digest, v.Body, v.Currency, v.Author, v.Note, v.ValidFrom, v.ValidTo)
	}
	if err == nil {
		err = batch.Send()
	}
	if err != nil {
		return v, fmt.Errorf("insert %s: %w", kind, describe(err))
	}
	all, err := s.Versions(ctx, kind)
	if err != nil {
		return v, err
	}
	for _, stored := range all {
		if stored.Digest == v.Digest && stored.ValidFrom.Equal(v.ValidFrom) {
			v = stored
		}
	}
	if v.Version == 0 {
		return v, fmt.Errorf("%s: the new version is not there after it was stored", kind)
	}
	return v, nil
}

// Span is a stretch of time in which one version is in force, or none.
type Span struct {
	Begin, End time.Time
	Version    *Version // nil: none
}

// InForce cuts [begin, end) where the version in force changes. Of versions
// that overlap the one applied last counts.
func InForce(versions []Version, begin, end time.Time) []Span {
	var spans []Span
	for at := begin; at.Before(end); {
		current, until := versionAt(versions, at, end)
		if n := len(spans); n > 0 && spans[n-1].Version == current {
			spans[n-1].End = until
		} else {
			spans = append(spans, Span{at, until, current})
		}
		at = until
	}
	return spans
}

// PeriodSpans cuts [begin, end) into the stretches whose periods are rated by one
// version each, or by none. A period is rated by what is in force at its begin:
// a change inside a period counts from the next one on.
func PeriodSpans(versions []Version, begin, end time.Time, period time.Duration) []Span {
	var out []Span
	for _, s := range InForce(versions, begin, end) {
		s.Begin, s.End = ratebatch.BeginFrom(s.Begin, period), ratebatch.BeginFrom(s.End, period)
		switch n := len(out); {
		case !s.Begin.Before(s.End): // no period begins in it
		case n > 0 && out[n-1].Version == s.Version:
			out[n-1].End = s.End
		default:
			out = append(out, s)
		}
	}
	return out
}

// versionAt finds the version in force at a moment and the next moment, at
// most end, at which that may change.
func versionAt(versions []Version, at, end time.Time) (*Version, time.Time) {
	var current *Version
	until := end
	for i := range versions {
		v := &versions[i]
		if !v.ValidFrom.After(at) && at.Before(v.ValidTo) {
			current = v // applied later than those before it
		}
		for _, edge := range []time.Time{v.ValidFrom, v.ValidTo} {
			if edge.After(at) && edge.Before(until) {
				until = edge
			}
		}
	}
	return current, until
}

// OutdatedBy counts the rated periods in the version's validity that were
// priced by another version.
func (s *Store) OutdatedBy(ctx context.Context, kind VersionKind, v Version) (uint64, error) {
	var n uint64
	err := s.Row(ctx, "outdated_by_"+string(kind), Params{"digest": v.Digest, "from": v.ValidFrom, "to": v.ValidTo}, &n)
	return n, err
}
