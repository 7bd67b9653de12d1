package retention_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/exporter"
	bucketfile "github.com/ratebatch/ratebatch/exporter/bucket/file"
	"github.com/ratebatch/ratebatch/exporter/exporttest"
	"github.com/ratebatch/ratebatch/jobs/retention"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// books is a cloud of one project whose months are rated, closed and delivered to
// one place or more.
type books struct {
	*testing.T

	s        *store.Store
	revision map[string]uint32
}

func (b *books) rate(month, price string) {
	b.Helper()
	run, from := uuid.New(), exporttest.Hour(month, 0)
	b.revision[month]++
	exporttest.Insert(b, b.s, run, b.revision[month], exporttest.Line{Scope: "alpha", Begin: from, Price: price})
	exporttest.Commit(b, b.s, run, b.revision[month], "alpha", from, from.AddDate(0, 1, 0))
}

func (b *books) close(month string) {
	b.Helper()
	exporttest.Close(b, b.s, month, 1)
}

// place is a folder to export to.
func (b *books) place(mechanism exporter.Mechanism) exporter.Input {
	b.Helper()
	to, err := bucketfile.New(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	return exporter.Input{Store: b.s, Bucket: to, Mechanism: mechanism, Now: exporttest.Hour("2024-12", 0), RunID: uuid.New()}
}

func (b *books) export(to exporter.Input, month string, datasets ...string) {
	b.Helper()
	for _, to.Dataset = range datasets {
		to.Month = exporttest.Hour(month, 0)
		if _, err := exporter.Run(b.Context(), to); err != nil {
			b.Fatal(err)
		}
	}
}

// plan is what retention would do with lines of more than a day at a moment.
func (b *books) plan(now time.Time) *retention.Plan {
	b.Helper()
	o := retention.Options{Dead: time.Hour, Runs: 24 * time.Hour, Lines: 24 * time.Hour, Now: now}
	p, err := (&retention.Job{Store: b.s, Log: slog.New(slog.DiscardHandler), Options: o}).Plan(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// refused wants January's lines to stay for a reason.
func (b *books) refused(why string) {
	b.Helper()
	p := b.plan(time.Now())
	if slices.Contains(p.Months, "2024-01") || !slices.ContainsFunc(p.Refused, func(r string) bool { return strings.HasPrefix(r, "2024-01 ") && strings.Contains(r, why) }) {
		b.Errorf("lines of %v would go, refused %q; want January to stay, since it %s", p.Months, p.Refused, why)
	}
}

// January is corrected by February and March in turn, each of which reads its
// lines; none of them may be exported to a place only after the lines are gone.
func TestLinesStayUntilEveryDeliveryThatNeedsThemIsMade(t *testing.T) {
	b := &books{t, storetest.Fresh(t), map[string]uint32{}}
	folder, lake := b.place(exporter.Overwrite), b.place(exporter.Append)
	b.rate("2024-01", "10")
	b.close("2024-01")
	b.refused("was not exported since it was closed")
	b.export(folder, "2024-01", "lines", "statement")
	b.export(lake, "2024-01", "lines")
	b.rate("2024-01", "12")
	b.refused("no later month was closed since")
	b.rate("2024-02", "100")
	b.export(lake, "2024-02", "lines") // while it is open
	b.close("2024-02")
	b.rate("2024-03", "1000")
	b.close("2024-03")
	b.export(folder, "2024-03", "lines") // February is forgotten
	b.export(lake, "2024-03", "lines")
	b.refused("2024-02, which may bill the correction, was not exported since it was closed (lines at " + folder.Bucket.Location() + ", statement at " + folder.Bucket.Location() + ", lines at " + lake.Bucket.Location())
	b.export(folder, "2024-02", "lines")
	b.refused("2024-02, which may bill the correction, was not exported since it was closed (statement at " + folder.Bucket.Location() + ", lines at " + lake.Bucket.Location() + ")")
	b.export(lake, "2024-02", "lines")
	b.refused("(statement at " + folder.Bucket.Location() + ")")
	b.export(folder, "2024-02", "statement")
	if p := b.plan(time.Now()); !slices.Contains(p.Months, "2024-01") || len(p.GivenUp) != 0 {
		t.Errorf("lines of %v go, refused %q, given up %q; want January to go", p.Months, p.Refused, p.GivenUp)
	}

	// Each revision has a month that billed it.
	b.export(folder, "2024-03", "statement")
	b.rate("2024-01", "13")
	b.rate("2024-04", "1")
	b.close("2024-04")
	b.refused("2024-04, which may bill the correction, was not exported since it was closed")
	b.export(folder, "2024-04", "lines", "statement")
	b.refused("2024-04, which may bill the correction, was not exported since it was closed (lines at " + lake.Bucket.Location() + ")")

	// A place that got nothing for long is not waited for, which is said.
	p := b.plan(time.Now().Add(93 * 24 * time.Hour))
	if !slices.Contains(p.Months, "2024-01") || !slices.ContainsFunc(p.GivenUp, func(text string) bool { return strings.HasPrefix(text, "lines at "+lake.Bucket.Location()) }) {
		t.Errorf("lines of %v go, refused %q, given up %q; want January to go without %s", p.Months, p.Refused, p.GivenUp, lake.Bucket.Location())
	}
}

// One delivery for a look is not the begin of a series.
func TestAPlaceThatGotOneMonthIsNotWaitedForWithOthers(t *testing.T) {
	b := &books{t, storetest.Fresh(t), map[string]uint32{}}
	folder, look := b.place(exporter.Overwrite), b.place(exporter.Overwrite)
	b.rate("2024-01", "10")
	b.rate("2024-02", "10")
	b.export(look, "2024-01", "lines", "focus")
	for _, month := range []string{"2024-01", "2024-02"} {
		b.close(month)
		b.export(folder, month, "lines")
	}
	b.refused("(focus at " + look.Bucket.Location())
	b.export(look, "2024-01", "lines", "focus")
	if p := b.plan(time.Now()); !slices.Equal(p.Months, []string{"2024-01", "2024-02"}) {
		t.Errorf("lines of %v go, refused %q; want both months", p.Months, p.Refused)
	}
}
