package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// ScopeUsage says that a scope has usage in a region, and from when on.
type ScopeUsage struct {
	Scope, Region string
	FirstUsage    time.Time
}

// UsageTable is a table with usage: which column says whose it is, where and
// when.
type UsageTable struct {
	Table, Scope, Region, Time string
	Tier                       bool // one of our own tiers, which say when a row was refreshed
}

// rows is the SELECT of scope, region, bucket and, of tiers, refreshed_at.
func (t UsageTable) rows(refreshedSince bool) string {
	text := func(column string) string {
		if t.Tier {
			return "toString(" + sqltext.Name(column) + ")"
		}
		return "ifNull(toString(" + sqltext.Name(column) + "), '')" // an operator's column may hold NULL: nobody's, as package metric says
	}
	scope, region := text(t.Scope), "''"
	if t.Region != "" {
		region = text(t.Region)
	}
	parts := strings.Split(t.Table, ".")
	for i := range parts {
		parts[i] = sqltext.Name(parts[i])
	}
	rows := fmt.Sprintf("SELECT if(%[1]s = '', 'unattributed', %[1]s) AS scope, %[2]s AS region, toDateTime(%[3]s, 'UTC') AS bucket", scope, region, sqltext.Name(t.Time))
	if refreshedSince {
		return rows + ", refreshed_at FROM " + strings.Join(parts, ".") + " WHERE refreshed_at >= toDateTime({since:DateTime64(6, 'UTC')}, 'UTC')"
	}
	return rows + " FROM " + strings.Join(parts, ".")
}

func usageRows(tables []UsageTable, refreshedSince bool) string {
	var all []string
	for _, t := range tables {
		if t.Tier || !refreshedSince {
			all = append(all, t.rows(refreshedSince))
		}
	}
	return strings.Join(all, " UNION ALL ")
}

// ScopeUsages lists the scopes that have usage at or after since.
func (s *Store) ScopeUsages(ctx context.Context, tables []UsageTable, since time.Time) ([]ScopeUsage, error) {
	var out []ScopeUsage
	text := strings.ReplaceAll(SQL("usage_scopes"), "/* ROWS */", usageRows(tables, false))
	err := s.each(WithParams(ctx, Params{"since": since}), "usage_scopes", text, func(rows driver.Rows) error {
		var u ScopeUsage
		err := rows.Scan(&u.Scope, &u.Region, &u.FirstUsage)
		out = append(out, u)
		return err
	})
	return out, err
}

// TierRows estimates the usage rows of each day from the sizes of the hourly
// tiers and how many metrics read each: metrics by table. Tables other than
// tiers are not counted. Shorter periods have as many more usage rows as there
// are of them in an hour.
func (s *Store) TierRows(ctx context.Context, metrics map[string]int, period time.Duration, from, to time.Time) (map[time.Time]uint64, error) {
	out := map[time.Time]uint64{}
	rows, err := s.Rows(ctx, "tier_rows", Params{"from": from.UTC().Format(time.DateOnly), "to": to.UTC().Format(time.DateOnly)})
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var day time.Time
		var tier string
		var held uint64
		if err := rows.Scan(&day, &tier, &held); err != nil {
			return nil, err
		}
		for table, n := range metrics {
			if strings.TrimSuffix(strings.TrimSuffix(table, "_hourly"), "_5min") == strings.TrimSuffix(tier, "_hourly") {
				out[day.UTC()] += held * uint64(n) * uint64(max(1, time.Hour/period))
			}
		}
	}
	return out, rows.Err()
}

// CheckUsage has the server resolve a metric's usage query without running it.
func (s *Store) CheckUsage(ctx context.Context, metric, usage string) error {
	ctx = WithParams(ctx, Params{"from": time.Unix(0, 0), "to": time.Unix(0, 0)})
	err := s.conn.Exec(ctx, "EXPLAIN "+usage)
	if IsCode(err, codeUnknownIdentifier) || IsCode(err, codeUnknownTable) || IsCode(err, codeUnknownDatabase) || IsCode(err, codeNoSuchColumn) {
		return &ratebatch.ConfigError{Err: fmt.Errorf("metric %s names a table or column that is not there: %s", metric, ShortException(err)), Hint: "correct metrics.yaml and run 'ratebatch metrics apply FILE'"}
	}
	if err != nil {
		return fmt.Errorf("metric %s: %w", metric, describe(err))
	}
	return nil
}

// OldestRatable is the begin of the oldest period whose usage its tier keeps
// for sure, and for how long the tier keeps it; zero if it has no TTL.
func (s *Store) OldestRatable(ctx context.Context, now time.Time, period time.Duration) (time.Time, time.Duration, error) {
	tier := "instance_metrics_hourly"
	if period%time.Hour != 0 {
		tier = "instance_metrics_5min"
	}
	keep, err := s.TierRetention(ctx, tier)
	if err != nil || keep == 0 {
		return time.Time{}, 0, err
	}
	edge := now.Add(-keep)
	oldest := ratebatch.PeriodAt(edge, period)
	if oldest.Begin.Before(edge) {
		oldest = oldest.Next()
	}
	return oldest.Begin, keep, nil
}
