package store

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"
)

// ScopeStatus says up to when a scope is rated and what that amounts to.
type ScopeStatus struct {
	Scope      string          `json:"scope"`
	Currency   string          `json:"currency"`
	Periods    uint64          `json:"periods"`
	First      time.Time       `json:"first"`
	RatedUntil time.Time       `json:"rated_until"`
	Price      decimal.Decimal `json:"price"`
	Unpriced   uint64          `json:"unpriced"`
	Rejected   uint64          `json:"rejected"`
	Skipped    uint64          `json:"skipped"`
}

// ScopeStatuses lists the scopes that have rated periods.
func (s *Store) ScopeStatuses(ctx context.Context) ([]ScopeStatus, error) {
	return Collect(ctx, s, "status_scopes", nil, func(rows driver.Rows) (ScopeStatus, error) {
		var x ScopeStatus
		err := rows.Scan(&x.Scope, &x.Currency, &x.Periods, &x.First, &x.RatedUntil, &x.Price, &x.Unpriced, &x.Rejected, &x.Skipped)
		return x, err
	})
}

// JobStatus is the last run of a job.
type JobStatus struct {
	Job         string    `json:"job"`
	RunID       uuid.UUID `json:"run_id"`
	State       string    `json:"state"`
	LastStart   time.Time `json:"last_start"`
	Error       string    `json:"error,omitempty"`
	Hint        string    `json:"hint,omitempty"`
	LastSuccess time.Time `json:"last_success"`
}

// JobStatuses lists the jobs that ever ran.
func (s *Store) JobStatuses(ctx context.Context) ([]JobStatus, error) {
	return Collect(ctx, s, "status_jobs", nil, func(rows driver.Rows) (JobStatus, error) {
		var x JobStatus
		err := rows.Scan(&x.Job, &x.RunID, &x.State, &x.LastStart, &x.Error, &x.Hint, &x.LastSuccess)
		return x, err
	})
}

// SetScope records what is now true of a scope.
func (s *Store) SetScope(ctx context.Context, x ScopeState, author string) error {
	return s.Exec(ctx, "insert_scope", Params{"scope": x.Scope, "active": x.Active, "name": x.Name, "domain": x.Domain, "fetcher": x.Fetcher, "reason": x.Reason, "author": author})
}

// SetWatermark says up to when a region's input is complete.
func (s *Store) SetWatermark(ctx context.Context, w Watermark, note string) error {
	return s.Exec(ctx, "insert_watermark", Params{"region": w.Region, "complete_until": w.CompleteUntil, "source": w.Source, "note": note})
}

// MetricPrice is what a scope owes for one metric.
type MetricPrice struct {
	Scope  string          `json:"scope"`
	Metric string          `json:"metric"`
	Price  decimal.Decimal `json:"price"`
	Qty    decimal.Decimal `json:"qty"`
	Unit   string          `json:"unit"`
	Lines  uint64          `json:"lines"`
}

// MetricPrices sums the lines that count in [from, to) per scope and metric.
func (s *Store) MetricPrices(ctx context.Context, from, to time.Time) ([]MetricPrice, error) {
	return Collect(ctx, s, "prices_by_project", Params{"from": from, "to": to}, func(rows driver.Rows) (MetricPrice, error) {
		var x MetricPrice
		err := rows.Scan(&x.Scope, &x.Metric, &x.Price, &x.Qty, &x.Unit, &x.Lines)
		return x, err
	})
}
