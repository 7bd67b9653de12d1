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

// Mechanism says what a delivery holds, in FOCUS's words.
type Mechanism string

// Overwrite is all of the month, in place of the delivery before. Append is
// what is new since the delivery before at the same place.
const (
	Overwrite Mechanism = "overwrite"
	Append    Mechanism = "append"
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

	Dataset   string             // one of Datasets; empty: lines
	Format    string             // one of Formats; empty: parquet
	Month     time.Time          // first day of the month, as a date in UTC
	Calendar  ratebatch.Calendar // when months begin; zero: in UTC
	Mechanism Mechanism          // empty: Overwrite
	Partition Partition          // empty: ByDay, for statements Whole
	Partial   bool               // export although periods are missing
	// OnlyClosed refuses an open month, for who exports a month once it is closed:
	// what is delivered before is not what is billed.
	OnlyClosed bool
	// Expected says which scopes have to be rated in the month, each with its
	// window, so that one without any commit is missed; nil: nothing is known of
	// scopes without commits.
	Expected func(ctx context.Context, month ratebatch.Month) ([]store.DueWindow, error)
	DryRun   bool // say what would be written and stop
	// Held says whether the lease of the place is still this run's; nil: it needs none.
	Held func(ctx context.Context) (bool, error)

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
	Dataset   string    `json:"dataset"`
	Format    string    `json:"format"`
	Month     string    `json:"month"`
	Delivery  string    `json:"delivery"`
	Mechanism Mechanism `json:"mechanism"`
	Location  string    `json:"location"`
	Manifest  string    `json:"manifest"` // below Location
	Unchanged bool      `json:"unchanged"`
	DryRun    bool      `json:"dry_run,omitempty"`
	Open      bool      `json:"open"`
	Partial   bool      `json:"partial"`
	// CompleteUntil is up to when every scope's periods are in.
	CompleteUntil time.Time         `json:"complete_until"`
	Missing       []Missing         `json:"missing,omitempty"`
	Commits       uint64            `json:"commits"`
	Files         int               `json:"files"`
	Rows          uint64            `json:"rows"`
	Bytes         uint64            `json:"bytes"`
	Totals        map[string]string `json:"totals"`
	// Increment is what an append delivery adds; Files, Rows and Bytes are its
	// own, Totals are of all append deliveries together.
	Increment *Increment `json:"increment,omitempty"`
}

// attempts bounds how often an export starts again because commits changed
// while it read, or another export published to the same place.
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
		changed, looking := errors.Is(err, errOvertaken), error(nil)
		if !changed {
			if !errors.As(err, &mismatch) {
				return result, err
			}
			changed, looking = e.changed(ctx)
		}
		switch {
		case looking != nil:
			return result, errors.Join(err, looking)
		case !changed:
			return result, e.halt(ctx, mismatch, "nothing was published; look with 'ratebatch reconcile', then rate the period again with 'ratebatch reprocess'")
		case try == attempts:
			return result, &ratebatch.TryAgainError{Err: fmt.Errorf("the commits or the place changed during each of %d attempts: %w", attempts, err),
				Hint: "nothing was published, run the same command again"}
		}
		in.Log.Info("the commits or the place changed meanwhile, starting again", "attempt", try, "cause", err)
	}
}

// halt is what a mismatch that no race explains ends with. hint is what to do,
// unless it is of a closed month whose lines retention removed.
func (e *export) halt(ctx context.Context, m *mismatchError, hint string) error {
	month := e.Calendar.MonthAt(m.period.Begin)
	closes := e.history.closed(e.window.AsOf)
	if i := slices.IndexFunc(closes, func(c store.MonthClose) bool { return c.Month.Equal(month.Date) }); i >= 0 {
		removed, err := e.Store.LinesRemoved(ctx, month, closes[i].Number)
		if err != nil {
			return errors.Join(m, err)
		}
		if removed {
			hint = fmt.Sprintf("the lines of %s were removed by 'ratebatch retention --lines-after', and nothing can be made of them any more. What was delivered stands: copy it from another place, or restore it", month)
		}
	}
	return &ratebatch.HaltError{Scope: m.scope, Period: m.period, Err: errors.New(m.detail), Hint: hint}
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
	if in.Mechanism == "" {
		in.Mechanism = Overwrite
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
		return &ratebatch.ConfigError{Err: fmt.Errorf("month %s is not the first day of a month", in.Month.Format(time.RFC3339))}
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
	switch {
	case in.Mechanism != Overwrite && in.Mechanism != Append:
		return &ratebatch.ConfigError{Err: fmt.Errorf("delivery %q", in.Mechanism), Hint: "use overwrite or append"}
	case in.Mechanism == Append && in.Dataset != linesSchema.Dataset:
		return &ratebatch.ConfigError{Err: fmt.Errorf("append deliveries of the dataset %s", in.Dataset),
			Hint: "only lines can be appended: the other datasets are sums, or bear the invoice that is known when the month is closed"}
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
	set     store.CommitSet // that is read: all, or in an append delivery those of new periods
	all     store.CommitSet // of the month
	until   time.Time       // every scope is committed up to here
	closed  bool
	stream  bool // to a pipe

	found  []byte    // the manifest's text when the attempt began; nil: there was none
	before string    // the delivery that it named
	base   *Manifest // of the append delivery before

	history       history
	passed        map[monthMoment]bool // by passedOver
	corrections   []correction
	statementSums map[string]map[statementKey]*sums // of corrections, by scope
	rows          atomic.Uint64
	tables        sync.Pool
}

func (e *export) run(ctx context.Context) (Result, error) {
	// Before the commits and closes: what others publish from here on is found by
	// notOvertaken, and what stands here was planned earlier than this is.
	current, text, err := ReadManifest(ctx, e.Bucket, e.folder)
	if err != nil && !errors.Is(err, bucket.ErrNotExist) {
		return Result{}, err
	}
	if e.found = text; current != nil {
		e.before = current.Delivery
	}
	if err := e.plan(ctx); err != nil {
		return Result{}, err
	}
	if current != nil && current.Mechanism != e.Mechanism {
		return Result{}, &ratebatch.ConfigError{Err: fmt.Errorf("%s/%s holds %s deliveries of %s, not %s", e.Bucket.Location(), e.folder, current.Mechanism, current.Month, e.Mechanism),
			Hint: "go on with --delivery " + string(current.Mechanism) + ", or export to another place: a reader of one would count the other twice"}
	}
	if e.Mechanism == Append {
		return e.appendTo(ctx, current, text)
	}
	delivery, kept := e.delivery(), false
	if current != nil && e.closed && current.State.Close == e.window.Closed {
		if err := e.sameCorrections(current); err != nil {
			return Result{}, err
		}
		if current.Delivery != delivery {
			// Other columns, another format or a newer program: not a reason to
			// touch what was billed from.
			if current.State.CommitDigest != e.set.Digest {
				return Result{}, &ratebatch.HaltError{Err: fmt.Errorf("month %s is closed, and its delivery %s holds other commits than the close", current.Month, current.Delivery),
					Hint: "nothing was changed; look with 'ratebatch reconcile --month " + current.Month + "'"}
			}
			delivery, kept = current.Delivery, true
		}
	}
	if current != nil && current.Delivery == delivery {
		broken, err := e.damaged(ctx, current)
		switch {
		case err != nil:
			return Result{}, err
		case len(broken) == 0:
			return e.unchanged(ctx, current, text)
		case kept: // what this export would write is not what was billed from
			return Result{}, e.lostFrozen(current, broken)
		}
		e.Log.Warn("files of the current delivery are missing or damaged, writing it again", "delivery", delivery, "files", ratebatch.Some(broken, mostBroken))
	}
	if e.DryRun {
		return Result{Dataset: e.Dataset, Format: e.Format, Month: e.Month.Format("2006-01"), Delivery: delivery, Mechanism: e.Mechanism, Location: e.Bucket.Location(),
			Manifest: e.folder + ManifestName, DryRun: true, Open: !e.closed, Partial: e.until.Before(e.window.To), CompleteUntil: e.until, Missing: e.missing, Commits: e.set.Commits}, nil
	}
	m, err := e.write(ctx, delivery)
	if err != nil {
		return Result{}, err
	}
	if err := e.removeStrays(ctx, m); err != nil {
		return Result{}, err
	}
	if err := e.publish(ctx, m); err != nil {
		return Result{}, err
	}
	return e.result(m), e.sweep(ctx, m)
}

// lostFrozen halts where files of a closed month's delivery are gone and this
// export is in another form than they were: what it wrote under their name would
// amount to something else, or stand beside the files that are left.
func (e *export) lostFrozen(m *Manifest, broken []string) error {
	return &ratebatch.HaltError{Err: fmt.Errorf("month %s is closed, and of its delivery %s at %s/%s these files are missing or damaged: %s", m.Month, m.Delivery, e.Bucket.Location(), e.folder, ratebatch.Some(broken, mostBroken)),
		Hint: fmt.Sprintf("nothing was written: this export would not write the same files. Restore them from a copy; or export in the form that the manifest says (--format %s, --partition %s, version %s, and the same --round, --operator and --focus-version), which works while the same projects are known by the same names; or export to a new place",
			m.Format, m.Partition, m.Generator.Version)}
}

func (e *export) result(m *Manifest) Result {
	r := Result{Dataset: m.Dataset, Format: m.Format, Month: m.Month, Delivery: m.Delivery, Mechanism: m.Mechanism, Location: e.Bucket.Location(), Manifest: e.folder + ManifestName,
		Open: m.State.Open, Partial: m.State.Partial, CompleteUntil: m.State.CompleteUntil, Missing: m.State.Missing, Commits: m.State.Commits, Files: len(m.Files), Rows: m.Rows, Totals: m.Totals}
	files := m.Files
	if next, added := m.increment(); next != nil {
		files, r.Increment = added, next
		r.Files, r.Rows = len(added), next.Rows
	}
	for _, f := range files {
		r.Bytes += f.Bytes
	}
	return r
}

// month is the billing month, with its instants.
func (e *export) month() ratebatch.Month { return e.Calendar.Named(e.Month) }
