package metric

import (
	"math/big"
	"time"
)

// family is a pair of tier tables as store/schema defines them. TestTiers
// compares this catalogue with the schema's files.
type family struct {
	name     string
	resource []string
	key      []string // the sort key without bucket
	columns  map[string]column
}

// column is what the SQL has to know of a tier's column.
type column struct {
	kind     columnKind
	bits     int  // of an unsigned integer
	width    int  // bytes of a decimal
	scale    int  // digits after a decimal's point
	nullable bool // numbers only
}

type columnKind int

const (
	lowText  columnKind = iota // LowCardinality(String)
	text                       // String
	uuid                       // UUID
	unsigned                   // UInt16 … UInt64
	fixed                      // Decimal
)

// Columns that every tier has beside its key and its values.
const (
	tierTime    = "bucket"
	tierCovered = "covered_seconds"
	hourly      = time.Hour
	fiveMinutes = 5 * time.Minute
)

var tierVersion = []string{"samples", "refreshed_at"}

func tierColumns(own map[string]column) map[string]column {
	all := map[string]column{
		"region":        {kind: lowText},
		"instance_uuid": {kind: uuid},
		"project_id":    {kind: lowText},
		"user_id":       {kind: lowText},
		"flavor_name":   {kind: lowText},
		"vcpus":         {kind: unsigned, bits: 16},
		"image_id":      {kind: lowText},
		"instance_name": {kind: text},
		"host":          {kind: lowText},
		"samples":       {kind: unsigned, bits: 32},
		tierCovered:     {kind: fixed, width: 4, scale: 3},
	}
	for name, c := range own {
		all[name] = c
	}
	return all
}

var (
	count64 = column{kind: unsigned, bits: 64}
	gauge64 = column{kind: unsigned, bits: 64, nullable: true}
	seconds = column{kind: fixed, width: 16, scale: 3} // gauge × seconds
)

var families = []*family{
	{
		name:     "instance_metrics",
		resource: []string{"instance_uuid"},
		key:      []string{"region", "instance_uuid", "project_id", "user_id", "flavor_name", "vcpus", "image_id"},
		columns: tierColumns(map[string]column{
			"cpu_pct_avg":                {kind: fixed, width: 4, scale: 4},
			"cpu_pct_max":                {kind: fixed, width: 4, scale: 2},
			"memory_actual_bytes_avg":    gauge64,
			"memory_rss_bytes_avg":       gauge64,
			"memory_usable_bytes_avg":    gauge64,
			"memory_actual_byte_seconds": seconds,
		}),
	},
	{
		name:     "port_volume",
		resource: []string{"port_uuid"},
		key:      []string{"region", "instance_uuid", "port_uuid", "network_uuid", "project_id", "user_id", "flavor_name", "vcpus", "image_id"},
		columns: tierColumns(map[string]column{
			"port_uuid":    {kind: uuid},
			"network_uuid": {kind: uuid},
			"rx_bytes":     count64,
			"tx_bytes":     count64,
		}),
	},
	{
		name:     "disk_metrics",
		resource: []string{"instance_uuid", "device"},
		key:      []string{"region", "instance_uuid", "device", "project_id", "user_id", "flavor_name", "vcpus", "image_id"},
		columns: tierColumns(map[string]column{
			"device":                {kind: lowText},
			"read_bytes":            count64,
			"write_bytes":           count64,
			"read_requests":         count64,
			"write_requests":        count64,
			"capacity_bytes_avg":    gauge64,
			"allocation_bytes_avg":  gauge64,
			"physical_bytes_avg":    gauge64,
			"capacity_byte_seconds": seconds,
		}),
	},
}

// tierOf finds the family a table belongs to, and the length of its buckets
// when the table is named in full.
func tierOf(table string) (*family, time.Duration) {
	for _, f := range families {
		switch table {
		case f.name:
			return f, 0
		case f.name + "_hourly":
			return f, hourly
		case f.name + "_5min":
			return f, fiveMinutes
		}
	}
	return nil, 0
}

func (c column) numeric() bool { return c.kind == unsigned || c.kind == fixed }

// bound is the greatest absolute value of a column in units of its scale.
func (c column) bound() *big.Int {
	if c.kind == unsigned {
		return pow2minus1(uint(c.bits))
	}
	return pow2minus1(uint(8*c.width - 1))
}

func pow2minus1(n uint) *big.Int {
	x := new(big.Int).Lsh(big.NewInt(1), n)
	return x.Sub(x, big.NewInt(1))
}
