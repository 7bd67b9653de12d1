package store

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// Names of what bills rest on beside plans and metrics.
const (
	SettingPeriod   = "period"           // length of a period, as a Go duration
	SettingFirst    = "first_period"     // where a scope's first period begins
	SettingTimezone = "billing_timezone" // the zone that months begin in
)

// BillingSetting is one of them, as it was set last.
type BillingSetting struct {
	Name      string    `json:"name"`
	Value     string    `json:"value"`
	Reason    string    `json:"reason,omitempty"`
	Author    string    `json:"author,omitempty"`
	ChangedAt time.Time `json:"changed_at,omitzero"`
}

// BillingSettings lists what was ever set, by name.
func (s *Store) BillingSettings(ctx context.Context) (map[string]BillingSetting, error) {
	list, err := Collect(ctx, s, "billing_settings", nil, func(rows driver.Rows) (BillingSetting, error) {
		var x BillingSetting
		err := rows.Scan(&x.Name, &x.Value, &x.Reason, &x.Author, &x.ChangedAt)
		x.ChangedAt = x.ChangedAt.UTC()
		return x, err
	})
	out := make(map[string]BillingSetting, len(list))
	for _, x := range list {
		out[x.Name] = x
	}
	return out, err
}

// Billing is what bills rest on beside plans and metrics. It belongs to the
// database: whoever reads it with another idea of it bills at another rate, or in
// another month.
type Billing struct {
	Period   time.Duration // 0: no run has settled it yet
	First    string        // empty: likewise
	Calendar ratebatch.Calendar
	Since    map[string]BillingSetting
}

// Billing reads the settings.
func (s *Store) Billing(ctx context.Context) (Billing, error) {
	var b Billing
	var err error
	if b.Since, err = s.BillingSettings(ctx); err != nil {
		return b, err
	}
	if text := b.Since[SettingPeriod].Value; text != "" {
		if b.Period, err = time.ParseDuration(text); err != nil {
			return b, fmt.Errorf("setting period: %w", err)
		}
	}
	b.First = b.Since[SettingFirst].Value
	b.Calendar, err = ratebatch.CalendarOf(b.Since[SettingTimezone].Value)
	return b, err
}

// PutBillingSetting sets one of them.
func (s *Store) PutBillingSetting(ctx context.Context, x BillingSetting) error {
	return s.Exec(ctx, "insert_billing_setting", Params{"name": x.Name, "value": x.Value, "reason": x.Reason, "author": x.Author})
}

// LastCounts are some of the counts of the last run of a job that had periods
// to rate; empty if there was none.
func (s *Store) LastCounts(ctx context.Context, job string, names ...string) (map[string]string, error) {
	list, err := Collect(ctx, s, "last_run_counts", Params{"job": job, "names": names}, func(rows driver.Rows) (map[string]string, error) {
		var x map[string]string
		err := rows.Scan(&x)
		return x, err
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}
