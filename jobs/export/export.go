// Package export is the job that delivers rated months to where finance reads
// them. Plan says what would be written; Run writes it, or nothing when the
// current delivery holds the same state.
package export

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/exporter/bucket"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// DefaultGrace is how long a delivery that was replaced stays readable.
const DefaultGrace = 24 * time.Hour

// Options are what the command line decides.
type Options struct {
	Month     time.Time // first day, as a date in UTC
	Calendar  ratebatch.Calendar
	Datasets  []string
	Format    string
	Mechanism exporter.Mechanism
	Partition exporter.Partition
	Partial   bool
	Closed    bool // only a closed month

	FocusVersion string
	Operator     string
	RoundTo      int32
	SignKey      ed25519.PrivateKey

	Grace   time.Duration
	Workers int
	Now     time.Time
	Version string
}

// Job exports one month.
type Job struct {
	Store    *store.Store
	Bucket   bucket.Bucket
	Log      *slog.Logger
	Options  Options
	Progress func(rows uint64)
	// Expected says which scopes have to be rated in the month; see exporter.Input.
	Expected func(ctx context.Context, month ratebatch.Month) ([]store.DueWindow, error)
	// Held says whether the place's lease is still this run's; nil: it needs none.
	Held func(ctx context.Context) (bool, error)
}

// Plan says, per dataset, what a run would deliver. It writes nothing.
func (j *Job) Plan(ctx context.Context) ([]exporter.Result, error) {
	return j.each(ctx, uuid.Nil, true)
}

// Run delivers the datasets one after the other; run is noted in the table
// exports.
func (j *Job) Run(ctx context.Context, run uuid.UUID) ([]exporter.Result, error) {
	return j.each(ctx, run, false)
}

func (j *Job) each(ctx context.Context, run uuid.UUID, dry bool) ([]exporter.Result, error) {
	var results []exporter.Result
	for _, dataset := range j.Options.Datasets {
		o := j.Options
		result, err := exporter.Run(ctx, exporter.Input{
			Store: j.Store, Bucket: j.Bucket, Dataset: dataset, Format: o.Format, Month: o.Month, Calendar: o.Calendar, Mechanism: o.Mechanism, Partition: o.Partition, Partial: o.Partial, OnlyClosed: o.Closed, DryRun: dry, Expected: j.Expected, Held: j.Held,
			Now: o.Now, Grace: o.Grace, Workers: o.Workers, Version: o.Version, FocusVersion: o.FocusVersion, Operator: o.Operator, RoundTo: o.RoundTo, SignKey: o.SignKey,
			RunID: run, Log: j.Log, Progress: j.Progress,
		})
		if err != nil {
			return results, err
		}
		results = append(results, result)
	}
	return results, nil
}

// Counts are what the run log keeps of the results.
func Counts(results []exporter.Result) map[string]string {
	var rows, bytes uint64
	var files int
	for _, r := range results {
		if !r.Unchanged {
			rows, bytes, files = rows+r.Rows, bytes+r.Bytes, files+r.Files
		}
	}
	return map[string]string{"datasets": strconv.Itoa(len(results)), "rows": strconv.FormatUint(rows, 10),
		"bytes": strconv.FormatUint(bytes, 10), "files": strconv.Itoa(files)}
}
