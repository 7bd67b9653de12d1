package exporter

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/exporter/bucket"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Partition says how the rows of a delivery are spread over files.
type Partition string

// By day, one day's files can be read alone; by scope, one project's.
const (
	ByDay   Partition = "day"
	ByScope Partition = "scope"
	Whole   Partition = "none"
)

// Input is what one export works on.
type Input struct {
	Store  *store.Store
	Bucket bucket.Bucket

	Dataset   string    // one of Datasets; empty: lines
	Format    string    // one of Formats; empty: parquet
	Month     time.Time // first instant of a month in UTC
	Partition Partition // empty: ByDay, for statements Whole
	Partial   bool      // export although periods are missing
	DryRun    bool      // say what would be written and stop

	FocusVersion string             // one of FocusVersions; empty: 1.2
	Operator     string             // who runs the cloud, for FOCUS; empty: "Cloud operator"
	RoundTo      int32              // digits of a statement's amounts; negative: 2
	SignKey      ed25519.PrivateKey // signs the manifest; nil: no signature

	Now     time.Time     // decides whether the month is over
	Grace   time.Duration // how long a delivery that was replaced stays readable
	Workers int           // files written at the same time; 0: one per processor, at most 2; each takes about 100 MB
	Version string        // of the program, for the manifest
	RunID   uuid.UUID
	Log     *slog.Logger
	// Progress, if set, is called with the number of rows written so far.
	Progress func(rows uint64)
}

// Result says what an export did.
type Result struct {
	Dataset   string            `json:"dataset"`
	Format    string            `json:"format"`
	Month     string            `json:"month"`
	Delivery  string            `json:"delivery"`
	Location  string            `json:"location"`
	Manifest  string            `json:"manifest"` // below Location
	Unchanged bool              `json:"unchanged"`
	DryRun    bool              `json:"dry_run,omitempty"`
	Partial   bool              `json:"partial"`
	Missing   []Missing         `json:"missing,omitempty"`
	Commits   uint64            `json:"commits"`
	Files     int               `json:"files"`
	Rows      uint64            `json:"rows"`
	Bytes     uint64            `json:"bytes"`
	Totals    map[string]string `json:"totals"`
}

// attempts bounds how often an export starts again because commits changed
// while it read.
const attempts = 3

// Run exports one dataset of one month. It writes nothing if the current
// delivery holds the same state already.
func Run(ctx context.Context, in Input) (Result, error) {
	if err := in.complete(); err != nil {
		return Result{}, err
	}
	for try := 1; ; try++ {
		e := &export{Input: in, folder: Folder(in.Dataset, in.Month.Format("2006-01"))}
		result, err := e.run(ctx)
		var mismatch *mismatchError
		if !errors.As(err, &mismatch) {
			return result, err
		}
		changed, looking := e.changed(ctx)
		switch {
		case looking != nil:
			return result, errors.Join(err, looking)
		case !changed:
			return result, &ratebatch.HaltError{Scope: mismatch.scope, Period: mismatch.period, Err: errors.New(mismatch.detail),
				Hint: "nothing was published; look with 'ratebatch reconcile', then rate the period again with 'ratebatch reprocess'"}
		case try == attempts:
			return result, &ratebatch.TryAgainError{Err: fmt.Errorf("the commits changed during each of %d attempts: %w", attempts, err),
				Hint: "nothing was published, run the same command again"}
		}
		in.Log.Info("the commits changed while the export read them, starting again", "attempt", try)
	}
}

func (in *Input) complete() error {
	if in.Dataset == "" {
		in.Dataset = "lines"
	}
	if in.Format == "" {
		in.Format = "parquet"
	}
	if in.Partition == "" {
		in.Partition = ByDay
		if in.Dataset == statementSchema.Dataset {
			in.Partition = Whole
		}
	}
	if in.FocusVersion == "" {
		in.FocusVersion = FocusVersions()[0]
	}
	if in.Operator == "" {
		in.Operator = "Cloud operator"
	}
	if in.RoundTo < 0 {
		in.RoundTo = 2
	}
	if in.Log == nil {
		in.Log = slog.New(slog.DiscardHandler)
	}
	if in.Workers <= 0 {
		in.Workers = min(runtime.GOMAXPROCS(0), 2)
	}
	in.Month = in.Month.UTC()
	if !in.Month.Equal(time.Date(in.Month.Year(), in.Month.Month(), 1, 0, 0, 0, 0, time.UTC)) {
		return &ratebatch.ConfigError{Err: fmt.Errorf("month %s is not the begin of a month in UTC", in.Month.Format(time.RFC3339))}
	}
	if !slices.Contains(Datasets(), in.Dataset) {
		return &ratebatch.ConfigError{Err: fmt.Errorf("dataset %q", in.Dataset), Hint: "there are " + strings.Join(Datasets(), ", ")}
	}
	if !slices.Contains(Formats(), in.Format) {
		return &ratebatch.ConfigError{Err: fmt.Errorf("format %q", in.Format), Hint: "there are " + strings.Join(Formats(), ", ")}
	}
	if !slices.Contains(FocusVersions(), in.FocusVersion) {
		return &ratebatch.ConfigError{Err: fmt.Errorf("FOCUS version %q", in.FocusVersion), Hint: "there are " + strings.Join(FocusVersions(), ", ")}
	}
	if in.Dataset == statementSchema.Dataset && in.Partition == ByDay {
		return &ratebatch.ConfigError{Err: errors.New("statements are for a whole month"), Hint: "use --partition scope or none"}
	}
	switch in.Partition {
	case ByDay, ByScope, Whole:
	default:
		return &ratebatch.ConfigError{Err: fmt.Errorf("partition %q", in.Partition), Hint: "use day, scope or none"}
	}
	return nil
}

// Datasets lists what can be exported.
func Datasets() []string {
	return []string{linesSchema.Dataset, summarySchema.Dataset, focusDataset, statementSchema.Dataset}
}

func (in *Input) schema() Schema {
	switch in.Dataset {
	case summarySchema.Dataset:
		return summarySchema
	case statementSchema.Dataset:
		s := statementSchema
		s.Fields = slices.Clone(s.Fields)
		for i := range s.Fields {
			if s.Fields[i].Name == "amount" { // the same text in CSV as on the page: 9.40
				s.Fields[i].digits = in.RoundTo
			}
		}
		return s
	case focusDataset:
		return focusSchema(in.FocusVersion)
	default:
		return linesSchema
	}
}

// export is one attempt.
type export struct {
	Input
	folder  string
	prefix  string // of the delivery, below folder
	window  store.ExportWindow
	scopes  []store.CommittedScope
	names   map[string]ScopeName
	missing []Missing
	set     store.CommitSet
	closed  bool
	stream  bool // to a pipe

	corrections   []correction
	statementSums map[string]map[statementKey]*sums // of corrections, by scope
	rows          atomic.Uint64
	tables        sync.Pool
}

func (e *export) run(ctx context.Context) (Result, error) {
	if err := e.plan(ctx); err != nil {
		return Result{}, err
	}
	delivery := e.delivery()
	current, _, err := ReadManifest(ctx, e.Bucket, e.folder)
	if err != nil && !errors.Is(err, bucket.ErrNotExist) {
		return Result{}, err
	}
	if current != nil && e.closed && current.State.Close == e.window.Closed && current.Delivery != delivery {
		// Other columns, another format or a newer program: not a reason to
		// touch what was billed from.
		if current.State.CommitDigest != e.set.Digest {
			return Result{}, &ratebatch.HaltError{Err: fmt.Errorf("month %s is closed, and its delivery %s holds other commits than the close", current.Month, current.Delivery),
				Hint: "nothing was changed; look with 'ratebatch reconcile --month " + current.Month + "'"}
		}
		delivery = current.Delivery
	}
	if current != nil && current.Delivery == delivery {
		whole, err := e.filesThere(ctx, current)
		if err != nil {
			return Result{}, err
		}
		if whole {
			result := e.result(current)
			result.Unchanged = true
			return result, e.sweep(ctx, current)
		}
		e.Log.Warn("files of the current delivery are missing or have another size, writing it again", "delivery", delivery)
	}
	if e.DryRun {
		return Result{Dataset: e.Dataset, Format: e.Format, Month: e.Month.Format("2006-01"), Delivery: delivery, Location: e.Bucket.Location(),
			Manifest: e.folder + ManifestName, DryRun: true, Partial: len(e.missing) > 0, Missing: e.missing, Commits: e.set.Commits}, nil
	}
	m, err := e.write(ctx, delivery)
	if err != nil {
		return Result{}, err
	}
	if err := e.publish(ctx, m); err != nil {
		return Result{}, err
	}
	return e.result(m), e.sweep(ctx, m)
}

func (e *export) result(m *Manifest) Result {
	r := Result{Dataset: m.Dataset, Format: m.Format, Month: m.Month, Delivery: m.Delivery, Location: e.Bucket.Location(), Manifest: e.folder + ManifestName,
		Partial: m.State.Partial, Missing: m.State.Missing, Commits: m.State.Commits, Files: len(m.Files), Rows: m.Rows, Totals: m.Totals}
	for _, f := range m.Files {
		r.Bytes += f.Bytes
	}
	return r
}
