package store

import (
	"context"
	"encoding/hex"
	"errors"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// never is before every commit: a side of a difference that is as of then is empty.
var never = time.Unix(0, 0).UTC()

// AppendWindow is what of a window an append delivery adds: what counts now
// beside what counted when the delivery before was made. Where a side is nil,
// nothing counted.
type AppendWindow struct {
	From, To  time.Time
	Month     time.Time // whose closes the sides name
	Now, Then *Side
	Known     bool // only periods that Then has: those that are new are read with ExportLines
}

// Side is a state of a month: its commits as of a moment, without those that
// were billed already.
type Side struct {
	AsOf       time.Time
	Closed     uint32    // number of the close whose frozen commits count; 0: all
	BilledAsOf time.Time // zero: nothing was billed before
	Billed     uint32    // number of the close whose frozen commits were billed; 0: all there were at BilledAsOf
}

func (w AppendWindow) params(first, last string) Params {
	p := Params{"from": w.From, "to": w.To, "month": w.Month.UTC().Format(time.DateOnly), "known": w.Known, "first_scope": first, "last_scope": last}
	for prefix, side := range map[string]*Side{"": w.Now, "then_": w.Then} {
		if side == nil {
			side = &Side{AsOf: never}
		}
		billed := side.BilledAsOf
		if billed.IsZero() {
			billed = never
		}
		p[prefix+"as_of"], p[prefix+"closed"] = side.AsOf, side.Closed
		p[prefix+"billed_as_of"], p[prefix+"billed_closed"] = billed, side.Billed
	}
	return p
}

// AppendTotal is by how much the commits of a scope's day differ from those of
// the delivery before.
type AppendTotal struct {
	Day time.Time
	CorrectionTotal
}

// lastScope is behind every name of a scope: none begins with so many bytes 0xff.
const lastScope = "\xff\xff\xff\xff\xff\xff\xff\xff"

// AppendTotals says where and by how much the commits differ.
func (s *Store) AppendTotals(ctx context.Context, w AppendWindow) ([]AppendTotal, error) {
	return Collect(ctx, s, "append_totals", w.params("", lastScope), func(rows driver.Rows) (AppendTotal, error) {
		var t AppendTotal
		err := rows.Scan(&t.Day, &t.Scope, &t.Currency, &t.Total, &t.Commits)
		t.Day = t.Day.UTC()
		return t, err
	})
}

// AppendDifferences streams the lines' differences in a range of scopes, in
// the columns of ExportCorrections.
func (s *Store) AppendDifferences(ctx context.Context, w AppendWindow, first, last string) (*BlockReader, error) {
	return s.Blocks(ctx, "append_differences", w.params(first, last))
}

// AppendState is a window's commits beside those of the delivery before.
type AppendState struct {
	Now, Then, New CommitSet // of Then only the figure; New: of periods that Then has not
	Changed        uint64    // commits that took another's place
	CommittedAt    time.Time // of the newest commit
	Plans, Metrics []string
}

// AppendState compares the commits of a window with those as of then.
func (s *Store) AppendState(ctx context.Context, w ExportWindow) (AppendState, error) {
	var out AppendState
	out.New.Days = map[time.Time]CommitDay{}
	var now, then, added big.Int
	p := w.params()
	p["then_as_of"], p["then_closed"] = w.thenAsOf(), w.ThenClosed
	const classNew, classChanged = 1, 3
	_, err := Collect(ctx, s, "append_state", p, func(rows driver.Rows) (struct{}, error) {
		var day, at time.Time
		var class uint8
		var commits, before, lines uint64
		var digest, digestBefore big.Int
		var plans, metrics []string
		err := rows.Scan(&day, &class, &commits, &before, &digest, &digestBefore, &lines, &at, &plans, &metrics)
		now.Add(&now, &digest)
		then.Add(&then, &digestBefore)
		out.Now.Commits += commits
		out.Now.Lines += lines
		out.Then.Commits += before
		switch class {
		case classNew:
			added.Add(&added, &digest)
			out.New.Commits += commits
			out.New.Lines += lines
			out.New.Days[day.UTC()] = CommitDay{Commits: commits, Lines: lines, CommittedAt: at.UTC()}
		case classChanged:
			out.Changed += commits
		}
		if at.After(out.CommittedAt) {
			out.CommittedAt = at.UTC()
		}
		out.Plans, out.Metrics = append(out.Plans, plans...), append(out.Metrics, metrics...)
		return struct{}{}, err
	})
	for _, names := range []*[]string{&out.Plans, &out.Metrics} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	out.Now.Digest, out.Then.Digest, out.New.Digest = digestText(&now), digestText(&then), digestText(&added)
	return out, err
}

func digestText(sum *big.Int) string {
	return hex.EncodeToString(new(big.Int).And(sum, digestMask).FillBytes(make([]byte, 16)))
}

// thenAsOf is the moment of the delivery before, long ago if there is none.
func (w ExportWindow) thenAsOf() time.Time {
	if w.ThenAsOf.IsZero() {
		return never
	}
	return w.ThenAsOf
}

// exported gives the text and parameters of a query that streams a window,
// without what the append delivery before holds.
func (w ExportWindow) exported(name, first, last string) (string, Params) {
	text, p := SQL(name), w.scopes(first, last)
	if !w.ThenAsOf.IsZero() {
		text = strings.ReplaceAll(text, "/* NEW ONLY */", "AND (scope, begin) NOT IN (\n"+SQL("append_known")+")")
		p["then_as_of"], p["then_closed"] = w.ThenAsOf, w.ThenClosed
	}
	return text, p
}

// ExportCheck compares every commit of a window with its lines, on the server.
// It gives how many periods differ, the first of them, and whether there is any
// line at all where the commits count some.
func (s *Store) ExportCheck(ctx context.Context, w ExportWindow) (LineDifference, error) {
	var d LineDifference
	var first []any
	var lines, read uint64
	err := s.Row(ctx, "export_check", w.params(), &d.Periods, &lines, &read, &first)
	if err == nil && d.Periods > 0 {
		if len(first) != 2 {
			return d, errors.New("export_check: the first difference is no pair")
		}
		d.Scope, _ = first[0].(string)
		d.Begin, _ = first[1].(time.Time)
		d.Begin = d.Begin.UTC()
	}
	d.Gone = lines > 0 && read == 0
	return d, err
}

// LineDifference is what ExportCheck found.
type LineDifference struct {
	Periods uint64
	Scope   string // of the first period
	Begin   time.Time
	Gone    bool // the commits count lines and there is none
}
