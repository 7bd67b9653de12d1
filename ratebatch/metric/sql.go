package metric

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// Dedup is how repeats of a tier's row are dropped.
type Dedup int

const (
	// Final reads the table with FINAL: about the cost of reading it. The
	// caller proves that no repeat is left by counting rows that differ in region,
	// scope, begin, resource and attributes; where usage is coarser than rows the
	// query does.
	Final Dedup = iota
	// Grouped groups by the row's key and takes the fullest, then newest row. It
	// needs no property of the engine and costs ten times as much.
	Grouped
)

// UsageOptions say which usage a query gives and in what form.
type UsageOptions struct {
	Period     time.Duration
	Fields     []string // attributes to give as columns f_0, f_1 … of type LowCardinality(String); '' where absent
	Attributes bool     // give the attributes column
	Dedup      Dedup    // an operator's table is always grouped by its key if it has a version
	// Filter is a further condition over region, scope and begin, e.g.
	// (scope, begin) IN (…). It is SQL of the program's own, never of a user.
	Filter string
	// TableName gives the quoted name of a tier's table, for a cluster; nil: the
	// name as it is. Tables of the operator's are not passed through it.
	TableName func(string) string
}

// UsageSQL gives the SELECT of this metric's usage for buckets in [{from},
// {to}), two query parameters of type DateTime('UTC') on period boundaries:
//
//	region     LowCardinality(String)
//	scope      LowCardinality(String)
//	begin      DateTime('UTC')          the period's
//	resource   String
//	attributes Map(LowCardinality(String), String)   names sorted; absent ones are left out
//	qty        Decimal(38,18)
//	f_0, …     LowCardinality(String)   one per field
func (m *Metric) UsageSQL(o UsageOptions) (string, error) {
	q, err := m.query(o)
	if err != nil {
		return "", err
	}
	if err := q.usage(); err != nil {
		return "", err
	}
	return render("usage", q)
}

// Tables are the tables that usage of the given period length is read from.
func (m *Metric) Tables(period time.Duration) []string {
	table, _ := m.table(period)
	return []string{table}
}

// table resolves a tier family by the period's length.
func (m *Metric) table(period time.Duration) (string, time.Duration) {
	if m.tier == nil || m.Bucket != 0 {
		return m.Table, m.Bucket
	}
	if period%hourly == 0 {
		return m.tier.name + "_hourly", hourly
	}
	return m.tier.name + "_5min", fiveMinutes
}

// query is what the templates are filled with.
type query struct {
	m           *Metric
	o           UsageOptions
	bucket      time.Duration
	used        []string // columns of the table, in the order of c_0, c_1 …
	texts       []string // columns in the order of x_0, x_1 …: text(column)
	whole       bool     // one row is one usage row: no second GROUP BY
	hasResource bool     // r_ is derived

	Table, TimeRange           string
	Final                      bool
	Columns, Names             []string // t.`x` AS c_0, and c_0
	GroupKey                   []string // set: deduplicated by GROUP BY
	KeyColumns, OtherColumns   []string
	Region, Scope, Begin       string
	Derived                    []string
	Guards                     string // 0, or no answer
	CapWindow, Cap, RowCovered string
	Filter                     string
	GroupBy, Aggregates        []string
	GroupGuard                 string
	Resource, Attributes       string
	ShowAttributes             bool
	Quantity                   string
	Fields                     []string
}

func (m *Metric) query(o UsageOptions) (*query, error) {
	if err := ratebatch.CheckPeriodLength(o.Period); err != nil {
		return nil, fmt.Errorf("metric %s: %w", m.Name, err)
	}
	table, bucket := m.table(o.Period)
	if bucket != 0 && o.Period%bucket != 0 {
		return nil, fmt.Errorf("metric %s: a period of %s is no multiple of the %s of a row in %s", m.Name, o.Period, bucket, table)
	}
	q := &query{
		m: m, o: o, bucket: bucket,
		Table: sqltext.Table(table), Filter: o.Filter,
		ShowAttributes: o.Attributes,
		TimeRange:      fmt.Sprintf("t.%[1]s >= {from:DateTime('UTC')} AND t.%[1]s < {to:DateTime('UTC')}", sqltext.Name(m.Time)),
	}
	if m.tier != nil && o.TableName != nil {
		q.Table = o.TableName(table)
	}
	q.Final = m.tier != nil && o.Dedup == Final
	// A table of the operator's is always grouped: its columns may hold NULL and
	// '', which are two keys but one attribute.
	q.whole = bucket == o.Period && m.tier != nil
	for _, key := range m.RowKey {
		q.whole = q.whole && q.tellsApart(key)
	}
	q.Region = "CAST('' AS LowCardinality(String))"
	if m.RegionKey != "" {
		q.Region = q.low(m.RegionKey, q.plainText)
	}
	q.Scope = fmt.Sprintf("transform(%s, [''], [%s])", q.low(m.ScopeKey, q.plainText), sqltext.String(Unattributed))
	q.Begin = q.column(m.Time)
	if m.tier == nil || bucket != o.Period {
		q.Begin = fmt.Sprintf("toDateTime(intDiv(toUnixTimestamp(%s), %d) * %[2]d, 'UTC')", q.Begin, seconds64(o.Period))
	}
	if m.tier == nil && bucket != 0 {
		q.guard(fmt.Sprintf("toUnixTimestamp(%s) %% %d != 0", q.column(m.Time), seconds64(bucket)),
			fmt.Sprintf("a row of %s does not begin on a boundary of its bucket", table))
	}
	if m.Covered != "" && m.Integral == "" && (m.Quantity == Time || m.Quantity == Avg) {
		q.guard(fmt.Sprintf("ifNull(%s < 0, 0)", q.column(m.Covered)), fmt.Sprintf("a row of %s covers less than no time", table))
	}
	if m.Quantity == Time && m.Integral == "" && m.tier == nil {
		q.capPerResource()
	}
	return q, nil
}

func seconds64(d time.Duration) int64 { return int64(d / time.Second) }

// tellsApart says whether usage rows differ where this column does.
func (q *query) tellsApart(column string) bool {
	m := q.m
	return column == m.RegionKey || column == m.ScopeKey || column == m.Time || slices.Contains(m.Resource, column) ||
		slices.ContainsFunc(m.Attributes(), func(a Attribute) bool { return a.Column == column })
}

// guard fails the query where the condition holds for a row. It becomes part
// of the quantity, not of WHERE: there it would be tried on rows that another
// condition drops, and somebody else's bad row would stop everybody.
func (q *query) guard(condition, text string) {
	if q.Guards != "" {
		q.Guards += " + "
	}
	q.Guards += q.m.fail(condition, text)
}

// number gives a column as an integer in units of its scale, 0 for NULL.
func (q *query) number(name string) raw {
	c := q.column(name)
	kind, ok := q.kind(name)
	r := raw{in: int128, denominator: big.NewInt(1)}
	switch {
	case !ok:
		// Of the operator's column only the type's name is known, and only when
		// the query runs. Whatever is not exact as Decimal(76,18) is refused.
		q.guard(fmt.Sprintf(`NOT match(toTypeName(%s), '^(LowCardinality\\()?(Nullable\\()?(U?Int(8|16|32|64)|Decimal\\([0-9]+, ([0-9]|1[0-8])\\))\\)*$')`, c),
			fmt.Sprintf("column %s is neither an integer of at most 64 bits nor a decimal of at most 18 digits after the point", name))
		r.sql = fmt.Sprintf("reinterpretAsInt256(ifNull(toDecimal256(%s, 18), toDecimal256(0, 18)))", c)
		r.in, r.denominator, r.signed, r.bound = int256, ten18, true, ownBound
		q.guardSize(name)
		return r
	case kind.kind == fixed:
		r.denominator = new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(kind.scale)), nil)
		r.sql = fmt.Sprintf("toInt128(reinterpretAsInt%d(%s))", 8*kind.width, c)
		r.signed = true
	case kind.nullable:
		r.sql = fmt.Sprintf("toInt128(ifNull(%s, 0))", c)
	default:
		r.sql = fmt.Sprintf("toInt128(%s)", c)
	}
	r.bound = kind.bound()
	r.sane = r.bound
	return r
}

// ownBound is the greatest value of an operator's column, 10^36, in units of
// 10^-18: times the milliseconds of a day, summed over 2^40 rows, it still fits
// 255 bits.
var ownBound = new(big.Int).Exp(big.NewInt(10), big.NewInt(36+18), nil)

// guardSize keeps an operator's column within ownBound. It looks at the column
// as it is: a Decimal256 that is given more digits wraps around without a word.
func (q *query) guardSize(name string) {
	const limit = "toDecimal256('1000000000000000000000000000000000000', 0)"
	q.guard(fmt.Sprintf("ifNull(%[1]s > %[2]s OR %[1]s < -%[2]s, 0)", q.column(name), limit),
		fmt.Sprintf("column %s holds a number beyond what can be computed exactly", name))
}

// known is a condition for rows that have a value, or empty where all have.
func (q *query) known(name string) string {
	if kind, ok := q.kind(name); ok && !kind.nullable {
		return ""
	}
	return fmt.Sprintf("isNotNull(%s)", q.column(name))
}

// covered gives the milliseconds a row covers, at most its bucket, as Int32 or
// Int64. They stay that narrow until they are multiplied: greatest and least on
// Int128 are wrong once ClickHouse 26.7 has compiled them (it compares them
// without sign), and so is bitShiftRight.
func (q *query) covered() string {
	switch {
	case q.CapWindow != "":
		return "s_"
	case q.m.tier != nil:
		return fmt.Sprintf("least(reinterpretAsInt32(%s), toInt32(%d))", q.column(q.m.Covered), q.bucket.Milliseconds())
	}
	return q.rowCovered()
}

// rowCovered is covered for a row of an operator's table, before the cap that
// all rows of a resource share.
func (q *query) rowCovered() string {
	if q.m.Covered == "" {
		return fmt.Sprintf("toInt64(%d)", q.bucket.Milliseconds())
	}
	c := q.column(q.m.Covered)
	q.guard(fmt.Sprintf(`NOT match(toTypeName(%s), '^(LowCardinality\\()?(Nullable\\()?(U?Int(8|16|32|64)|Decimal\\([0-9]+, [0-3]\\))\\)*$')`, c),
		fmt.Sprintf("column %s is neither an integer of at most 64 bits nor a decimal of at most 3 digits after the point", q.m.Covered))
	q.guardSize(q.m.Covered)
	return fmt.Sprintf("toInt64(least(reinterpretAsInt256(ifNull(toDecimal256(%s, 3), toDecimal256(0, 3))), toInt256(%d)))", c, q.span().Milliseconds())
}

// span is the time that a resource's rows of one slot can cover at most.
func (q *query) span() time.Duration {
	if q.bucket != 0 {
		return q.bucket
	}
	return q.o.Period
}

// capPerResource bounds the time of all rows of one resource in one bucket, in
// the order of their keys, so that it does not depend on how rows are stored.
func (q *query) capPerResource() {
	m := q.m
	slot := "begin"
	if q.bucket != 0 {
		slot = q.column(m.Time)
	}
	partition := []string{"region", slot, q.resource()}
	order := append(q.rowOrder(), "scope")
	for _, a := range m.Attributes() {
		order = append(order, q.text(a.Column))
	}
	for _, name := range m.Value {
		order = append(order, q.column(name))
	}
	order = append(order, "s_")
	q.RowCovered = q.rowCovered()
	q.Cap = fmt.Sprintf("toInt64(%d)", q.span().Milliseconds())
	q.CapWindow = fmt.Sprintf("PARTITION BY %s ORDER BY %s ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
		strings.Join(partition, ", "), strings.Join(order, ", "))
}

// usage completes the query for UsageSQL.
func (q *query) usage() error {
	q.Resource = q.resource()
	q.fields(q.o.Fields)
	if q.ShowAttributes || !q.whole {
		q.Attributes = q.attributes()
	}
	var group []string
	if !q.whole {
		group = q.group()
	}
	quantity, err := q.m.quantity(q.raw())
	if err != nil {
		return err
	}
	if q.Guards != "" {
		if group != nil {
			q.aggregate("g_", fmt.Sprintf("max(%s)", q.Guards))
			quantity = fmt.Sprintf("(%s) + g_", quantity)
		} else {
			quantity = fmt.Sprintf("(%s) + %s", quantity, q.Guards)
		}
	}
	q.Quantity = fmt.Sprintf("reinterpret(%s, 'Decimal(38,18)')", quantity)
	q.place(group)
	return nil
}

// rowBits bounds the rows of one group for proofs: nobody has 2^40 of them.
const rowBits = 40

// raw gives the metric's raw value, of a row or of a group.
func (q *query) raw() raw {
	m := q.m
	switch m.Quantity {
	case Presence:
		return raw{sql: "toInt128(1)", in: int128, bound: one, sane: one, denominator: one}
	case Time:
		return q.time()
	case Sum, Max, Last, Avg:
	}
	r := q.values()
	if q.whole {
		return r
	}
	known := q.known(m.Value[0])
	call := func(function, args string) string {
		if known == "" {
			return fmt.Sprintf("%s(%s)", function, args)
		}
		return fmt.Sprintf("%sIf(%s, %s)", function, args, known)
	}
	switch m.Quantity {
	case Sum:
		return q.sum(r)
	case Avg:
		return q.mean(r, known)
	case Max:
		q.aggregate("n_", call("max", r.sql))
	case Last:
		order := append(q.rowOrder(), r.sql)
		q.aggregate("n_", call("argMax", fmt.Sprintf("%s, tuple(%s)", r.sql, strings.Join(order, ", "))))
	case Presence, Time:
	}
	r.sql = "n_"
	return r
}

// values gives the sum of a row's value columns.
func (q *query) values() raw {
	r := q.number(q.m.Value[0])
	for _, name := range q.m.Value[1:] {
		other := q.number(name)
		bound := new(big.Int).Add(r.bound, other.bound)
		in := r.in
		if bound.Cmp(max128) > 0 {
			in = int256
		}
		r = raw{
			sql: fmt.Sprintf("(%s + %s)", in.cast(r.sql, r.in), in.cast(other.sql, other.in)), in: in,
			bound: bound, sane: bound, signed: r.signed || other.signed, denominator: r.denominator,
		}
	}
	return r
}

func (q *query) aggregate(name, sql string) {
	q.Aggregates = append(q.Aggregates, fmt.Sprintf("%s AS %s", sql, name))
}

// sum adds up rows in a type that cannot overflow.
func (q *query) sum(r raw) raw {
	r.bound = new(big.Int).Lsh(r.bound, rowBits)
	in := int128
	if r.bound.Cmp(max128) > 0 {
		in = int256
	}
	if r.sane != nil {
		r.sane = new(big.Int).Lsh(r.sane, 16)
	}
	q.aggregate("n_", fmt.Sprintf("sum(%s)", in.cast(r.sql, r.in)))
	r.sql, r.in = "n_", in
	return r
}

// time gives Σ covered × gauge, in milliseconds, over the period.
func (q *query) time() raw {
	period := big.NewInt(q.o.Period.Milliseconds())
	if q.m.Integral != "" {
		r := q.number(q.m.Integral)
		if q.m.tier != nil {
			// No gauge reaches 2^60, and the tier caps each resource's seconds.
			r.denominator = big.NewInt(1000)
			r.sane = new(big.Int).Lsh(period, 60)
		}
		if !q.whole {
			sane := r.sane
			r = q.sum(r)
			r.sane = sane
		}
		// value × seconds over the period's seconds
		r.denominator = new(big.Int).Mul(r.denominator, big.NewInt(seconds64(q.o.Period)))
		return r
	}
	r := raw{sql: fmt.Sprintf("toInt128(%s)", q.covered()), in: int128, denominator: one, bound: big.NewInt(q.span().Milliseconds())}
	if len(q.m.Value) > 0 {
		v := q.number(q.m.Value[0])
		bound := new(big.Int).Mul(r.bound, v.bound)
		in := v.in
		if bound.Cmp(max128) > 0 {
			in = int256
		}
		r = raw{
			sql: fmt.Sprintf("(%s * %s)", in.cast(r.sql, r.in), in.cast(v.sql, v.in)), in: in,
			bound: bound, signed: v.signed, denominator: v.denominator,
		}
	}
	r.sane = r.bound
	r.denominator = new(big.Int).Mul(r.denominator, period)
	if !q.whole {
		r = q.sum(r)
	}
	return r
}

// mean gives Σ value × weight and Σ weight; without any weight, plain sums.
func (q *query) mean(r raw, cond string) raw {
	weight := "toInt256(1)"
	if q.m.Covered != "" {
		weight = fmt.Sprintf("toInt256(%s)", q.covered())
	}
	if cond == "" {
		cond = "1"
	}
	v := int256.cast(r.sql, r.in)
	q.aggregate("v_", fmt.Sprintf("sumIf(%s * %s, %s)", v, weight, cond))
	q.aggregate("p_", fmt.Sprintf("sumIf(%s, %s)", v, cond))
	q.aggregate("k_", fmt.Sprintf("sumIf(%s, %s)", weight, cond))
	q.aggregate("m_", fmt.Sprintf("countIf(%s)", cond))
	sane := new(big.Int).Lsh(one, 130)
	return raw{
		sql: "if(k_ > 0, v_, p_)", in: int256, sane: sane, signed: r.signed,
		denominator: r.denominator, weight: "if(k_ > 0, k_, toInt256(greatest(m_, 1)))",
	}
}

// place fixes the columns that are read and what is grouped by.
func (q *query) place(group []string) {
	m := q.m
	q.GroupBy = group
	grouped := len(m.Version) > 0 && (m.tier == nil || q.o.Dedup == Grouped)
	if group != nil && !grouped && len(m.RowKey) > 0 {
		q.GroupGuard = m.fail("count() != "+q.distinctRows(group), "two rows with one key: deduplication by FINAL is not enough here") + " = 0"
	}
	if grouped {
		key := append([]string{m.Time}, m.RowKey...)
		for _, name := range key {
			q.column(name)
			q.GroupKey = append(q.GroupKey, "t."+sqltext.Name(name))
		}
		version := q.version()
		for i, name := range q.used {
			c, t := fmt.Sprintf("c_%d", i), "t."+sqltext.Name(name)
			if slices.Contains(key, name) {
				q.KeyColumns = append(q.KeyColumns, t+" AS "+c)
			} else {
				q.OtherColumns = append(q.OtherColumns, q.newest(name, version, c))
			}
		}
	}
	for i, name := range q.used {
		c := fmt.Sprintf("c_%d", i)
		q.Names = append(q.Names, c)
		q.Columns = append(q.Columns, fmt.Sprintf("t.%s AS %s", sqltext.Name(name), c))
	}
}

// distinctRows counts the rows of a group that differ in their key. A tier's
// columns that the group is made of need not be counted again; an operator's
// may be NULL, which uniqExact passes over unless it is in a tuple.
func (q *query) distinctRows(group []string) string {
	m := q.m
	var names []string
	for _, name := range append([]string{m.Time}, m.RowKey...) {
		if m.tier == nil || !slices.Contains(group, q.column(name)) && name != m.RegionKey && name != m.ScopeKey {
			names = append(names, q.column(name))
		}
	}
	if m.tier == nil {
		return fmt.Sprintf("uniqExact(tuple(%s))", strings.Join(names, ", "))
	}
	return fmt.Sprintf("uniqExact(%s)", strings.Join(names, ", "))
}

// version is what the greatest of decides which row of a key counts. A tier's
// is packed into one number, which argMax compares ten times as fast as a tuple.
func (q *query) version() string {
	if q.m.tier != nil {
		return "toUInt64(t.`samples`) * 4294967296 + toUnixTimestamp(t.`refreshed_at`)"
	}
	names := make([]string, len(q.m.Version))
	for i, name := range q.m.Version {
		names[i] = "t." + sqltext.Name(name)
	}
	return fmt.Sprintf("tuple(%s)", strings.Join(names, ", "))
}

// newest gives a column of the row that counts. argMax passes over NULL, so a
// column that may hold it travels in a tuple.
func (q *query) newest(name, version, as string) string {
	if kind, ok := q.kind(name); ok && !kind.nullable {
		return fmt.Sprintf("argMax(t.%s, %s) AS %s", sqltext.Name(name), version, as)
	}
	return fmt.Sprintf("argMax(tuple(t.%s), %s).1 AS %s", sqltext.Name(name), version, as)
}
