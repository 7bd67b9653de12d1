package metric

import "fmt"

// TierColumns gives the catalogue of a family with ClickHouse's type names.
func TierColumns(name string) map[string]string {
	f, _ := tierOf(name)
	out := map[string]string{}
	for column, c := range f.columns {
		out[column] = c.clickhouse()
	}
	return out
}

// TierKey is the sort key of a family without bucket.
func TierKey(name string) []string {
	f, _ := tierOf(name)
	return f.key
}

func (c column) clickhouse() string {
	switch c.kind {
	case lowText:
		return "LowCardinality(String)"
	case text:
		return "String"
	case uuid:
		return "UUID"
	case fixed:
		digits := map[int]int{4: 9, 16: 38}[c.width]
		if c.scale == 2 {
			digits = 5
		}
		return fmt.Sprintf("Decimal(%d, %d)", digits, c.scale)
	case unsigned:
	}
	if c.nullable {
		return fmt.Sprintf("Nullable(UInt%d)", c.bits)
	}
	return fmt.Sprintf("UInt%d", c.bits)
}
