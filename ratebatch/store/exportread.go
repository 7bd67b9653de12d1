package store

import (
	"context"
	"math/big"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"
)

// ExportWindow is what an export reads: the periods that begin in [From, To),
// by the commits that there were at AsOf.
type ExportWindow struct {
	From, To time.Time
	AsOf     time.Time
	Month    time.Time // whose closes Closed and ThenClosed are; any time while both are 0
	Closed   uint32    // number of the close whose frozen commits are read; 0: the current ones

	// An append delivery leaves out the periods that the one before holds: those
	// committed at ThenAsOf, by the frozen commits of close ThenClosed if it is
	// not 0. Zero: nothing is left out.
	ThenAsOf   time.Time
	ThenClosed uint32
}

func (w ExportWindow) params() Params {
	month := w.Month
	if month.IsZero() {
		month = w.From
	}
	return Params{"from": w.From, "to": w.To, "as_of": w.AsOf, "month": month.UTC().Format(time.DateOnly), "closed": w.Closed}
}

func (w ExportWindow) scopes(first, last string) Params {
	p := w.params()
	p["first_scope"], p["last_scope"] = first, last
	return p
}

// ExportWindowNow is the window as of now by the server's clock, the one that
// commits are timed by.
func (s *Store) ExportWindowNow(ctx context.Context, from, to time.Time) (ExportWindow, error) {
	w := ExportWindow{From: from, To: to}
	err := s.Row(ctx, "server_time", nil, &w.AsOf)
	return w, err
}

// CommittedScope is how much of a window a scope has committed.
type CommittedScope struct {
	Scope string
	First time.Time // begin of its first period, in the window or before
	Until time.Time // end of its last settled period in the window; 1970 if none
	// CompleteUntil is where its first hole begins: up to there every period from
	// its first one on, or from the window's begin, is settled.
	CompleteUntil time.Time
	Covered       time.Duration // of settled periods in the window
	Periods       uint64
	Lines         uint64
}

// ExportScopes says how much of a window each scope has committed.
func (s *Store) ExportScopes(ctx context.Context, w ExportWindow) ([]CommittedScope, error) {
	return Collect(ctx, s, "export_window", w.params(), func(rows driver.Rows) (CommittedScope, error) {
		var scope CommittedScope
		var covered uint64
		err := rows.Scan(&scope.Scope, &scope.First, &covered, &scope.Until, &scope.Periods, &scope.Lines, &scope.CompleteUntil)
		scope.Covered = time.Duration(covered) * time.Second
		scope.First, scope.Until, scope.CompleteUntil = scope.First.UTC(), scope.Until.UTC(), scope.CompleteUntil.UTC()
		return scope, err
	})
}

// CommitSet is a window's current commits as one figure, and per day.
type CommitSet struct {
	Commits uint64
	Digest  string // 32 hexadecimal digits
	Lines   uint64
	Days    map[time.Time]CommitDay
}

// CommitDay is what the commits of a day amount to.
type CommitDay struct {
	Commits, Lines uint64
	CommittedAt    time.Time
}

// ExportCommitSet reads the figure that the commits of a window add up to.
func (s *Store) ExportCommitSet(ctx context.Context, w ExportWindow) (CommitSet, error) {
	set := CommitSet{Days: map[time.Time]CommitDay{}}
	rows, err := s.Rows(ctx, "export_commit_set", w.params())
	if err != nil {
		return set, err
	}
	defer rows.Close()
	var sum big.Int
	for rows.Next() {
		var day time.Time
		var digest big.Int
		var of CommitDay
		if err := rows.Scan(&day, &of.Commits, &digest, &of.Lines, &of.CommittedAt); err != nil {
			return set, err
		}
		of.CommittedAt = of.CommittedAt.UTC()
		set.Days[day.UTC()] = of
		set.Commits += of.Commits
		set.Lines += of.Lines
		sum.Add(&sum, &digest)
	}
	if err := rows.Err(); err != nil {
		return set, describe(err)
	}
	set.Digest = digestText(&sum)
	return set, nil
}

var digestMask = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1))

// ExportCommits streams the current commits of a window and a range of scopes.
func (s *Store) ExportCommits(ctx context.Context, w ExportWindow, first, last string) (*BlockReader, error) {
	text, p := w.exported("export_commits", first, last)
	return s.blocksOf(ctx, "export_commits", text, p)
}

// ExportLines streams the rated lines that count in a window and a range of scopes.
func (s *Store) ExportLines(ctx context.Context, w ExportWindow, first, last string) (*BlockReader, error) {
	text, p := w.exported("export_lines", first, last)
	return s.blocksOf(ctx, "export_lines", text, p)
}

// Export is a row of the table exports: what was delivered where.
type Export struct {
	Delivery       string
	Dataset        string
	Mechanism      string // overwrite or append
	Location       string
	Month          time.Time
	Begin, End     time.Time
	Commits        uint64
	CommitDigest   string
	Files          uint32
	Rows           uint64
	Totals         map[string]decimal.Decimal
	ManifestSHA256 string
	RunID          uuid.UUID
	// AsOf is the moment whose state was delivered, by the server's clock. It is
	// what exported_at keeps: what was committed or closed while the export ran is
	// not in it.
	AsOf time.Time
}

// RecordExport writes down a delivery. The token makes a repetition within one
// run harmless.
func (s *Store) RecordExport(ctx context.Context, e Export) error {
	token := "export:" + e.RunID.String() + ":" + e.Location + ":" + e.Dataset + ":" + e.Delivery
	ctx = Settings(ctx, map[string]any{"insert_deduplication_token": token, "async_insert": 0})
	batch, err := s.conn.PrepareBatch(ctx, "INSERT INTO exports (delivery, dataset, mechanism, location, month, begin, end, commits, commits_digest, files, rows, totals, manifest_sha256, run_id, exported_at)")
	if err != nil {
		return describe(err)
	}
	totals := e.Totals
	if totals == nil {
		totals = map[string]decimal.Decimal{}
	}
	err = batch.Append(e.Delivery, e.Dataset, e.Mechanism, e.Location, e.Month, e.Begin, e.End, e.Commits, e.CommitDigest,
		e.Files, e.Rows, totals, e.ManifestSHA256, e.RunID, e.AsOf)
	if err != nil {
		return err
	}
	return describe(batch.Send())
}

// LastExport gives the checksum of the manifest of the newest delivery on
// record of a month at a place, empty if there is none.
func (s *Store) LastExport(ctx context.Context, location, dataset string, month time.Time) (string, error) {
	var manifest string
	err := s.Row(ctx, "last_export", Params{"location": location, "dataset": dataset, "month": month.UTC().Format(time.DateOnly)}, &manifest)
	return manifest, err
}

// RecordedDelivery is a delivery that was the current one of its place.
type RecordedDelivery struct {
	Delivery string
	AsOf     time.Time // whose commits it shows; it was published somewhat later
}

// RecordedDeliveries lists the deliveries of a month at a place in the order in
// which they became the current one.
func (s *Store) RecordedDeliveries(ctx context.Context, location, dataset string, month time.Time) ([]RecordedDelivery, error) {
	return Collect(ctx, s, "recorded_deliveries", Params{"location": location, "dataset": dataset, "month": month.UTC().Format(time.DateOnly)}, func(rows driver.Rows) (RecordedDelivery, error) {
		var d RecordedDelivery
		err := rows.Scan(&d.Delivery, &d.AsOf)
		d.AsOf = d.AsOf.UTC()
		return d, err
	})
}

// MonthClose is a closed month.
type MonthClose struct {
	Month  time.Time
	Number uint32 // of the close, from 1
	At     time.Time
}

// ExportCloses lists the months that are closed at a moment.
func (s *Store) ExportCloses(ctx context.Context, asOf time.Time) ([]MonthClose, error) {
	return Collect(ctx, s, "export_closes", Params{"as_of": asOf}, func(rows driver.Rows) (MonthClose, error) {
		var c MonthClose
		err := rows.Scan(&c.Month, &c.Number, &c.At)
		c.Month, c.At = c.Month.UTC(), c.At.UTC()
		return c, err
	})
}

// CorrectionWindow is a closed month as it is now beside what was billed of it:
// the frozen commits of its close, or those there were at BaseAsOf.
type CorrectionWindow struct {
	ExportWindow
	BaseAsOf time.Time
}

func (w CorrectionWindow) params() Params {
	p := w.ExportWindow.params()
	p["base_as_of"] = w.BaseAsOf
	return p
}

// CorrectionTotal is by how much a scope's commits differ from the billed ones.
type CorrectionTotal struct {
	Scope, Currency string
	Total           decimal.Decimal
	Commits         uint64
	Digest          string // of the lines on both sides, by ExportCorrectionTotals
}

// ExportCorrectionTotals lists the scopes whose commits differ from the billed ones.
func (s *Store) ExportCorrectionTotals(ctx context.Context, w CorrectionWindow) ([]CorrectionTotal, error) {
	return Collect(ctx, s, "export_correction_totals", w.params(), func(rows driver.Rows) (CorrectionTotal, error) {
		var t CorrectionTotal
		var digest big.Int
		err := rows.Scan(&t.Scope, &t.Currency, &t.Total, &t.Commits, &digest)
		t.Digest = digestText(&digest)
		return t, err
	})
}

// ExportCorrections streams the lines' differences in a range of scopes.
func (s *Store) ExportCorrections(ctx context.Context, w CorrectionWindow, first, last string) (*BlockReader, error) {
	p := w.params()
	p["first_scope"], p["last_scope"] = first, last
	return s.Blocks(ctx, "export_corrections", p)
}

// ExportScopeTotals gives what each scope's commits amount to, per currency;
// Commits is not filled.
func (s *Store) ExportScopeTotals(ctx context.Context, w ExportWindow) ([]CorrectionTotal, error) {
	return Collect(ctx, s, "export_scope_totals", w.params(), func(rows driver.Rows) (CorrectionTotal, error) {
		var t CorrectionTotal
		err := rows.Scan(&t.Scope, &t.Currency, &t.Total)
		return t, err
	})
}
