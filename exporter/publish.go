package exporter

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/exporter/bucket"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// check compares every commit with its lines on the server, for an export that
// has nothing to write and so reads no line: what was delivered may stand, but
// lines that changed since are found today and not in an audit.
func (e *export) check(ctx context.Context) error {
	window := e.window
	window.ThenAsOf = time.Time{}
	d, err := e.Store.ExportCheck(ctx, window)
	if err != nil || d.Periods == 0 {
		return err
	}
	if e.closed && d.Gone { // retention removes the lines of closed and exported months
		e.Log.Info("the lines of this closed month were removed by retention; the delivered files stand", "month", e.Month.Format("2006-01"))
		return nil
	}
	return &mismatchError{scope: d.Scope, period: ratebatch.Period{Begin: d.Begin, End: d.Begin},
		detail: fmt.Sprintf("%d commits differ from their lines in count, digest or total; this is the first", d.Periods)}
}

// damaged gives the paths of a manifest's files that are missing or are not what
// it says of them.
func (e *export) damaged(ctx context.Context, m *Manifest) ([]string, error) {
	sizes := map[string]uint64{}
	for object, err := range e.Bucket.List(ctx, e.folder) {
		if err != nil {
			return nil, err
		}
		sizes[strings.TrimPrefix(object.Name, e.folder)] = uint64(object.Size)
	}
	var broken []string
	for _, f := range m.Files {
		size, ok := sizes[f.Path]
		same := ok && size == f.Bytes
		if same {
			var err error
			if same, err = e.sameBytes(ctx, f); err != nil {
				return nil, err
			}
		}
		if !same {
			broken = append(broken, f.Path)
		}
	}
	return broken, nil
}

// mostBroken is how many broken files a message names.
const mostBroken = 5

// sameBytes reads a delivered file back and compares it with its manifest: one
// that was damaged is written again and not called delivered.
func (e *export) sameBytes(ctx context.Context, f File) (bool, error) {
	in, err := e.Bucket.Open(ctx, e.folder+f.Path)
	if err != nil {
		return false, err
	}
	defer in.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, in); err != nil {
		return false, fmt.Errorf("read %s back: %w", f.Path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)) == f.SHA256, nil
}

// errOvertaken says that another export published to the place meanwhile.
var errOvertaken = errors.New("another export published to the same place meanwhile")

// notOvertaken looks, right before text becomes the manifest, whether the one
// that the attempt began with is still there: an export that took long would
// put an open month over its closed one, or drop an append delivery that
// readers took. That the text itself is there already does no harm.
//
// Stores that can make a write depend on what is there (If-Match) would close
// the moment between this look and the write; it is not used, since old stores
// ignore the header, which nobody would notice, or refuse it, and a folder has
// nothing like it. Append deliveries, where the moment costs most, have the
// lease on top.
func (e *export) notOvertaken(ctx context.Context, text []byte) error {
	if e.Held != nil {
		held, err := e.Held(ctx)
		if err != nil {
			return err
		}
		if !held { // starting again would be without a lease as well
			return &ratebatch.TryAgainError{Err: fmt.Errorf("another export took over the lease of %s", e.Bucket.Location()),
				Hint: "this one was stopped for too long; nothing was published, run the same command again"}
		}
	}
	_, now, err := ReadManifest(ctx, e.Bucket, e.folder)
	if err != nil && !errors.Is(err, bucket.ErrNotExist) {
		return err
	}
	if (now == nil) == (e.found == nil) && bytes.Equal(now, e.found) || now != nil && bytes.Equal(now, text) {
		return nil
	}
	return fmt.Errorf("%s/%s: %w", e.Bucket.Location(), e.folder+ManifestName, errOvertaken)
}

// publish writes the manifest, which makes the delivery the current one, and
// notes it in ClickHouse.
func (e *export) publish(ctx context.Context, m *Manifest) error {
	text, err := m.encode()
	if err != nil {
		return err
	}
	if err := e.notOvertaken(ctx, text); err != nil {
		return err
	}
	if e.SignKey != nil {
		if _, err := e.writeText(ctx, SignatureName, nil, sign(e.SignKey, text)); err != nil {
			return err
		}
	}
	if _, err := e.writeText(ctx, ManifestName, nil, text); err != nil {
		return err
	}
	return e.record(ctx, m, text)
}

// record notes a delivery, whose manifest has this text, in ClickHouse.
func (e *export) record(ctx context.Context, m *Manifest, text []byte) error {
	sum := sha256.Sum256(text)
	files, rows, totals := m.Files, m.Rows, exactTotals(m.Totals)
	if next, added := m.increment(); next != nil { // the table has one row per delivery
		files, rows, totals = added, next.Rows, exactTotals(next.Totals)
	}
	return e.Store.RecordExport(ctx, store.Export{Delivery: m.Delivery, Dataset: m.Dataset, Mechanism: string(m.Mechanism), Location: e.Bucket.Location(), Month: e.Month,
		Begin: m.State.Begin, End: m.State.End, Commits: m.State.Commits, CommitDigest: m.State.CommitDigest, Files: uint32(len(files)), Rows: rows,
		Totals: totals, ManifestSHA256: hex.EncodeToString(sum[:]), RunID: e.RunID, AsOf: e.window.AsOf})
}

// unchanged ends an export that finds its state delivered already: it looks at
// the lines all the same, and notes the delivery if the run that published it
// came no further, or retention and reconcile would take the month for not
// exported for ever.
func (e *export) unchanged(ctx context.Context, current *Manifest, text []byte) (Result, error) {
	if err := e.check(ctx); err != nil {
		return Result{}, err
	}
	result := e.result(current)
	result.Unchanged = true
	if e.DryRun {
		return result, nil
	}
	recorded, err := e.Store.LastExport(ctx, e.Bucket.Location(), e.Dataset, e.Month)
	if err != nil {
		return Result{}, err
	}
	if err := e.signAgain(ctx, text); err != nil {
		return Result{}, err
	}
	if sum := sha256.Sum256(text); recorded != hex.EncodeToString(sum[:]) {
		if err := e.record(ctx, current, text); err != nil {
			return Result{}, err
		}
	}
	return result, e.sweep(ctx, current)
}

// signAgain signs the manifest that stands where a key is given and the signature
// beside it is not the key's: there was no key, or another one, when it was
// published, or the run that did it was killed between the two.
func (e *export) signAgain(ctx context.Context, text []byte) error {
	if e.SignKey == nil {
		return nil
	}
	public, ok := e.SignKey.Public().(ed25519.PublicKey)
	if !ok {
		return errors.New("the key to sign with is not ed25519")
	}
	err := verifySignature(ctx, e.Bucket, e.folder, public, text)
	if !errors.Is(err, errNotSigned) && !errors.Is(err, errSignature) {
		return err
	}
	if err := e.notOvertaken(ctx, text); err != nil {
		return err
	}
	if _, err := e.writeText(ctx, SignatureName, nil, sign(e.SignKey, text)); err != nil {
		return err
	}
	e.Log.Info("signed the manifest that was there", "manifest", e.folder+ManifestName)
	return nil
}

// abandoned is the age from which an unfinished object has no writer any more.
const abandoned = 24 * time.Hour

// sweep removes the files of deliveries that were replaced longer than the
// grace ago: readers that follow the manifest had that long to finish.
func (e *export) sweep(ctx context.Context, m *Manifest) error {
	if cleaner, ok := e.Bucket.(bucket.Cleaner); ok {
		if err := cleaner.Clean(ctx, e.folder, e.Now.Add(-abandoned)); err != nil {
			e.Log.Warn("clean up after killed exports", "error", err)
		}
	}
	newest := map[string]time.Time{}
	files := map[string][]string{}
	for object, err := range e.Bucket.List(ctx, e.folder+"delivery=") {
		if err != nil {
			return err
		}
		folder, _, _ := strings.Cut(strings.TrimPrefix(object.Name, e.folder), "/")
		name := strings.TrimPrefix(folder, "delivery=")
		files[name] = append(files[name], object.Name)
		if object.Modified.After(newest[name]) {
			newest[name] = object.Modified
		}
	}
	for _, delivery := range m.deliveries() {
		delete(files, delivery)
	}
	if len(files) == 0 {
		return nil
	}
	replaced, err := e.replaced(ctx, newest)
	if err != nil {
		return err
	}
	for _, name := range sortedNames(files) {
		if e.Now.Sub(replaced[name]) < e.Grace {
			continue
		}
		for _, object := range files[name] {
			if err := e.Bucket.Delete(ctx, object); err != nil {
				return err
			}
		}
		e.Log.Info("removed a delivery that was replaced", "delivery", name, "files", len(files[name]))
	}
	return nil
}

// replaced says since when each delivery is not the current one, given the time
// of its newest file: since the next one was. A delivery that is not on record
// was left by a killed attempt, and never was the current one; but that which the
// manifest named until now was, on record or not.
func (e *export) replaced(ctx context.Context, newest map[string]time.Time) (map[string]time.Time, error) {
	recorded, err := e.Store.RecordedDeliveries(ctx, e.Bucket.Location(), e.Dataset, e.Month)
	if err != nil {
		return nil, err
	}
	since := maps.Clone(newest)
	for i := range len(recorded) - 1 {
		next := recorded[i+1]
		since[recorded[i].Delivery] = next.AsOf
		if written := newest[next.Delivery]; written.After(next.AsOf) {
			since[recorded[i].Delivery] = written
		}
	}
	if e.before != "" {
		since[e.before] = e.Now
	}
	return since, nil
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
