package store

import (
	"context"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// DueScopeCount counts the scopes with due periods in their windows.
func (s *Store) DueScopeCount(ctx context.Context, windows []DueWindow, period time.Duration, from, to time.Time) (int, error) {
	if len(windows) == 0 {
		return 0, nil
	}
	var n uint64
	ctx = WithParams(ctx, Params{"period": int64(period / time.Second), "from": from, "to": to})
	err := s.each(ctx, "due_scope_count", withScopes(SQL("due_scope_count"), windows), func(rows driver.Rows) error { return rows.Scan(&n) })
	return int(n), err
}

// BeforeFirst is usage of a scope before its first period, by name and size.
type BeforeFirst struct {
	Scope   string    `json:"scope"`
	Rows    uint64    `json:"usage_rows"`
	Periods uint64    `json:"periods"`
	From    time.Time `json:"from"` // begin of the first period with such usage
	To      time.Time `json:"to"`   // begin of the last one
	First   time.Time `json:"first_period"`
}

// BeforeFirst sizes the usage in the windows that no commit is of; usage is a
// SELECT by package metric.
func (s *Store) BeforeFirst(ctx context.Context, windows []DueWindow, usage string, period time.Duration, from, to time.Time) ([]BeforeFirst, error) {
	if len(windows) == 0 {
		return nil, nil
	}
	var out []BeforeFirst
	text := strings.ReplaceAll(withScopes(SQL("before_first"), windows), "/* USAGE */", usage)
	ctx = WithParams(ctx, Params{"period": int64(period / time.Second), "from": from, "to": to})
	err := s.each(ctx, "before_first", text, func(rows driver.Rows) error {
		var x BeforeFirst
		err := rows.Scan(&x.Scope, &x.Rows, &x.Periods, &x.From, &x.To)
		x.From, x.To = x.From.UTC(), x.To.UTC()
		out = append(out, x)
		return err
	})
	return out, err
}
