package store

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"
)

// CostWindow is a window whose lines are shown: those of the current commits,
// or the frozen ones of a closed month.
type CostWindow struct {
	From, To time.Time
	Month    time.Time // whose close Closed is; any time while Closed is 0
	Closed   uint32    // number of the close; 0: the current commits
}

func (w CostWindow) params() Params {
	return ExportWindow{From: w.From, To: w.To, Month: w.Month, Closed: w.Closed}.params()
}

// CostHour is what a window's commits of a quarter of an hour are known by.
type CostHour struct {
	Hour    time.Time // its begin
	Commits uint64
	Latest  time.Time
	Voids   uint64 // of the whole database
}

// CostState says what the commits of a window are: figures of an hour have to
// be read again when its line is another one.
func (s *Store) CostState(ctx context.Context, from, to time.Time) ([]CostHour, error) {
	return Collect(ctx, s, "web_cost_state", Params{"from": from, "to": to}, func(rows driver.Rows) (CostHour, error) {
		var x CostHour
		err := rows.Scan(&x.Hour, &x.Commits, &x.Latest, &x.Voids)
		x.Hour, x.Latest = x.Hour.UTC(), x.Latest.UTC()
		return x, err
	})
}

// CostCommit is what a window's commits say of one scope.
type CostCommit struct {
	Scope, Currency string
	Lines           uint64
	Total           decimal.Decimal
	RatedUntil      time.Time
	Periods         uint64
}

// CostCommits sums up the commits of a window per scope and currency.
func (s *Store) CostCommits(ctx context.Context, w CostWindow) ([]CostCommit, error) {
	return Collect(ctx, s, "web_cost_commits", w.params(), func(rows driver.Rows) (CostCommit, error) {
		var x CostCommit
		err := rows.Scan(&x.Scope, &x.Currency, &x.Lines, &x.Total, &x.RatedUntil, &x.Periods)
		x.RatedUntil = x.RatedUntil.UTC()
		return x, err
	})
}

// CostCell is what one scope's lines of one metric amount to.
type CostCell struct {
	Scope, Metric, Unit string
	Bucket              string // empty: priced
	Lines               uint64
	Qty, Price          decimal.Decimal
}

// CostCells sums up the lines of a window that were rated in one currency.
func (s *Store) CostCells(ctx context.Context, w CostWindow, currency string) ([]CostCell, error) {
	p := w.params()
	p["currency"] = currency
	return Collect(ctx, s, "web_cost_cells", p, func(rows driver.Rows) (CostCell, error) {
		var x CostCell
		err := rows.Scan(&x.Scope, &x.Metric, &x.Unit, &x.Bucket, &x.Lines, &x.Qty, &x.Price)
		return x, err
	})
}

// TopPrice is an instance with what it costs to one scope.
type TopPrice struct {
	ID    uuid.UUID
	Scope string
	Price decimal.Decimal
}

// TopPrices are the instances that cost most in a window, and what was read for
// it.
type TopPrices struct {
	List   []TopPrice
	Lines  uint64          // all that were read, those of no instance included
	Total  decimal.Decimal // what these amount to
	Others decimal.Decimal // what of it is of no known instance
}

// TopPrices reads the instances that cost most in a window, in one currency; of
// one scope, or of all if it is empty.
func (s *Store) TopPrices(ctx context.Context, w CostWindow, scope, currency string, limit uint32) (out TopPrices, err error) {
	p := w.params()
	p["scope"], p["currency"], p["limit"] = scope, currency, limit
	err = s.each(WithParams(ctx, p), "web_top_price", SQL("web_top_price"), func(rows driver.Rows) error {
		var x TopPrice
		var shown bool
		err := rows.Scan(&x.ID, &x.Scope, &x.Price, &shown, &out.Lines, &out.Total, &out.Others)
		if shown {
			out.List = append(out.List, x)
		}
		return err
	})
	return out, err
}

// InstanceCost is what an instance costs in a step of time by one metric.
type InstanceCost struct {
	Metric, Unit, Currency string
	Begin                  time.Time // of the step
	Until                  time.Time // end of the last period of it that has lines
	Lines                  uint64
	Qty, Price             decimal.Decimal
}

// InstanceCosts is what an instance costs a scope in a window, by steps of whole
// seconds that are counted from the Unix epoch.
func (s *Store) InstanceCosts(ctx context.Context, w CostWindow, scope string, instance uuid.UUID, step time.Duration) ([]InstanceCost, error) {
	p := w.params()
	p["scope"], p["instance"], p["step"] = scope, instance.String(), int(step/time.Second)
	return Collect(ctx, s, "web_instance_costs", p, func(rows driver.Rows) (InstanceCost, error) {
		var x InstanceCost
		err := rows.Scan(&x.Metric, &x.Unit, &x.Currency, &x.Begin, &x.Until, &x.Lines, &x.Qty, &x.Price)
		x.Begin, x.Until = x.Begin.UTC(), x.Until.UTC()
		return x, err
	})
}

// InstanceScopes are the scopes that have lines of an instance by some metrics in
// a window, those of attempts that do not count included.
func (s *Store) InstanceScopes(ctx context.Context, from, to time.Time, instance uuid.UUID, metrics []string) ([]string, error) {
	return Collect(ctx, s, "web_instance_scopes", Params{"from": from, "to": to, "instance": instance.String(), "metrics": metrics}, func(rows driver.Rows) (string, error) {
		var scope string
		err := rows.Scan(&scope)
		return scope, err
	})
}

// LinesAgree says whether the lines of a window are those that its commits
// state, commit by commit, by count and total; of one scope, or of all if it is
// empty.
func (s *Store) LinesAgree(ctx context.Context, w CostWindow, scope string) (bool, error) {
	p := w.params()
	p["scope"] = scope
	var agree bool
	err := s.Row(ctx, "web_scope_check", p, &agree)
	return agree, err
}

// LineState changes when periods of a window get other lines than they had; of
// one scope, or of all if it is empty. Periods that had none are left out.
func (s *Store) LineState(ctx context.Context, w CostWindow, scope string) (string, error) {
	var again, voids uint64
	err := s.Row(ctx, "web_line_state", Params{"scope": scope, "from": w.From, "to": w.To}, &again, &voids)
	return fmt.Sprintf("%d.%d.%d", again, voids, w.Closed), err
}

// LinePage says which page of lines is read.
type LinePage struct {
	CostWindow
	Scope, Metric, Resource, Instance string // empty: any
	Bucket                            string // empty: any; "lines": priced ones
	After                             *LineCursor
	Limit                             int
}

// LineCursor is the place of a line in the order of pages.
type LineCursor struct {
	Scope      string    `json:"s"`
	Begin      time.Time `json:"b"`
	Metric     string    `json:"m"`
	Resource   string    `json:"r"`
	Region     string    `json:"g"`
	Attributes string    `json:"a"` // as ClickHouse writes the map
	Part       uint16    `json:"p"`
}

// Lines gives a page of rated lines, and the place of each.
func (s *Store) Lines(ctx context.Context, page LinePage) ([]FoundLine, []LineCursor, error) {
	p := page.params()
	after := page.After
	if after == nil {
		after = &LineCursor{Begin: time.Unix(0, 0)}
	}
	for name, value := range map[string]any{"scope": page.Scope, "metric": page.Metric, "resource": page.Resource, "instance": page.Instance, "bucket": page.Bucket, "limit": page.Limit,
		"paged": page.After != nil, "after_scope": after.Scope, "after_begin": after.Begin, "after_metric": after.Metric, "after_resource": after.Resource, "after_region": after.Region,
		"after_attributes": after.Attributes, "after_part": after.Part} {
		p[name] = value
	}
	// Of the lines behind the cursor as many as a page holds lie up to here. Some
	// of the cursor's own key may come before them; the page ends sooner then.
	var until LineCursor
	bound, err := Collect(ctx, s, "web_line_bound", p, func(rows driver.Rows) (LineCursor, error) {
		err := rows.Scan(&until.Scope, &until.Begin, &until.Metric, &until.Resource)
		return until, err
	})
	if err != nil {
		return nil, nil, err
	}
	p["bounded"], p["until_scope"], p["until_begin"], p["until_metric"], p["until_resource"] = len(bound) > 0, until.Scope, time.Unix(max(0, until.Begin.Unix()), 0), until.Metric, until.Resource
	var places []LineCursor
	list, err := Collect(ctx, s, "web_lines", p, func(rows driver.Rows) (FoundLine, error) {
		var l FoundLine
		var attributes string
		err := rows.Scan(&l.Region, &l.Scope, &l.Begin, &l.End, &l.Metric, &l.Resource, &l.Attributes, &l.Unit, &l.Qty, &l.Price, &l.Rule, &l.Bucket, &l.Part, &l.Revision, &l.RunID, &attributes)
		l.Begin, l.End = l.Begin.UTC(), l.End.UTC()
		places = append(places, LineCursor{l.Scope, l.Begin, l.Metric, l.Resource, l.Region, attributes, l.Part})
		return l, err
	})
	return list, places, err
}

// CommitID names a run's commit of a period.
type CommitID struct {
	Scope string
	Begin int64 // seconds since 1970
	RunID uuid.UUID
}

// CommitCurrencies are the currencies of the commits of some scopes.
func (s *Store) CommitCurrencies(ctx context.Context, scopes []string, from, to time.Time) (map[CommitID]string, error) {
	rows, err := s.Rows(ctx, "web_commit_currencies", Params{"scopes": scopes, "from": from, "to": to})
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[CommitID]string{}
	for rows.Next() {
		var id CommitID
		var begin time.Time
		var currency string
		if err := rows.Scan(&id.Scope, &begin, &id.RunID, &currency); err != nil {
			return nil, err
		}
		id.Begin = begin.Unix()
		out[id] = currency
	}
	return out, describe(rows.Err())
}

// Unpriced is usage in a bucket instead of a price.
type Unpriced struct {
	Scope  string          `json:"project"`
	Name   string          `json:"project_name"` // filled in by the caller
	Metric string          `json:"metric"`
	Bucket string          `json:"bucket"`
	Reason string          `json:"reason"`
	Unit   string          `json:"unit"`
	Qty    decimal.Decimal `json:"qty"`
	Lines  uint64          `json:"lines"`
	First  time.Time       `json:"first"`
	Last   time.Time       `json:"last"`
}

// UnpricedUsage lists usage in buckets, and how many rows there are in all.
func (s *Store) UnpricedUsage(ctx context.Context, w CostWindow, scope string, limit, offset int) ([]Unpriced, uint64, error) {
	p := w.params()
	p["scope"], p["limit"], p["skip"] = scope, limit, offset
	var total uint64
	list, err := Collect(ctx, s, "web_unpriced", p, func(rows driver.Rows) (Unpriced, error) {
		var x Unpriced
		err := rows.Scan(&x.Scope, &x.Metric, &x.Bucket, &x.Reason, &x.Unit, &x.Qty, &x.Lines, &x.First, &x.Last, &total)
		x.First, x.Last = x.First.UTC(), x.Last.UTC()
		return x, err
	})
	return list, total, err
}

// JobRun is one run of a job, as it ended.
type JobRun struct {
	RunID     uuid.UUID
	Job       string
	State     string
	Host      string
	Version   string
	Arguments []string
	Counts    map[string]string
	Error     string
	Hint      string
	StartedAt time.Time
	EndedAt   time.Time // of a running one when it began
}

// JobRuns lists runs, the newest first, and how many there are.
func (s *Store) JobRuns(ctx context.Context, job, state string, limit, offset int) ([]JobRun, uint64, error) {
	var total uint64
	list, err := Collect(ctx, s, "web_runs", Params{"job": job, "state": state, "limit": limit, "skip": offset}, func(rows driver.Rows) (JobRun, error) {
		var x JobRun
		err := rows.Scan(&x.RunID, &x.Job, &x.State, &x.Host, &x.Version, &x.Arguments, &x.Counts, &x.Error, &x.Hint, &x.StartedAt, &x.EndedAt, &total)
		x.StartedAt, x.EndedAt = x.StartedAt.UTC(), x.EndedAt.UTC()
		return x, err
	})
	return list, total, err
}

// NotedExport is a delivery as the table exports notes it.
type NotedExport struct {
	Export
	ExportedAt time.Time
}

// Deliveries lists exports, the newest first, and how many there are.
func (s *Store) Deliveries(ctx context.Context, limit, offset int) ([]NotedExport, uint64, error) {
	var total uint64
	list, err := Collect(ctx, s, "web_exports", Params{"limit": limit, "skip": offset}, func(rows driver.Rows) (NotedExport, error) {
		var x NotedExport
		err := rows.Scan(&x.Delivery, &x.Dataset, &x.Mechanism, &x.Location, &x.Month, &x.Begin, &x.End, &x.Commits, &x.CommitDigest, &x.Files, &x.Rows, &x.Totals, &x.ManifestSHA256, &x.RunID, &x.ExportedAt, &total)
		x.Month, x.Begin, x.End, x.ExportedAt = x.Month.UTC(), x.Begin.UTC(), x.End.UTC(), x.ExportedAt.UTC()
		return x, err
	})
	return list, total, err
}

// CommitSpan says from when to when there are commits; 1970 if there are none.
func (s *Store) CommitSpan(ctx context.Context) (first, last time.Time, err error) {
	err = s.Row(ctx, "web_commit_span", nil, &first, &last)
	return first.UTC(), last.UTC(), err
}
