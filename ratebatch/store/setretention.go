package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// retained are the tables whose rows go by their own time, the column that says
// it, and which part of the retention holds.
var retained = []struct {
	table, column string
	keep          func(Retention) time.Duration
}{
	{"port_samples", "toDateTime(ts)", rawKeep}, {"instance_samples", "toDateTime(ts)", rawKeep}, {"disk_samples", "toDateTime(ts)", rawKeep},
	{"port_volume_5min", "bucket", fiveMinKeep}, {"instance_metrics_5min", "bucket", fiveMinKeep}, {"disk_metrics_5min", "bucket", fiveMinKeep},
	{"port_volume_hourly", "bucket", hourlyKeep}, {"instance_metrics_hourly", "bucket", hourlyKeep}, {"disk_metrics_hourly", "bucket", hourlyKeep},
	// What was noted about an hour is needed as long as the hour's rows: without
	// its base a row that late samples were added to would be taken for one.
	{"tier_bases", "bucket", hourlyKeep}, {"ingest_sequences", "hour", hourlyKeep}, {"ingest_ranges", "hour", hourlyKeep},
}

func rawKeep(r Retention) time.Duration     { return r.Raw }
func fiveMinKeep(r Retention) time.Duration { return r.FiveMin }
func hourlyKeep(r Retention) time.Duration  { return r.Hourly }

// notes are the tables that say what rows of the tiers are made of.
var notes = []string{"tier_bases", "ingest_sequences", "ingest_ranges"}

func (s *Store) setRetention(ctx context.Context, o MigrateOptions) error {
	for _, t := range retained {
		if t.keep(o.Retention) == 0 {
			continue // not given: it stays as it is
		}
		if err := s.retain(ctx, o, t.table, t.column, t.keep(o.Retention)); err != nil {
			return err
		}
	}
	return nil
}

// retain changes a table's TTL. Making it longer brings nothing back, which is
// noted first; nothing is where there was no usage yet.
func (s *Store) retain(ctx context.Context, o MigrateOptions, table, column string, keep time.Duration) error {
	old, err := s.TierRetention(ctx, table)
	if err != nil && ratebatch.ExitCode(err) != ratebatch.ExitConfig {
		return err
	}
	// A TTL that says nothing about a bucket is replaced by one that does; what it
	// took away nobody can tell.
	longer := err == nil && old > 0 && (keep > old || keep == 0)
	if longer {
		if err := s.Row(ctx, "holds_usage", nil, &longer); err != nil {
			return err
		}
	}
	if longer {
		reason := fmt.Sprintf("kept for %s instead of %s", keep, old)
		if err := s.noteKeptSince(ctx, table, old, reason); err != nil {
			return err
		}
	}
	name := table
	if o.Cluster != "" {
		name = table + "_local" + o.onCluster()
	}
	change := fmt.Sprintf(" MODIFY TTL %s + INTERVAL %d SECOND SETTINGS materialize_ttl_after_modify = 0", column, int64(keep/time.Second))
	if keep == 0 {
		change = " REMOVE TTL"
	}
	if err := s.conn.Exec(ctx, "ALTER TABLE "+name+change); err != nil {
		return fmt.Errorf("retention of %s: %w", table, describe(err))
	}
	return nil
}

func (s *Store) noteKeptSince(ctx context.Context, table string, ago time.Duration, reason string) error {
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	since := now.Add(-ago).Truncate(time.Second).Add(time.Second)
	if since.Unix() < 0 {
		return nil
	}
	return s.Exec(ctx, "note_kept_since", Params{"table": table, "since": since, "reason": reason})
}

// keepNotesAsLong lengthens the retention of notes about the tiers' rows to that
// of the rows: an operator may have changed those by hand, and versions before
// this one changed only those.
func (s *Store) keepNotesAsLong(ctx context.Context, o MigrateOptions) error {
	var longest time.Duration
	for _, t := range retained {
		if slices.Contains(notes, t.table) {
			keep, err := s.TierRetention(ctx, t.table)
			if err != nil {
				return err
			}
			if keep > 0 && (longest == 0 || keep < longest) {
				if err := s.retain(ctx, o, t.table, t.column, longest); err != nil {
					return err
				}
			}
			continue
		}
		if t.column != "bucket" {
			continue
		}
		keep, err := s.TierRetention(ctx, t.table)
		if err != nil {
			return err
		}
		if keep == 0 {
			keep = maxRetention
		}
		longest = max(longest, keep)
	}
	return nil
}

// noteLostRaw notes, before tables of raw samples are made anew, up to when the
// tiers hold rows: whatever comes now of those hours is not all of them. It makes
// the table that it is noted in if that is not there yet.
func (s *Store) noteLostRaw(ctx context.Context, migrations []Migration, there map[string]string, applied map[int]migrationRecord) error {
	var lost []string
	for i := range migrations {
		m := &migrations[i]
		_, done := applied[m.Version]
		if _, isThere := there[m.Table]; done && !isThere && !m.view && m.remakes() {
			lost = append(lost, m.Table)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	at := slices.IndexFunc(migrations, func(m Migration) bool { return m.Table == "kept_since" })
	for _, statement := range migrations[at].Statements {
		if err := s.conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("migration %s: %w", migrations[at].Name, describe(err))
		}
	}
	var end time.Time
	if err := s.Row(ctx, "last_tier_hour", nil, &end); err != nil {
		return err
	}
	if end.Unix() == 0 {
		return nil
	}
	for _, table := range lost {
		if err := s.Exec(ctx, "note_kept_since", Params{"table": table, "since": end, "reason": "raw samples were made anew"}); err != nil {
			return err
		}
	}
	return nil
}
