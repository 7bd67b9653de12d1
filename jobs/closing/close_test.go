package closing_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/exporter"
	bucketfile "github.com/ratebatch/ratebatch/exporter/bucket/file"
	"github.com/ratebatch/ratebatch/exporter/exporttest"
	"github.com/ratebatch/ratebatch/jobs/closing"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// books is a cloud of one project whose months are rated, closed and exported.
type books struct {
	*testing.T

	s        *store.Store
	job      *closing.Job
	out      exporter.Input
	revision map[string]uint32
}

func newBooks(t *testing.T) *books {
	t.Helper()
	e := storetest.Shared(t)
	s := store.New(e.Conn(), e.Database())
	b, err := bucketfile.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &books{T: t, s: s, revision: map[string]uint32{},
		out: exporter.Input{Store: s, Bucket: b, Partition: exporter.Whole, Now: exporttest.Hour("2027-01", 0), RunID: uuid.New()},
		job: &closing.Job{Store: s, Log: slog.New(slog.DiscardHandler), Period: time.Hour, Windows: func(_ context.Context, month ratebatch.Month) (closing.Windows, error) {
			return closing.Windows{Active: []store.DueWindow{{Scope: "alpha", First: month.From, Until: month.To}}}, nil
		}}}
}

func month(name string) ratebatch.Month { return ratebatch.Calendar{}.Named(exporttest.Hour(name, 0)) }

// rate commits a month, or from its second revision on its first hour.
func (b *books) rate(name, price string) {
	b.Helper()
	b.revision[name]++
	run, m := uuid.New(), month(name)
	exporttest.Insert(b, b.s, run, b.revision[name], exporttest.Line{Scope: "alpha", Begin: m.From, Price: price})
	until := m.To
	if b.revision[name] > 1 {
		until = m.From.Add(time.Hour)
	}
	exporttest.Commit(b, b.s, run, b.revision[name], "alpha", m.From, until)
}

func (b *books) tryClose(name string) error {
	p, err := b.job.Plan(b.Context(), month(name))
	if err == nil {
		_, err = b.job.Run(b.Context(), p, uuid.New(), "")
	}
	return err
}

func (b *books) close(name string) {
	b.Helper()
	if err := b.tryClose(name); err != nil {
		b.Fatal(err)
	}
}

func (b *books) reopen(name string) {
	b.Helper()
	if err := b.job.Reopen(b.Context(), month(name), "ticket 901"); err != nil {
		b.Fatal(err)
	}
}

// halts wants an error that stops a job until a person acts, and its texts.
func (b *books) halts(err error, texts ...string) {
	b.Helper()
	if ratebatch.ExitCode(err) != ratebatch.ExitHalted {
		b.Fatalf("%v, want exit %d", err, ratebatch.ExitHalted)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			b.Errorf("%v, want %q", err, text)
		}
	}
}

// bills exports months and compares their totals.
func (b *books) bills(months []string, want ...string) {
	b.Helper()
	var got []string
	for _, name := range months {
		in := b.out
		in.Month = exporttest.Hour(name, 0)
		r, err := exporter.Run(b.Context(), in)
		if err != nil {
			b.Fatal(err)
		}
		got = append(got, r.Totals["EUR"])
	}
	if !slices.Equal(got, want) {
		b.Errorf("months %v bill %v, want %v", months, got, want)
	}
}

// Whatever is closed, corrected and reopened, the months together bill what
// counts, once.
func TestMonthsAreReopenedFromTheLastCloseBack(t *testing.T) {
	b := newBooks(t)
	all := []string{"2026-01", "2026-02", "2026-03"}
	b.rate("2026-01", "10")
	b.close("2026-01")
	b.rate("2026-01", "12")
	b.rate("2026-02", "100")
	b.rate("2026-03", "1000")
	b.close("2026-02")
	b.bills(all, "10", "102", "1000")

	// January's 2 EUR are billed in February: January with 12 would bill them again.
	b.halts(b.job.Reopen(t.Context(), month("2026-01"), "x"), "2026-01 cannot be opened", "(2026-02)", "reopen 2026-02 first")
	b.close("2026-03")
	b.halts(b.job.Reopen(t.Context(), month("2026-01"), "x"), "(2026-03, 2026-02)", "reopen 2026-03, 2026-02 first")
	// And February without them would lose them, since March is settled.
	b.halts(b.job.Reopen(t.Context(), month("2026-02"), "x"), "(2026-03)")
	b.bills(all, "10", "102", "1000")

	b.reopen("2026-03")
	b.reopen("2026-02")
	b.bills(all, "10", "102", "1000")
	b.close("2026-02")
	b.close("2026-03")
	b.bills(all, "10", "102", "1000")

	b.reopen("2026-03")
	b.reopen("2026-02")
	b.reopen("2026-01")
	for _, name := range all {
		b.close(name)
	}
	b.bills(all, "12", "100", "1000")
}

func TestMonthsAreClosedInTheirOrder(t *testing.T) {
	b := newBooks(t)
	all := []string{"2026-01", "2026-02", "2026-04", "2026-05"}
	b.rate("2026-01", "10")
	b.rate("2026-02", "100")
	b.halts(b.tryClose("2026-02"), "2026-02 cannot be closed before 2026-01", "'ratebatch close --month 2026-01' first", "--month 2026-01 --dry-run' says what it waits for")
	b.close("2026-01")
	b.rate("2026-01", "12")
	b.rate("2026-04", "1000")
	b.rate("2026-05", "10000")
	b.halts(b.tryClose("2026-04"), "2026-04 cannot be closed before 2026-02")
	b.bills(all, "10", "102", "1000", "10000")
	b.close("2026-02")
	b.close("2026-04") // in March nothing was rated: it keeps nobody waiting
	b.bills(all, "10", "102", "1000", "10000")

	// A month that was rated after later ones were closed can be closed, and
	// reopened as the last one that was; it takes what nobody has billed.
	b.rate("2026-01", "13")
	b.rate("2026-03", "1")
	all = slices.Insert(all, 2, "2026-03")
	b.halts(b.tryClose("2026-05"), "2026-05 cannot be closed before 2026-03")
	b.bills(all, "10", "102", "2", "1000", "10000")
	b.close("2026-03")
	b.halts(b.job.Reopen(t.Context(), month("2026-04"), "x"), "(2026-03)")
	b.reopen("2026-03")
	b.bills(all, "10", "102", "2", "1000", "10000")
	b.close("2026-03")
	b.rate("2026-01", "14")
	b.bills(all, "10", "102", "2", "1000", "10001")
}

// A close takes the lease of a whole rate, and shards have leases of their own:
// what one of them commits while a month is closed opens it again.
func TestAMonthThatIsNotSettledAfterItsCloseIsOpenAgain(t *testing.T) {
	b := newBooks(t)
	b.rate("2026-01", "10")
	opened := func(what string, err error) {
		t.Helper()
		if ratebatch.ExitCode(err) != ratebatch.ExitTryAgain {
			t.Fatalf("%s: %v, want exit %d", what, err, ratebatch.ExitTryAgain)
		}
		if closed, err := b.s.ClosedMonths(t.Context()); err != nil || len(closed) > 0 {
			t.Errorf("%s: months %v are closed, %v; want none", what, closed, err)
		}
	}
	// A shard committed after it was asked what is not settled.
	windows, calls := b.job.Windows, 0
	b.job.Windows = func(ctx context.Context, month ratebatch.Month) (closing.Windows, error) {
		if calls++; calls > 1 {
			return closing.Windows{}, &ratebatch.TryAgainError{Err: errors.New("2 periods are not settled")}
		}
		return windows(ctx, month)
	}
	opened("not settled", b.tryClose("2026-01"))
	b.job.Windows = windows
	// One committed lines that were never compared with it.
	p, err := b.job.Plan(t.Context(), month("2026-01"))
	if err != nil {
		t.Fatal(err)
	}
	b.rate("2026-01", "12")
	_, err = b.job.Run(t.Context(), p, uuid.New(), "")
	opened("committed between plan and close", err)
	b.close("2026-01")
	b.bills([]string{"2026-01"}, "12")
}

// A commit is dated when its statement begins and seen when it ends: a close waits
// for those under way, or the month after would take for billed what this one has
// not seen.
func TestACloseWaitsForCommitsUnderWay(t *testing.T) {
	b := newBooks(t)
	b.rate("2026-01", "10")
	b.close("2026-01")
	b.rate("2026-02", "100")
	// A correction of January whose job was killed while the statement runs on.
	run, m := uuid.New(), month("2026-01")
	exporttest.Insert(b, b.s, run, 2, exporttest.Line{Scope: "alpha", Begin: m.From, Price: "12"})
	ctx := store.WithParams(t.Context(), store.Params{"run_id": run, "begin": m.From, "end": m.From.Add(time.Hour)})
	done := make(chan error, 1)
	go func() {
		done <- b.s.Conn().Exec(ctx, `INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, currency, lines, line_digest, total)
			SELECT 'alpha', {begin:DateTime('UTC')}, {end:DateTime('UTC')}, 2, 'rated', {run_id:UUID}, 'EUR', count(), sum(line_hash) + sleep(2), sum(toDecimal256(price, 18)) FROM (
				SELECT price, cityHash64(region, metric, resource, attributes, part, end, unit, qty, price, rule, bucket) AS line_hash FROM rated_lines WHERE run_id = {run_id:UUID})`)
	}()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		n, err := b.s.CommitsUnderWay(t.Context())
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the statement does not run: %v", err)
		}
		if n > 0 {
			break
		}
	}
	b.close("2026-02")
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	default:
		t.Error("the close did not wait")
	}
	b.rate("2026-03", "1000")
	b.bills([]string{"2026-01", "2026-02", "2026-03"}, "10", "102", "1000")
}
