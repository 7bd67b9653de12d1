package exporter

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// A closed month's files never change. What is rated differently afterwards is
// billed as corrections in the earliest month that is still open: the
// difference between the lines that count now and those that were billed.
// Billed is what the close froze and, once the month that took the corrections
// was closed too, what counted at that moment. No record of corrections is
// kept: every close's moment is, and commits are never edited, so what was
// billed can be worked out again at any time.

// correction is a closed month that differs from what was billed of it.
type correction struct {
	window store.CorrectionWindow
	totals []store.CorrectionTotal // per scope and currency
}

// closes finds out whether the month is closed and which corrections it takes.
func (e *export) closes(ctx context.Context) error {
	changes, err := e.Store.MonthCloses(ctx)
	if err != nil {
		return err
	}
	e.history = changes
	if err := e.sound(); err != nil {
		return err
	}
	own, windows, err := e.correctionWindows(ctx, e.window.AsOf)
	if err != nil {
		return err
	}
	if own != nil {
		e.closed, e.window.Closed = true, own.Number
	}
	for _, w := range windows {
		totals, err := e.Store.ExportCorrectionTotals(ctx, w)
		if err != nil {
			return err
		}
		if len(totals) > 0 {
			e.corrections = append(e.corrections, correction{w, totals})
		}
	}
	return nil
}

// correctionWindows says, as of a moment, by which close the month is closed
// (nil: it is open) and which closed months it takes corrections of. A closed
// month takes those that there were when it was closed.
func (e *export) correctionWindows(ctx context.Context, asOf time.Time) (own *store.MonthClose, windows []store.CorrectionWindow, err error) {
	closed := e.history.closed(asOf)
	for _, c := range closed {
		if c.Month.Equal(e.Month) {
			own, asOf = &c, c.At
		}
	}
	if own != nil {
		closed = e.history.closed(asOf)
	}
	for i, c := range closed {
		if !c.Month.Before(e.Month) {
			break
		}
		takes, err := e.takes(ctx, c.Month, e.Month, asOf)
		if err != nil {
			return nil, nil, err
		}
		if !takes {
			continue
		}
		month := e.Calendar.Named(c.Month)
		w := store.CorrectionWindow{ExportWindow: store.ExportWindow{From: month.From, To: month.To, AsOf: asOf, Month: c.Month, Closed: c.Number}, BaseAsOf: c.At}
		for _, o := range closed[i+1:] { // in the order of months
			if o.Month.Equal(e.Month) || !o.At.After(w.BaseAsOf) {
				continue
			}
			took, err := e.takes(ctx, c.Month, o.Month, o.At)
			if err != nil {
				return nil, nil, err
			}
			if took {
				w.BaseAsOf, w.Closed = o.At, 0
			}
		}
		windows = append(windows, w)
	}
	return own, windows, nil
}

// correctionParts are the ranges of scopes that are written on their own.
func (e *export) correctionParts(c correction) []part {
	first, last := c.totals[0].Scope, c.totals[len(c.totals)-1].Scope
	name := "corrections-" + c.window.Month.Format("2006-01") + "." + e.Format
	switch e.Partition { //nolint:exhaustive // one file but for scopes
	case ByScope:
		var parts []part
		for _, t := range c.totals {
			if n := len(parts); n > 0 && parts[n-1].first == t.Scope {
				continue // another currency
			}
			parts = append(parts, part{first: t.Scope, last: t.Scope, partition: map[string]string{"scope": t.Scope}, path: scopeFolder(t.Scope) + name})
		}
		return parts
	case ByDay:
		day := e.Month.Format("2006-01-02") // they are billed in this month, whatever their own day
		return []part{{first: first, last: last, partition: map[string]string{"day": day}, path: "day=" + day + "/" + name}}
	}
	return []part{{first: first, last: last, path: name}}
}

// writeCorrections adds the corrections to a delivery. Statements have them in
// already; here they are added up only.
func (e *export) writeCorrections(ctx context.Context, m *Manifest) error {
	all := map[string]*wide{}
	for currency, text := range m.Totals {
		word, err := decimal.NewFromString(text)
		if err != nil {
			return err
		}
		all[currency] = wideDecimal(word)
	}
	for _, c := range e.corrections {
		sums := map[scopeCurrency]*wide{}
		out := Correction{Month: c.window.Month.Format("2006-01"), Totals: map[string]string{}}
		for _, p := range e.correctionParts(c) {
			files, rows, err := e.writeCorrectionPart(ctx, c, p, sums)
			if err != nil {
				return err
			}
			for _, f := range files {
				m.Files = append(m.Files, f)
				m.Rows += f.Rows
			}
			out.Rows += rows
		}
		totals := map[string]*wide{}
		for _, t := range c.totals {
			key := scopeCurrency{t.Scope, t.Currency}
			got := decimal.Zero
			if sum := sums[key]; sum != nil {
				got = sum.decimal()
			}
			delete(sums, key)
			if !got.Equal(t.Total) {
				return &mismatchError{scope: t.Scope, period: ratebatch.Period{Begin: c.window.From, End: c.window.To},
					detail: fmt.Sprintf("the commits differ by %s %s from what was billed, their lines by %s", t.Total, t.Currency, got)}
			}
			out.Commits += t.Commits
			for _, to := range []map[string]*wide{totals, all} {
				if to[t.Currency] == nil && !t.Total.IsZero() {
					to[t.Currency] = new(wide)
				}
				if sum := to[t.Currency]; sum != nil {
					sum.add(*wideDecimal(t.Total))
				}
			}
		}
		for key, sum := range sums {
			if *sum != (wide{}) {
				return &mismatchError{scope: key.scope, period: ratebatch.Period{Begin: c.window.From, End: c.window.To},
					detail: fmt.Sprintf("lines differ by %s %s from what was billed, the commits do not", sum.decimal(), key.currency)}
			}
		}
		out.Totals = totalsText(totals)
		m.Corrections = append(m.Corrections, out)
	}
	m.Totals = totalsText(all)
	return nil
}

func wideDecimal(d decimal.Decimal) *wide {
	n := d.Shift(Scale).BigInt()
	if n.Sign() < 0 {
		n.Add(n, new(big.Int).Lsh(big.NewInt(1), 256))
	}
	var raw [32]byte
	n.FillBytes(raw[:])
	var w wide
	for i := range w {
		w[i] = binary.BigEndian.Uint64(raw[24-8*i:])
	}
	return &w
}

func (e *export) writeCorrectionPart(ctx context.Context, c correction, p part, sums map[scopeCurrency]*wide) ([]File, uint64, error) {
	blocks, err := e.Store.ExportCorrections(ctx, c.window, p.first, p.last)
	if err != nil {
		return nil, 0, err
	}
	return e.writeDifferences(ctx, blocks, p, e.correctionName(), sums)
}

// correctionName is the name, within the corrected line's id, of what corrects
// it in this month.
func (e *export) correctionName() string { return "correction/" + e.Month.Format("2006-01") }

// writeDifferences writes the file of a part that holds differences of lines,
// adds them up in sums, and closes blocks. name makes their ids.
func (e *export) writeDifferences(ctx context.Context, blocks *store.BlockReader, p part, name string, sums map[scopeCurrency]*wide) (_ []File, rows uint64, err error) {
	defer blocks.Close()
	builder := newLineBuilder(nil)
	builder.differs, builder.totals = name, sums
	reader := &lineReader{blocks: blocks, builder: builder}
	out := &output{e: e, ctx: ctx, schema: e.schema(), path: e.prefix + p.path, partition: p.partition}
	defer out.abort()
	var to sink
	if e.Dataset != statementSchema.Dataset {
		to = e.newSink(out, p)
	}
	t := e.takeTable()
	defer e.giveTable(t)
	for {
		more, err := reader.next(t)
		if err != nil {
			return nil, 0, err
		}
		if !more {
			break
		}
		rows += uint64(t.rows)
		if to == nil {
			continue
		}
		if err := to.add(t); err != nil {
			return nil, 0, err
		}
	}
	if to == nil {
		return nil, rows, nil
	}
	err = to.end()
	return out.files, rows, err
}

// statementCorrections reads all corrections' lines for statements, which show
// them beside the month's own usage. Corrections are few.
func (e *export) statementCorrections(ctx context.Context) (map[string]map[statementKey]*sums, error) {
	all := map[string]map[statementKey]*sums{}
	for _, c := range e.corrections {
		blocks, err := e.Store.ExportCorrections(ctx, c.window, c.totals[0].Scope, c.totals[len(c.totals)-1].Scope)
		if err != nil {
			return nil, err
		}
		builder := newLineBuilder(nil)
		builder.differs, builder.totals = e.correctionName(), map[scopeCurrency]*wide{}
		reader := &lineReader{blocks: blocks, builder: builder}
		t := e.takeTable()
		for more := true; more && err == nil; {
			if more, err = reader.next(t); err == nil && more {
				sink := statementSink{}
				for row := range t.rows {
					if text(t, outBucket, row) != "" {
						continue // usage without a price is on no statement
					}
					scope := text(t, outScope, row)
					if all[scope] == nil {
						all[scope] = map[statementKey]*sums{}
					}
					sink.lines = all[scope]
					sink.count(t, row)
				}
			}
		}
		e.giveTable(t)
		if closing := blocks.Close(); err == nil {
			err = closing
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// correctedScopes are the scopes with corrections, sorted.
func correctedScopes(all map[string]map[statementKey]*sums) []string {
	return slices.Sorted(maps.Keys(all))
}
