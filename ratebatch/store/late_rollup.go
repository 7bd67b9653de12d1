package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// lateText is the tier's statement over late samples instead of raw ones,
// without its last condition: rows that the tier holds already are wanted here.
func (k *tierKind) lateText() string {
	text, _, _ := strings.Cut(SQL("tier_"+k.name), "\nWHERE sipHash128(")
	return strings.ReplaceAll(text, "FROM "+k.samples+" FINAL", "FROM ("+judged("late_"+k.name)+")")
}

// judged is a query over late_judged.
func judged(name string) string {
	return strings.ReplaceAll(SQL(name), "/* JUDGED */", SQL("late_judged"))
}

// LateRollup says what became of the late samples of a window.
type LateRollup struct {
	From    time.Time    `json:"from"`
	To      time.Time    `json:"to"`                  // hours from here on are whole in the raw tier
	Added   uint64       `json:"added"`               // the tiers have them now, by whichever run
	Partly  uint64       `json:"added_in_part"`       // they end after To: of them the tiers have what lies before
	Rest    *time.Time   `json:"rest_from,omitempty"` // when the rest of those can be added; nil: Partly is 0, or never by itself
	Earlier uint64       `json:"begin_before_from"`   // of all those, how many begin before From: of them the hours before it were not looked at
	Again   uint64       `json:"came_again"`          // were stored in time and came again: left out
	Untold  uint64       `json:"cannot_be_told"`      // may have been stored in time: left out
	Details []UntoldLate `json:"details,omitempty"`   // of those, the first hundred
}

// UntoldLate are late samples of which nobody can tell whether they were stored
// in time.
type UntoldLate struct {
	Region  string    `json:"region"`
	Host    string    `json:"host"`
	Hour    time.Time `json:"hour"`
	Samples uint64    `json:"samples"`
}

// RollupLate adds late samples to the buckets that begin in [from, to) and that
// the raw tier no longer keeps whole: there the tiers are not recomputed any
// more. Each row that it touches is kept as it was before, and what all late
// samples give is added to that, so it may be repeated and interrupted, and
// samples that come later still are added by the next time. It refuses hours of
// which that may have been forgotten.
func (s *Store) RollupLate(ctx context.Context, from, to time.Time) (LateRollup, error) {
	result := LateRollup{From: from.UTC().Truncate(time.Hour), To: to}
	var now time.Time
	if err := s.Row(ctx, "server_time", nil, &now); err != nil {
		return result, err
	}
	// Which sequences were stored has to be known up to now.
	if err := s.CountIngested(ctx); err != nil {
		return result, err
	}
	kept, err := s.RawKept(ctx)
	if err != nil {
		return result, err
	}
	if frozen := kept.FirstWholeHour(now); to.IsZero() || to.After(frozen) {
		result.To = frozen
	}
	from, to = result.From, result.To
	if !from.Before(to) {
		return result, nil
	}
	if err := s.checkLateNotes(ctx, now, from, to); err != nil {
		return result, err
	}
	window := Params{"from": from, "to": to}
	var last time.Time
	err = s.each(WithParams(ctx, window), "late_verdicts", judged("late_verdicts"), func(rows driver.Rows) error {
		return rows.Scan(&result.Added, &result.Partly, &last, &result.Earlier, &result.Again, &result.Untold)
	})
	if err != nil {
		return result, err
	}
	if result.Partly > 0 {
		if at := kept.frozenAt(now, last); !at.IsZero() {
			result.Rest = &at
		}
	}
	if result.Untold > 0 {
		err := s.each(WithParams(ctx, window), "late_untold", judged("late_untold"), func(rows driver.Rows) error {
			var x UntoldLate
			err := rows.Scan(&x.Region, &x.Host, &x.Hour, &x.Samples)
			result.Details = append(result.Details, x)
			return err
		})
		if err != nil {
			return result, err
		}
	}
	for i := range tierKinds {
		if err := s.addLate(ctx, &tierKinds[i], from, to); err != nil {
			return result, err
		}
	}
	return result, nil
}

// addLate adds the late samples of a kind to its tiers.
func (s *Store) addLate(ctx context.Context, kind *tierKind, from, to time.Time) error {
	late := kind.lateText()
	for tier, width := range tierWidths {
		table := kind.tiers[tier]
		params := Params{"tier": table, "target": table, "width": width, "from": from, "to": to, "reach": uint32(100_000_000), "all": true, "since": time.Unix(0, 0)}
		steps := [][2]string{{"base_late_" + kind.name, ""}, {"merge_late_" + kind.name, "INSERT INTO " + table + " (" + kind.columns + ")\n"}}
		if width == hour {
			steps = append(steps, [2]string{"count_late_" + kind.name, ""})
		}
		for _, step := range steps {
			text := step[1] + strings.ReplaceAll(SQL(step[0]), "/* LATE */", late)
			if err := s.conn.Exec(WithParams(ctx, params), text); err != nil {
				return fmt.Errorf("%s of %s: %w", step[0], table, describe(err))
			}
		}
	}
	return nil
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
