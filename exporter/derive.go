package exporter

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"
)

// Every dataset is derived from the one stream of lines that was compared with
// its commits; none has a query of its own that could tell another story.

// sink takes the lines of one part and writes the dataset's files.
type sink interface {
	add(lines *table) error
	end() error
}

// output is the files of one part. The first row opens the first file.
type output struct {
	e         *export
	ctx       context.Context // an output lives within one call of writePart
	schema    Schema
	path      string // of the file, below the month's folder
	partition map[string]string
	out       *fileWriter
	files     []File
}

func (o *output) write(t *table) error {
	if t.rows == 0 {
		return nil
	}
	if o.out == nil {
		var err error
		if o.out, err = o.e.create(o.ctx, o.path, o.schema, o.partition); err != nil {
			return err
		}
	}
	return o.out.write(t)
}

// writeText writes a whole file that is no table.
func (o *output) writeText(path string, partition map[string]string, text []byte) error {
	f, err := o.e.writeText(o.ctx, path, partition, text)
	if err != nil {
		return err
	}
	o.files = append(o.files, *f)
	return nil
}

func (o *output) end() error {
	if o.out == nil {
		return nil
	}
	f, err := o.out.commit()
	if err != nil {
		return err
	}
	o.files = append(o.files, *f)
	return nil
}

// abort drops a file that was not committed.
func (o *output) abort() {
	if o.out != nil {
		o.out.abort()
	}
}

// linesSink writes lines as they are.
type linesSink struct{ out *output }

func (s linesSink) add(t *table) error { return s.out.write(t) }
func (s linesSink) end() error         { return s.out.end() }

// newSink gives the sink of the export's dataset.
func (e *export) newSink(out *output, p part) sink {
	switch e.Dataset {
	case summarySchema.Dataset:
		return &summarySink{out: out, table: newTable(summarySchema), sums: map[summaryKey]*sums{}}
	case statementSchema.Dataset:
		corrections := map[string]map[statementKey]*sums{}
		for scope, lines := range e.statementSums {
			if scope >= p.first && scope <= p.last {
				corrections[scope] = lines
			}
		}
		return &statementSink{out: out, table: newTable(statementSchema), month: e.Month, zone: e.Calendar.Zone(), names: e.names, digits: e.RoundTo, pages: !e.stream, corrections: corrections}
	case focusDataset:
		return newFocusSink(out, e)
	default:
		return linesSink{out}
	}
}

// sums are exact: 256 bits hold any number of decimals.
type sums struct {
	quantity, price wide
	lines           int64
}

func (s *sums) add(t *table, row int) {
	quantity, _ := t.cols[outQuantity].word(row)
	price, _ := t.cols[outPrice].word(row)
	s.quantity.add(wideOf(quantity))
	s.price.add(wideOf(price))
	s.lines++
}

// putSum writes a sum as a decimal column's word, or as the largest number a
// report can hold nothing of: a sum past DECIMAL(38,18) fails the export.
func putSum(c *column, w wide) error { return putDecimal(c, w.decimal()) }

func putDecimal(c *column, d decimal.Decimal) error {
	word, ok := wordOf(d)
	if !ok {
		return overflowError{d}
	}
	c.putWord(word[:])
	return nil
}

// overflowError says that a sum does not fit DECIMAL(38,18).
type overflowError struct{ value decimal.Decimal }

func (e overflowError) Error() string {
	return "the sum " + e.value.String() + " has more digits than DECIMAL(38,18) holds"
}

func text(t *table, out, row int) string {
	word, _ := t.cols[out].word(row)
	return string(word)
}

func instant(t *table, out, row int) time.Time {
	word, _ := t.cols[out].word(row)
	return time.UnixMicro(int64(binary.LittleEndian.Uint64(word))).UTC()
}

func isCorrection(t *table, row int) bool {
	_, ok := t.cols[outCorrects].word(row)
	return ok
}

func putTime(c *column, t time.Time) { putInt64(c, t.UnixMicro()) }

// summarySink adds lines up per scope, day and metric. Lines come scope by
// scope, so it holds one scope's sums.
type summarySink struct {
	out   *output
	table *table
	scope []byte
	sums  map[summaryKey]*sums
}

type summaryKey struct {
	day                            int64
	metric, unit, currency, bucket string
	correction                     int64
}

func (s *summarySink) add(t *table) error {
	for row := range t.rows {
		scope, _ := t.cols[outScope].word(row)
		if !bytes.Equal(scope, s.scope) {
			if err := s.flush(); err != nil {
				return err
			}
			s.scope = append(s.scope[:0], scope...)
		}
		key := summaryKey{day: instant(t, outBegin, row).Truncate(24 * time.Hour).UnixMicro(), metric: text(t, outMetric, row), unit: text(t, outUnit, row),
			currency: text(t, outCurrency, row), bucket: text(t, outBucket, row)}
		if isCorrection(t, row) {
			key.correction = 1
		}
		sum := s.sums[key]
		if sum == nil {
			sum = new(sums)
			s.sums[key] = sum
		}
		sum.add(t, row)
	}
	return nil
}

func (s *summarySink) flush() error {
	keys := slices.SortedFunc(maps.Keys(s.sums), func(a, b summaryKey) int {
		return cmp.Or(cmp.Compare(a.correction, b.correction), cmp.Compare(a.day, b.day), cmp.Compare(a.metric, b.metric), cmp.Compare(a.unit, b.unit),
			cmp.Compare(a.currency, b.currency), cmp.Compare(a.bucket, b.bucket))
	})
	for _, key := range keys {
		sum, c := s.sums[key], s.table.cols
		c[0].putWord(s.scope)
		putInt64(&c[1], key.day)
		c[2].putWord([]byte(key.metric))
		c[3].putWord([]byte(key.unit))
		if err := putSum(&c[4], sum.quantity); err != nil {
			return err
		}
		if err := putSum(&c[5], sum.price); err != nil {
			return err
		}
		c[6].putWord([]byte(key.currency))
		c[7].putWord([]byte(key.bucket))
		putInt64(&c[8], sum.lines)
		putInt64(&c[9], key.correction)
		s.table.rows++
		if s.table.rows == rowsPerGroup {
			if err := s.out.write(s.table); err != nil {
				return err
			}
			s.table.reset()
		}
	}
	clear(s.sums)
	return nil
}

func (s *summarySink) end() error {
	if err := s.flush(); err != nil {
		return err
	}
	if err := s.out.write(s.table); err != nil {
		return err
	}
	return s.out.end()
}

// StatementID names the statement of a scope's month in a currency.
func StatementID(month time.Time, scope, currency string) uuid.UUID {
	name := appendQuoted([]byte("["), month.UTC().Format("2006-01"))
	name = appendQuoted(append(name, ','), scope)
	name = appendQuoted(append(name, ','), currency)
	return uuid.NewSHA1(namespace, append(name, ']'))
}

// statementSink makes the statements of scopes, one after the other.
type statementSink struct {
	out    *output
	table  *table
	month  time.Time
	zone   *time.Location // whose days the chart shows
	names  map[string]ScopeName
	digits int32
	pages  bool

	corrections map[string]map[statementKey]*sums // of scopes whose turn has not come

	scope string
	lines map[statementKey]*sums
	days  map[dayKey]*wide
}

// begin starts the statement of a scope, with what is corrected of it.
func (s *statementSink) begin(scope string) {
	s.scope, s.days, s.lines = scope, map[dayKey]*wide{}, s.corrections[scope]
	delete(s.corrections, scope)
	if s.lines == nil {
		s.lines = map[statementKey]*sums{}
	}
}

type statementKey struct {
	currency, kind, metric, rule, unit string
}

type dayKey struct {
	currency string
	day      int
	metric   string
}

func (s *statementSink) add(t *table) error {
	for row := range t.rows {
		if text(t, outBucket, row) != "" {
			continue // usage without a price is on no statement
		}
		if scope, _ := t.cols[outScope].word(row); s.lines == nil || string(scope) != s.scope {
			if err := s.flush(); err != nil {
				return err
			}
			s.begin(string(scope))
		}
		s.count(t, row)
		day := dayKey{text(t, outCurrency, row), instant(t, outBegin, row).In(s.zone).Day(), text(t, outMetric, row)}
		total := s.days[day]
		if total == nil {
			total = new(wide)
			s.days[day] = total
		}
		price, _ := t.cols[outPrice].word(row)
		total.add(wideOf(price))
	}
	return nil
}

// count adds one line to its position.
func (s *statementSink) count(t *table, row int) {
	key := statementKey{currency: text(t, outCurrency, row), kind: "usage", metric: text(t, outMetric, row), rule: text(t, outRule, row), unit: text(t, outUnit, row)}
	if isCorrection(t, row) {
		key.kind = "correction"
	}
	sum := s.lines[key]
	if sum == nil {
		sum = new(sums)
		s.lines[key] = sum
	}
	sum.add(t, row)
}

// Statement is one project's bill for one month in one currency.
type Statement struct {
	ID       uuid.UUID
	Scope    string
	Name     string
	Month    time.Time
	Currency string
	Lines    []StatementLine
	Total    StatementLine
	Days     map[string][31]decimal.Decimal // per metric, exact
	Digits   int32                          // of amounts
}

// Money writes an amount with all its digits: 12.30.
func (s Statement) Money(amount decimal.Decimal) string { return amount.StringFixed(s.Digits) }

// StatementLine is one position of a statement.
type StatementLine struct {
	Kind, Metric, Rule, Unit string
	Quantity, Exact, Amount  decimal.Decimal
}

// statements turns the sums of a scope into statements, one per currency. Each
// position and the total are rounded once; the rounding line is what the
// positions miss of the total, so that a person who adds up gets the total.
func (s *statementSink) statements() []Statement {
	keys := slices.SortedFunc(maps.Keys(s.lines), func(a, b statementKey) int {
		return cmp.Or(cmp.Compare(a.currency, b.currency), -cmp.Compare(a.kind, b.kind), cmp.Compare(derivedOrder(a.metric), derivedOrder(b.metric)), cmp.Compare(a.metric, b.metric), cmp.Compare(a.rule, b.rule), cmp.Compare(a.unit, b.unit))
	})
	var out []Statement
	for _, key := range keys {
		if len(out) == 0 || out[len(out)-1].Currency != key.currency {
			out = append(out, Statement{ID: StatementID(s.month, s.scope, key.currency), Scope: s.scope, Name: s.names[s.scope].Name, Month: s.month, Currency: key.currency, Digits: s.digits,
				Days: map[string][31]decimal.Decimal{}})
		}
		st, sum := &out[len(out)-1], s.lines[key]
		exact := sum.price.decimal()
		st.Lines = append(st.Lines, StatementLine{Kind: key.kind, Metric: key.metric, Rule: key.rule, Unit: key.unit, Quantity: sum.quantity.decimal(),
			Exact: exact, Amount: exact.RoundBank(s.digits)})
	}
	for i := range out {
		st := &out[i]
		var exact, rounded decimal.Decimal
		for _, l := range st.Lines {
			exact, rounded = exact.Add(l.Exact), rounded.Add(l.Amount)
		}
		st.Total = StatementLine{Kind: "total", Exact: exact, Amount: exact.RoundBank(s.digits)}
		if rest := st.Total.Amount.Sub(rounded); !rest.IsZero() {
			st.Lines = append(st.Lines, StatementLine{Kind: "rounding", Amount: rest})
		}
		for key, total := range s.days {
			if key.currency == st.Currency {
				days := st.Days[key.metric]
				days[key.day-1] = total.decimal()
				st.Days[key.metric] = days
			}
		}
	}
	return out
}

func (s *statementSink) flush() error {
	if s.lines == nil {
		return nil
	}
	for _, st := range s.statements() {
		for i, l := range append(slices.Clone(st.Lines), st.Total) {
			if err := s.put(st, i+1, l); err != nil {
				return err
			}
		}
		if s.pages {
			page, err := st.HTML()
			if err != nil {
				return err
			}
			path, partition := statementPath(s.out.e.prefix, st)
			if err := s.out.writeText(path, partition, page); err != nil {
				return err
			}
		}
	}
	if s.table.rows >= rowsPerGroup/2 {
		if err := s.out.write(s.table); err != nil {
			return err
		}
		s.table.reset()
	}
	return nil
}

func (s *statementSink) put(st Statement, position int, l StatementLine) error {
	c := s.table.cols
	c[0].putWord([]byte(st.ID.String()))
	c[1].putWord([]byte(st.Scope))
	putOptional(&c[2], st.Name)
	putTime(&c[3], st.Month)
	putInt64(&c[4], int64(position))
	c[5].putWord([]byte(l.Kind))
	if l.Metric == "" {
		for _, i := range []int{6, 7, 8, 9} {
			c[i].putNull()
		}
	} else {
		c[6].putWord([]byte(l.Metric))
		c[7].putWord([]byte(l.Rule))
		if err := putDecimal(&c[8], l.Quantity); err != nil {
			return err
		}
		c[9].putWord([]byte(l.Unit))
	}
	if err := putDecimal(&c[10], l.Exact); err != nil {
		return err
	}
	if err := putDecimal(&c[11], l.Amount); err != nil {
		return err
	}
	c[12].putWord([]byte(st.Currency))
	c[13].putWord([]byte(l.Description()))
	s.table.rows++
	return nil
}

// putOptional writes a text, or null for an empty one.
func putOptional(c *column, text string) {
	if text == "" {
		c.putNull()
		return
	}
	c.putWord([]byte(text))
}

func (s *statementSink) end() error {
	if err := s.flush(); err != nil {
		return err
	}
	for _, scope := range correctedScopes(s.corrections) { // those without usage in this month
		s.begin(scope)
		if err := s.flush(); err != nil {
			return err
		}
	}
	if err := s.out.write(s.table); err != nil {
		return err
	}
	return s.out.end()
}
