package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// UsageMonth is who has usage in a month of the tiers, as the parts were that
// held it: what usage_months keeps of a month that is over.
type UsageMonth struct {
	Month  time.Time // its first day, UTC
	Usages []ScopeUsage

	tables []string
	source string
	state  uint64
}

// ScopeUsages lists the scopes that have usage at or after since, in order.
func (s *Store) ScopeUsages(ctx context.Context, tables []UsageTable, since time.Time) ([]ScopeUsage, error) {
	usages, _, err := s.UsageByMonth(ctx, tables, since)
	return usages, err
}

// UsageByMonth is ScopeUsages with, of each whole month that had to be read from
// the tiers, what NoteUsageMonths may keep of it.
//
// Tables that are not ours are read each time: they may be views.
func (s *Store) UsageByMonth(ctx context.Context, tables []UsageTable, since time.Time) ([]ScopeUsage, []UsageMonth, error) {
	months, known, err := s.usageMonths(ctx, tables)
	if err != nil {
		return nil, nil, err
	}
	first := map[[2]string]time.Time{}
	add := func(u ScopeUsage) {
		key := [2]string{u.Scope, u.Region}
		if at, ok := first[key]; !ok || u.FirstUsage.Before(at) {
			first[key] = u.FirstUsage
		}
	}
	skip := []time.Time{}
	for month := range known {
		if !month.Before(since) {
			skip = append(skip, month)
			for _, u := range known[month].Usages {
				add(u)
			}
		}
	}
	text := strings.ReplaceAll(SQL("usage_scopes"), "/* ROWS */", usageRows(tables))
	err = s.each(WithParams(ctx, Params{"since": since, "known": dates(skip)}), "usage_scopes", text, func(rows driver.Rows) error {
		var month time.Time
		var tier bool
		var u ScopeUsage
		if err := rows.Scan(&month, &tier, &u.Scope, &u.Region, &u.FirstUsage); err != nil {
			return err
		}
		if m := months[month.UTC()]; tier && m != nil {
			m.Usages = append(m.Usages, u)
		}
		add(u)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	usages := make([]ScopeUsage, 0, len(first))
	for key, at := range first {
		usages = append(usages, ScopeUsage{Scope: key[0], Region: key[1], FirstUsage: at})
	}
	slices.SortFunc(usages, func(a, b ScopeUsage) int {
		return cmp.Or(strings.Compare(a.Scope, b.Scope), strings.Compare(a.Region, b.Region))
	})
	var read []UsageMonth
	for month, m := range months {
		if known[month] == nil && !month.Before(since) {
			read = append(read, *m)
		}
	}
	return usages, read, nil
}

// usageMonths gives each month of the tiers with its state, and those that are
// known in this state.
func (s *Store) usageMonths(ctx context.Context, tables []UsageTable) (months, known map[time.Time]*UsageMonth, err error) {
	months, known = map[time.Time]*UsageMonth{}, map[time.Time]*UsageMonth{}
	names := tierNames(tables)
	if len(names) == 0 {
		return months, known, nil
	}
	hash := sha256.New()
	for _, t := range tables {
		if t.Tier {
			fmt.Fprintln(hash, t.rows(""))
		}
	}
	source := hex.EncodeToString(hash.Sum(nil))
	rows, err := s.Rows(ctx, "usage_months", Params{"tables": names, "source": source})
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		m := UsageMonth{tables: names, source: source}
		var found bool
		var scopes, regions []string
		var firsts []time.Time
		if err := rows.Scan(&m.Month, &m.state, &found, &scopes, &regions, &firsts); err != nil {
			return nil, nil, err
		}
		m.Month = m.Month.UTC()
		months[m.Month] = &UsageMonth{Month: m.Month, tables: names, source: source, state: m.state}
		if found && len(scopes) == len(regions) && len(scopes) == len(firsts) {
			for i := range scopes {
				m.Usages = append(m.Usages, ScopeUsage{Scope: scopes[i], Region: regions[i], FirstUsage: firsts[i]})
			}
			known[m.Month] = &m
		}
	}
	return months, known, describe(rows.Err())
}

// NoteUsageMonths keeps what was read of the months that ended by then, where
// their parts are the same as before they were read.
func (s *Store) NoteUsageMonths(ctx context.Context, read []UsageMonth, ended time.Time) error {
	read = slices.DeleteFunc(slices.Clone(read), func(m UsageMonth) bool { return m.Month.AddDate(0, 1, 0).After(ended) })
	if len(read) == 0 {
		return nil
	}
	tables := make([]UsageTable, 0, len(read[0].tables))
	for _, name := range read[0].tables {
		tables = append(tables, UsageTable{Table: name, Tier: true})
	}
	now, _, err := s.usageMonths(ctx, tables)
	if err != nil {
		return err
	}
	batch, err := s.conn.PrepareBatch(Settings(ctx, map[string]any{"async_insert": 0}), "INSERT INTO usage_months (source, month, state, scopes, regions, firsts)")
	if err != nil {
		return fmt.Errorf("insert usage months: %w", describe(err))
	}
	for _, m := range read {
		if at := now[m.Month]; at == nil || at.state != m.state {
			continue // it changed meanwhile: the next run reads it again
		}
		var scopes, regions []string
		var firsts []time.Time
		for _, u := range m.Usages {
			scopes, regions, firsts = append(scopes, u.Scope), append(regions, u.Region), append(firsts, u.FirstUsage)
		}
		if err := batch.Append(m.source, m.Month, m.state, scopes, regions, firsts); err != nil {
			return fmt.Errorf("insert usage months: %w", err)
		}
	}
	if err := batch.Send(); err != nil {
		return fmt.Errorf("insert usage months: %w", describe(err))
	}
	return nil
}
