package exporter_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/exporter/bucket"
	"github.com/ratebatch/ratebatch/exporter/exporttest"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// slow is a bucket whose export is overtaken: meanwhile runs before its first
// object (or every object, if always) is begun.
type slow struct {
	bucket.Bucket
	meanwhile func()
	always    bool
	met       bool
}

func (b *slow) Create(ctx context.Context, name string) (bucket.Writer, error) {
	if !b.met || b.always {
		b.met = true
		b.meanwhile()
	}
	return b.Bucket.Create(ctx, name)
}

func rateHour(tb testing.TB, s *store.Store, n int, revision uint32, price string) {
	tb.Helper()
	run, at := uuid.New(), exporttest.Hour("2026-03", n)
	exporttest.Insert(tb, s, run, revision, exporttest.Line{Scope: "alpha", Begin: at, Price: price})
	exporttest.Commit(tb, s, run, revision, "alpha", at, exporttest.Hour("2026-03", n+1))
}

func TestASlowExportDoesNotReplaceTheClosedDelivery(t *testing.T) {
	s := openStore(t)
	rate(t, s, "2026-03", 1, map[string]string{"vm-1": "10"})
	dir := t.TempDir()
	quick := input(t, s, dir)
	late := quick
	var closed exporter.Result
	late.Bucket = &slow{Bucket: quick.Bucket, meanwhile: func() {
		exporttest.Close(t, s, "2026-03", 1)
		closed = export(t, quick)
	}}
	r := export(t, late)
	if m := manifest(t, dir, r); m.State.Open || m.State.Close != 1 || m.Delivery != closed.Delivery || r.Delivery != closed.Delivery || !r.Unchanged {
		t.Errorf("the place holds %s, %+v; the closed delivery is %s", m.Delivery, m.State, closed.Delivery)
	}
}

// The sum of what readers took, at every step, stays the sum of the manifest.
func TestASlowAppendExportCountsNothingTwice(t *testing.T) {
	s := openStore(t)
	rateHour(t, s, 0, 1, "10")
	dir := t.TempDir()
	quick := input(t, s, dir)
	quick.Mechanism, quick.Partition, quick.Partial = exporter.Append, exporter.Whole, true
	first := export(t, quick)
	rateHour(t, s, 1, 1, "3")
	late := quick
	var second exporter.Result
	late.Bucket = &slow{Bucket: quick.Bucket, meanwhile: func() {
		rateHour(t, s, 2, 1, "4")
		second = export(t, quick)
	}}
	r := export(t, late)
	m := manifest(t, dir, r)
	if len(m.Increments) != 2 || m.Increments[0].Delivery != first.Delivery || m.Increments[1].Delivery != second.Delivery || m.Totals["EUR"] != "17" || !r.Unchanged {
		t.Errorf("increments %+v of %s and %s, total %s", m.Increments, first.Delivery, second.Delivery, m.Totals["EUR"])
	}

	// One that lost its lease does not start again either: it has none.
	rateHour(t, s, 3, 1, "5")
	before := files(t, dir)
	lost := quick
	lost.Held = func(context.Context) (bool, error) { return false, nil }
	if _, err := exporter.Run(t.Context(), lost); ratebatch.ExitCode(err) != ratebatch.ExitTryAgain || !strings.Contains(err.Error(), "took over the lease") {
		t.Errorf("a lost lease: %v", err)
	}
	after := files(t, dir)
	for name, text := range before {
		if after[name] != text {
			t.Errorf("a lost lease changed %s", name)
		}
	}
	broken := errors.New("the lease cannot be read")
	lost.Held = func(context.Context) (bool, error) { return true, broken }
	if _, err := exporter.Run(t.Context(), lost); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	lost.Held = func(context.Context) (bool, error) { return true, nil }
	if r := export(t, lost); r.Increment.Sequence != 3 || r.Totals["EUR"] != "22" {
		t.Errorf("with the lease: %+v", r)
	}
}

func TestAManifestThatGoesOrKeepsChangingEndsTheExport(t *testing.T) {
	s := openStore(t)
	rate(t, s, "2026-03", 1, map[string]string{"vm-1": "10"})
	dir := t.TempDir()
	in := input(t, s, dir)
	first := export(t, in)
	path := filepath.Join(dir, first.Manifest)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rate(t, s, "2026-03", 2, map[string]string{"vm-1": "11"})
	there := true
	late := in
	late.Bucket = &slow{Bucket: in.Bucket, always: true, meanwhile: func() {
		var err error
		if there = !there; there {
			err = os.WriteFile(path, text, 0o600)
		} else {
			err = os.Remove(path)
		}
		if err != nil {
			t.Error(err)
		}
	}}
	if _, err := exporter.Run(t.Context(), late); ratebatch.ExitCode(err) != ratebatch.ExitTryAgain || !strings.Contains(err.Error(), "each of 3 attempts") {
		t.Errorf("%v", err)
	}
	if r := export(t, in); r.Unchanged || r.Totals["EUR"] != "11" {
		t.Errorf("the next run: %+v", r)
	}
}
