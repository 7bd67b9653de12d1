package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// NotePlainMonths notes, of those of the months (first instants, UTC) of which
// every rated line counts, that it does, so that readers of the view rated need
// not look at their commits. A month that is noted and has not changed costs
// nothing; the others cost about as much as reading two narrow columns of their
// lines and commits. It is a hint: what it leaves out is only read more slowly.
func (s *Store) NotePlainMonths(ctx context.Context, months []time.Time) error {
	if len(months) == 0 {
		return nil
	}
	plain, err := s.PlainMonths(ctx)
	if err != nil {
		return err
	}
	for _, m := range months {
		if plain[m.UTC().Format("200601")] {
			continue
		}
		since, err := s.Now(ctx)
		if err != nil {
			return err
		}
		if err := s.Exec(ctx, "note_plain_month", Params{"month": m.UTC().Format("200601"), "since": since}); err != nil {
			return fmt.Errorf("month %s: %w", m.UTC().Format("2006-01"), err)
		}
	}
	return nil
}

// PlainMonths are the months, as 202611, of which every rated line counts and
// is noted to.
func (s *Store) PlainMonths(ctx context.Context) (map[string]bool, error) {
	list, err := Collect(ctx, s, "plain_now", nil, func(rows driver.Rows) (uint32, error) {
		var month uint32
		err := rows.Scan(&month)
		return month, err
	})
	out := make(map[string]bool, len(list))
	for _, m := range list {
		out[strconv.FormatUint(uint64(m), 10)] = true
	}
	return out, err
}
