package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/shopspring/decimal"
)

// Line is one rated line as the Go path writes it. Attributes are written with
// their names sorted.
type Line struct {
	Region, Scope    string
	Begin            time.Time
	Metric, Resource string
	Attributes       map[string]string
	Unit             string
	Qty, Price       decimal.Decimal
	Rule, Bucket     string
	Part             uint16
	Revision         uint32
}

// InsertGoLines writes lines that were priced in Go, as one block with a
// deduplication token.
func (s *Store) InsertGoLines(ctx context.Context, p Pass, lines []Line, token string) error {
	ctx = Settings(ctx, map[string]any{"insert_deduplication_token": token, "insert_deduplicate": 1})
	batch, err := s.conn.PrepareBatch(ctx, "INSERT INTO rated_lines (run_id, region, scope, begin, end, metric, resource, attributes, unit, qty, price, rule, bucket, part, revision)")
	if err != nil {
		return fmt.Errorf("insert lines priced in Go: %w", describe(err))
	}
	for _, l := range lines {
		err := batch.Append(p.ID, l.Region, l.Scope, l.Begin, l.Begin.Add(p.Period), l.Metric, l.Resource, sortedMap(l.Attributes), l.Unit, l.Qty, l.Price, l.Rule, l.Bucket, l.Part, l.Revision)
		if err != nil {
			return fmt.Errorf("insert lines priced in Go: %w", err)
		}
	}
	if err := batch.Send(); err != nil {
		return fmt.Errorf("insert lines priced in Go: %w", describe(err))
	}
	return nil
}

// sortedMap is a map column's value with its keys in order, which Go's own
// maps do not keep.
func sortedMap(m map[string]string) *orderedMap {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return &orderedMap{keys: keys, values: m}
}

// orderedMap implements clickhouse-go's column.OrderedMap.
type orderedMap struct {
	keys   []string
	values map[string]string
}

// Get returns the value of a key.
func (m *orderedMap) Get(key any) (any, bool) {
	v, ok := m.values[key.(string)]
	return v, ok
}

// Put adds a key at the end.
func (m *orderedMap) Put(key, value any) {
	k := key.(string)
	if _, ok := m.values[k]; !ok {
		m.keys = append(m.keys, k)
	}
	m.values[k] = value.(string)
}

// Keys yields the keys in order.
func (m *orderedMap) Keys() <-chan any {
	out := make(chan any, len(m.keys))
	for _, k := range m.keys {
		out <- k
	}
	close(out)
	return out
}
