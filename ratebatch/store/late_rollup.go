package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// lateText is the tier's statement over late samples instead of raw ones,
// without its last condition: rows that the tier holds already are wanted here.
func (k *tierKind) lateText() string {
	text, _, _ := strings.Cut(SQL("tier_"+k.name), "\nWHERE sipHash128(")
	return strings.ReplaceAll(text, "FROM "+k.samples+" FINAL", "FROM ("+SQL("late_"+k.name)+")")
}

// RollupLate adds late samples to the buckets that begin in [from, to) and that
// the raw tier no longer keeps whole: there the tiers are not recomputed any
// more. Each row that it touches is kept as it was before, and what all late
// samples give is added to that, so it may be repeated and interrupted, and
// samples that come later still are added by the next time. It refuses hours of
// which that may have been forgotten, and returns up to where it went.
func (s *Store) RollupLate(ctx context.Context, from, to time.Time) (time.Time, error) {
	var now time.Time
	if err := s.Row(ctx, "server_time", nil, &now); err != nil {
		return to, err
	}
	// Which sequences were stored has to be known up to now.
	if err := s.CountIngested(ctx); err != nil {
		return to, err
	}
	kept, err := s.RawKept(ctx)
	if err != nil {
		return to, err
	}
	frozen := kept.FirstWholeHour(now)
	from = from.UTC().Truncate(time.Hour)
	if to.After(frozen) || to.IsZero() {
		to = frozen
	}
	if !from.Before(to) {
		return to, nil
	}
	if err := s.checkLateNotes(ctx, now, from, to); err != nil {
		return to, err
	}
	for i := range tierKinds {
		kind := &tierKinds[i]
		late := kind.lateText()
		for tier, width := range tierWidths {
			table := kind.tiers[tier]
			params := Params{"tier": table, "target": table, "width": width, "from": from, "to": to, "reach": uint32(100_000_000), "all": true, "since": time.Unix(0, 0)}
			run := func(name, head string) error {
				text := head + strings.ReplaceAll(SQL(name), "/* LATE */", late)
				if err := s.conn.Exec(WithParams(ctx, params), text); err != nil {
					return fmt.Errorf("%s of %s: %w", name, table, describe(err))
				}
				return nil
			}
			if err := run("base_late_"+kind.name, ""); err != nil {
				return to, err
			}
			if err := run("merge_late_"+kind.name, "INSERT INTO "+table+" ("+kind.columns+")\n"); err != nil {
				return to, err
			}
			if width == hour {
				if err := run("count_late_"+kind.name, ""); err != nil {
					return to, err
				}
			}
		}
	}
	return to, nil
}

// checkLateNotes refuses a window with late samples of hours whose notes may
// have expired: a row that late samples were added to before would be taken for
// one that has none, and they would be added a second time.
func (s *Store) checkLateNotes(ctx context.Context, now, from, to time.Time) error {
	kept, err := s.kept(ctx, notes[0])
	if err != nil {
		return err
	}
	for _, table := range notes[1:] {
		k, err := s.kept(ctx, table)
		if err != nil {
			return err
		}
		kept = kept.and(k)
	}
	first := kept.FirstWholeHour(now)
	if !from.Before(first) {
		return nil
	}
	if first.After(to) {
		first = to
	}
	var n uint64
	if err := s.Row(ctx, "late_between", Params{"from": from, "to": first}, &n); err != nil || n == 0 {
		return err
	}
	return &ratebatch.ConfigError{
		Err:  fmt.Errorf("%d late samples lie between %s and %s, where it is no longer known which rows late samples were added to already", n, from.Format(time.RFC3339), first.Format(time.RFC3339)),
		Hint: "begin at " + first.Format(time.RFC3339) + " or later",
	}
}
