package exporter

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/bits"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Columns of export_commits.sql, in its order.
const (
	commitScope = iota
	commitBegin
	commitEnd
	commitRevision
	commitKind
	commitPlan
	commitMetrics
	commitCurrency
	commitLines
	commitDigest
	commitTotal
	commitAt
	commitHash
)

const kindRated = 1

// wide is a 256-bit two's complement number, least significant word first: wide
// enough to add up any number of Decimal(38,18) without a check.
type wide [4]uint64

func (w *wide) add(v wide) {
	var carry uint64
	for i := range w {
		w[i], carry = bits.Add64(w[i], v[i], carry)
	}
}

// wide128 widens 16 bytes, little-endian.
func wide128(raw []byte) wide {
	w := wide{binary.LittleEndian.Uint64(raw), binary.LittleEndian.Uint64(raw[8:])}
	if int64(w[1]) < 0 {
		w[2], w[3] = ^uint64(0), ^uint64(0)
	}
	return w
}

func wide256(raw []byte) (w wide) {
	for i := range w {
		w[i] = binary.LittleEndian.Uint64(raw[8*i:])
	}
	return w
}

// decimal reads the number with the scale of money.
func (w wide) decimal() decimal.Decimal {
	var raw [32]byte
	for i, v := range w {
		binary.BigEndian.PutUint64(raw[24-8*i:], v)
	}
	n := new(big.Int).SetBytes(raw[:])
	if int64(w[3]) < 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), 256))
	}
	return decimal.NewFromBigInt(n, -Scale)
}

// digest128 is a wrapping sum of 128-bit hashes.
type digest128 [2]uint64

func (d *digest128) add(raw []byte) {
	var carry uint64
	d[0], carry = bits.Add64(d[0], binary.LittleEndian.Uint64(raw), 0)
	d[1], _ = bits.Add64(d[1], binary.LittleEndian.Uint64(raw[8:]), carry)
}

func (d *digest128) sum(v digest128) {
	var carry uint64
	d[0], carry = bits.Add64(d[0], v[0], 0)
	d[1], _ = bits.Add64(d[1], v[1], carry)
}

func (d digest128) String() string {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], d[1])
	binary.BigEndian.PutUint64(raw[8:], d[0])
	return hex.EncodeToString(raw[:])
}

// mismatchError says that a commit and the rows that were read for it differ.
// Whoever gets it looks whether the commits changed meanwhile: then it is a
// race and the export starts again, else it is a halt.
type mismatchError struct {
	scope  string
	period ratebatch.Period
	detail string
}

func (e *mismatchError) Error() string {
	return fmt.Sprintf("scope %s: %s: %s", e.scope, e.period, e.detail)
}

// tally is what the commits of a part of the window amount to.
type tally struct {
	commits   uint64
	digest    digest128
	lines     uint64
	totals    map[string]*wide
	plans     map[string]bool
	metrics   map[string]bool
	committed time.Time // of the newest commit
}

func newTally() tally {
	return tally{totals: map[string]*wide{}, plans: map[string]bool{}, metrics: map[string]bool{}}
}

func (t *tally) merge(o tally) {
	t.commits += o.commits
	t.digest.sum(o.digest)
	t.lines += o.lines
	for currency, total := range o.totals {
		t.total(currency).add(*total)
	}
	for plan := range o.plans {
		t.plans[plan] = true
	}
	for metrics := range o.metrics {
		t.metrics[metrics] = true
	}
	if o.committed.After(t.committed) {
		t.committed = o.committed
	}
}

func (t *tally) total(currency string) *wide {
	total := t.totals[currency]
	if total == nil {
		total = new(wide)
		t.totals[currency] = total
	}
	return total
}

// commitCheck walks the commits beside the lines, both in the order of scope
// and begin, and compares count, digest and total of each commit with the rows
// that came. It holds one block of commits, whatever their number.
type commitCheck struct {
	commits *store.BlockReader
	block   store.Block
	at      int
	eof     bool
	tally   tally

	open   bool // a group of lines is being added up
	scope  []byte
	begin  uint64
	lines  uint64
	digest uint64
	total  wide

	currency     string
	currencyWord []byte
}

func newCommitCheck(commits *store.BlockReader) *commitCheck {
	return &commitCheck{commits: commits, tally: newTally()}
}

// add takes rows of lines and appends the currency of each to currencies.
func (c *commitCheck) add(block *store.Block, from, to int, currencies *column) error {
	scopes, begins := &block.Columns[inScope], &block.Columns[inBegin]
	hashes, prices := &block.Columns[inHash], &block.Columns[inPrice]
	lastKey, id := null, null
	for row := from; row < to; row++ {
		begin := begins.Uint(row)
		same := c.open && begin == c.begin
		if same {
			if scopes.Dict != nil && row > from {
				same = scopes.Keys[row] == lastKey || bytes.Equal(scopes.Dict.String(int(scopes.Keys[row])), c.scope)
			} else {
				same = bytes.Equal(textOf(scopes, row), c.scope)
			}
		}
		if !same {
			if err := c.close(); err != nil {
				return err
			}
			c.open, c.begin = true, begin
			c.scope = append(c.scope[:0], textOf(scopes, row)...)
			c.lines, c.digest, c.total = 0, 0, wide{}
			if err := c.seek(); err != nil {
				return err
			}
			id = null
		}
		if scopes.Dict != nil {
			lastKey = scopes.Keys[row]
		}
		if id == null {
			id = currencies.dict.put(c.currencyWord)
		}
		currencies.index = append(currencies.index, id)
		c.lines++
		c.digest += hashes.Uint(row)
		c.total.add(wide128(prices.Raw(row)))
	}
	return nil
}

func textOf(c *store.Column, row int) []byte {
	if c.Dict != nil {
		return c.Dict.String(int(c.Keys[row]))
	}
	return c.String(row)
}

// more makes sure that a commit is at hand, unless there are no more.
func (c *commitCheck) more() error {
	for !c.eof && c.at == c.block.Rows {
		err := c.commits.Next(&c.block)
		if errors.Is(err, io.EOF) {
			c.eof = true
			c.block.Rows, c.at = 0, 0
			return nil
		}
		if err != nil {
			return err
		}
		c.at = 0
	}
	return nil
}

// seek moves to the commit of the open group. Commits passed on the way must
// have no lines.
func (c *commitCheck) seek() error {
	for {
		if err := c.more(); err != nil {
			return err
		}
		if c.eof {
			return c.mismatch(string(c.scope), c.begin, "lines came without a commit")
		}
		order := bytes.Compare(textOf(&c.block.Columns[commitScope], c.at), c.scope)
		if order == 0 {
			order = cmp.Compare(c.block.Columns[commitBegin].Uint(c.at), c.begin)
		}
		switch {
		case order > 0:
			return c.mismatch(string(c.scope), c.begin, "lines came without a commit")
		case order == 0:
			if currency := textOf(&c.block.Columns[commitCurrency], c.at); c.currency != string(currency) {
				c.currency = string(currency)
			}
			c.currencyWord = append(c.currencyWord[:0], c.currency...)
			return nil
		}
		if err := c.settle(0, 0, wide{}); err != nil {
			return err
		}
	}
}

// close compares the open group with its commit.
func (c *commitCheck) close() error {
	if !c.open {
		return nil
	}
	c.open = false
	return c.settle(c.lines, c.digest, c.total)
}

// settle compares the commit at hand with what was read for it, counts it and
// moves on.
func (c *commitCheck) settle(lines, digest uint64, total wide) error {
	cols, at := c.block.Columns, c.at
	scope, begin := textOf(&cols[commitScope], at), cols[commitBegin].Uint(at)
	var wantLines, wantDigest uint64
	var wantTotal wide
	if cols[commitKind].Uint(at) == kindRated {
		wantLines, wantDigest = cols[commitLines].Uint(at), cols[commitDigest].Uint(at)
		wantTotal = wide256(cols[commitTotal].Raw(at))
	}
	switch {
	case lines != wantLines:
		return c.mismatch(string(scope), begin, fmt.Sprintf("the commit counts %d lines, %d were read", wantLines, lines))
	case digest != wantDigest:
		return c.mismatch(string(scope), begin, fmt.Sprintf("the commit's line digest is %016x, that of the lines read %016x", wantDigest, digest))
	case total != wantTotal:
		return c.mismatch(string(scope), begin, fmt.Sprintf("the commit's total is %s, that of the lines read %s", wantTotal.decimal(), total.decimal()))
	}
	t := &c.tally
	t.commits++
	t.digest.add(cols[commitHash].Raw(at))
	if cols[commitKind].Uint(at) == kindRated {
		t.lines += lines
		t.total(string(textOf(&cols[commitCurrency], at))).add(wantTotal)
		t.plans[string(textOf(&cols[commitPlan], at))] = true
		t.metrics[string(textOf(&cols[commitMetrics], at))] = true
	}
	if committed := time.UnixMicro(int64(cols[commitAt].Uint(at))).UTC(); committed.After(t.committed) {
		t.committed = committed
	}
	c.at++
	return nil
}

// end settles what is left after the last line.
func (c *commitCheck) end() error {
	if err := c.close(); err != nil {
		return err
	}
	for {
		if err := c.more(); err != nil || c.eof {
			return err
		}
		if err := c.settle(0, 0, wide{}); err != nil {
			return err
		}
	}
}

func (c *commitCheck) mismatch(scope string, begin uint64, detail string) error {
	period := ratebatch.Period{Begin: time.Unix(int64(begin), 0).UTC()}
	period.End = period.Begin
	if !c.eof && c.at < c.block.Rows && c.block.Columns[commitBegin].Uint(c.at) == begin {
		period.End = time.Unix(int64(c.block.Columns[commitEnd].Uint(c.at)), 0).UTC()
	}
	return &mismatchError{scope, period, detail}
}

// decimalOf reads a word of a decimal column.
func decimalOf(word []byte) decimal.Decimal {
	return wideOf(word).decimal()
}

// wordOf writes a number as a word of a decimal column; ok is false if it has
// more digits than DECIMAL(38,18) holds.
func wordOf(d decimal.Decimal) (word [16]byte, ok bool) {
	n := d.Shift(Scale)
	if !n.IsInteger() || n.Abs().Cmp(decimalLimit) >= 0 {
		return word, false
	}
	v := n.BigInt()
	if v.Sign() < 0 {
		v.Add(v, new(big.Int).Lsh(big.NewInt(1), 128))
	}
	v.FillBytes(word[:])
	return word, true
}

var decimalLimit = decimal.New(1, Precision)

// wideOf widens a word of a decimal column.
func wideOf(word []byte) wide {
	w := wide{binary.BigEndian.Uint64(word[8:]), binary.BigEndian.Uint64(word)}
	if int64(w[1]) < 0 {
		w[2], w[3] = ^uint64(0), ^uint64(0)
	}
	return w
}
