package store

import (
	"context"
	"fmt"
	"strings"
	"time"

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

// rows is the SELECT of scope, region, bucket, whether it is a tier's and, of
// tiers, refreshed_at; of tiers only what the condition holds for.
func (t UsageTable) rows(condition string) string {
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
	refreshed := "toDateTime(0, 'UTC')"
	if t.Tier {
		refreshed = "refreshed_at"
	}
	rows := fmt.Sprintf("SELECT if(%[1]s = '', 'unattributed', %[1]s) AS scope, %[2]s AS region, toDateTime(%[3]s, 'UTC') AS bucket, %[4]t AS tier, %[5]s AS refreshed_at FROM %[6]s",
		scope, region, sqltext.Name(t.Time), t.Tier, refreshed, strings.Join(parts, "."))
	if t.Tier {
		rows += " WHERE " + condition
	}
	return rows
}

// tierNames names those of the tables that are tiers of ours.
func tierNames(tables []UsageTable) []string {
	names := []string{}
	for _, t := range tables {
		if t.Tier {
			names = append(names, t.Table)
		}
	}
	return names
}

// usageRows is the usage of all tables.
func usageRows(tables []UsageTable) string {
	var all []string
	for _, t := range tables {
		all = append(all, t.rows("toStartOfMonth("+sqltext.Name(t.Time)+") NOT IN {known:Array(Date)}"))
	}
	return strings.Join(all, " UNION ALL ")
}

// refreshedRows is the usage of the tiers that was refreshed since, in the days
// given or, where none are, in all.
func refreshedRows(tables []UsageTable, days []time.Time) string {
	var all []string
	for _, t := range tables {
		if !t.Tier {
			continue
		}
		condition := "refreshed_at >= toDateTime({since:DateTime64(6, 'UTC')}, 'UTC')"
		if days != nil {
			condition = "toDate(" + sqltext.Name(t.Time) + ") IN {days:Array(Date)} AND " + condition
		}
		all = append(all, t.rows(condition))
	}
	return strings.Join(all, " UNION ALL ")
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
