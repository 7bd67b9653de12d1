package metric

import (
	"maps"
	"math/big"
	"regexp"
	"slices"
	"time"

	"github.com/shopspring/decimal"
)

// Kind is how the quantity of a period comes about from the rows of a table.
type Kind string

const (
	Sum      Kind = "sum"      // Σ value
	Time     Kind = "time"     // Σ covered seconds × value ÷ period seconds, at most one period per resource
	Presence Kind = "presence" // 1 if the resource was seen at all
	Max      Kind = "max"      // the greatest value
	Last     Kind = "last"     // the value of the newest row
	Avg      Kind = "avg"      // the mean, weighted by covered seconds where these are known
)

var kinds = []Kind{Sum, Time, Presence, Max, Last, Avg}

// Mutate is what happens to a converted quantity, in CloudKitty's words.
type Mutate string

// The conversions there are, each over the quantity after factor and offset.
const (
	None       Mutate = "NONE"
	NumBool    Mutate = "NUMBOOL"    // 0 stays 0, anything else is 1
	NotNumBool Mutate = "NOTNUMBOOL" // 0 is 1, anything else is 0
	Floor      Mutate = "FLOOR"
	Ceil       Mutate = "CEIL"
	Map        Mutate = "MAP" // looked up in mutate_map; 0 when it is not there
)

var mutates = []Mutate{None, NumBool, NotNumBool, Floor, Ceil, Map}

// Unattributed is the scope of usage that has no project.
const Unattributed = "unattributed"

// Attribute is a name that rate plans know and the column that holds it.
type Attribute struct {
	Name, Column string
}

// MapEntry is one pair of mutate_map.
type MapEntry struct {
	From *big.Rat
	To   decimal.Decimal
}

// Metric is one entry of metrics.yaml with every default filled in.
type Metric struct {
	Name        string // as in usage and rate plans: alt_name, or the entry's key
	Key         string // the entry's key
	Description string
	Unit        string

	Table  string        // a tier family, one of its tables, or a table of the operator's
	Time   string        // column with the begin of a row
	Bucket time.Duration // how long each row is; 0 when rows lie anywhere, or when the tier decides
	RowKey []string      // columns that, with Time, tell rows apart; the tier's own for a tier
	// Version columns tell which of several rows with one key counts: the one
	// with the greatest. Empty for an operator's table whose rows are distinct.
	Version []string

	Quantity Kind
	Value    []string // columns, added up if several; empty for time (gauge 1) and presence
	Integral string   // column with Σ gauge × seconds, for time
	Covered  string   // column with the seconds a row covers; empty: its whole bucket

	RegionKey string // column; empty when all rows are of one region without a name
	ScopeKey  string // column
	Resource  []string
	Groupby   []Attribute
	Metadata  []Attribute

	Factor, Offset *big.Rat
	Mutate         Mutate
	Map            []MapEntry

	tier *family // nil for an operator's table
}

// Attributes are groupby and metadata together, sorted by name. Both are part
// of what tells usage rows apart, as in CloudKitty.
func (m *Metric) Attributes() []Attribute {
	all := slices.Concat(m.Groupby, m.Metadata)
	slices.SortFunc(all, func(a, b Attribute) int { return compare(a.Name, b.Name) })
	return all
}

// Facts lists what a row of the metric can be told apart by, sorted: its
// attributes, and what follows from its scope and begin.
func (m *Metric) Facts() []string {
	named := map[string]string{}
	for _, a := range m.Attributes() {
		named[a.Name] = ""
	}
	return slices.Sorted(maps.Keys(m.WithImplied(named, "", time.Time{})))
}

// Tiered says whether the metric reads Ratebatch's own tiers. Only their
// retention is known.
func (m *Metric) Tiered() bool { return m.tier != nil }

// Columns lists the columns of the table that the metric reads, sorted.
func (m *Metric) Columns() []string {
	all := slices.Concat([]string{m.Time, m.ScopeKey, m.RegionKey, m.Integral, m.Covered}, m.RowKey, m.Version, m.Value, m.Resource)
	for _, a := range m.Attributes() {
		all = append(all, a.Column)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(name string) bool { return name == "" })
}

// Set is the content of one metrics.yaml.
type Set struct {
	Metrics []*Metric // sorted by name
}

// Get finds a metric by its name.
func (s *Set) Get(name string) (*Metric, bool) {
	i, ok := slices.BinarySearchFunc(s.Metrics, name, func(m *Metric, n string) int { return compare(m.Name, n) })
	if !ok {
		return nil, false
	}
	return s.Metrics[i], true
}

// Names lists the metrics' names, sorted.
func (s *Set) Names() []string {
	names := make([]string, len(s.Metrics))
	for i, m := range s.Metrics {
		names[i] = m.Name
	}
	return names
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// The allow-lists. Whatever passes them is also quoted.
var (
	columnPattern    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	tablePattern     = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,127}\.)?[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	namePattern      = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:@/#-]{0,127}$`)
	attributePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.:-]{0,127}$`)
)
