package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ratebatch/ratebatch/agent/clock"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("SPOOL_TEST_VICTIM"); dir != "" {
		victim(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

const boot = "11111111-1111-4111-8111-111111111111"

// ticker is a clock that tests move.
type ticker struct{ since time.Duration }

func (c *ticker) now() clock.Moment {
	return clock.Moment{Wall: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(c.since), BootID: boot, Since: c.since}
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func open(t *testing.T, o Options) (*Spool, []byte) {
	t.Helper()
	if o.Clock == nil {
		o.Clock = (&ticker{}).now
	}
	if o.Log == nil {
		o.Log = quiet
	}
	s, state, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, state
}

func batch(n int) []Record {
	var out []Record
	for i := range 3 {
		out = append(out, Record{Topic: 'p', Key: fmt.Appendf(nil, "key-%d", i), Value: fmt.Appendf(nil, "batch %d record %d", n, i)})
	}
	return out
}

// drain takes everything out, in order.
func drain(t *testing.T, s *Spool) []string {
	t.Helper()
	var out []string
	for {
		b, ok, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return out
		}
		for _, r := range b.Records {
			out = append(out, string(r.Value))
		}
		if err := s.Done(b.Number); err != nil {
			t.Fatal(err)
		}
	}
}

func values(from, to int) []string {
	var out []string
	for n := from; n <= to; n++ {
		for _, r := range batch(n) {
			out = append(out, string(r.Value))
		}
	}
	return out
}

func TestRecordsAndStateOutliveTheProcessInOrder(t *testing.T) {
	dir := t.TempDir()
	s, state := open(t, Options{Dir: dir})
	if state != nil {
		t.Errorf("a new spool has the state %q", state)
	}
	for n := 1; n <= 12; n++ {
		if err := s.Append(t.Context(), batch(n), fmt.Appendf(nil, "state %d", n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Append(t.Context(), nil, []byte("state without records")); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s, state = open(t, Options{Dir: dir})
	if string(state) != "state without records" {
		t.Errorf("state %q", state)
	}
	if got := s.Stats(); got.Batches != 12 || got.Records != 36 || got.Bytes == 0 {
		t.Errorf("%+v", got)
	}
	// A batch that was taken and not acknowledged comes again.
	if b, ok, err := s.Next(t.Context()); !ok || err != nil || b.Number != 1 {
		t.Fatalf("%+v %v %v", b, ok, err)
	}
	if got := drain(t, s); !slices.Equal(got, values(1, 12)) {
		t.Errorf("drained %q", got)
	}
	if got := s.Stats(); got.Batches != 0 || got.Records != 0 || got.Bytes != 0 {
		t.Errorf("%+v", got)
	}
	// Numbers go on, so nothing can be taken for an older batch.
	if err := s.Append(t.Context(), batch(13), []byte("s")); err != nil {
		t.Fatal(err)
	}
	if b, _, _ := s.Next(t.Context()); b.Number != 13 {
		t.Errorf("batch %d", b.Number)
	}
}

func TestOnlyOneProcessHasASpool(t *testing.T) {
	dir := t.TempDir()
	open(t, Options{Dir: dir})
	_, _, err := Open(t.Context(), Options{Dir: dir, Log: quiet, Clock: (&ticker{}).now})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("got %v", err)
	}
}

func TestTheOldestGoWhenTheSpoolIsFull(t *testing.T) {
	t.Run("by age", func(t *testing.T) {
		c := &ticker{}
		s, _ := open(t, Options{Dir: t.TempDir(), Clock: c.now, MaxAge: 24 * time.Hour})
		for n := 1; n <= 25; n++ {
			c.since = time.Duration(n) * time.Hour
			if err := s.Append(t.Context(), batch(n), nil); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.Stats(); got.Batches != 25 || got.Dropped != 0 || got.Oldest != 24*time.Hour {
			t.Errorf("at the bound: %+v", got)
		}
		c.since += time.Nanosecond
		if got := drain(t, s); !slices.Equal(got, values(2, 25)) {
			t.Errorf("drained %q", got)
		}
		if got := s.Stats(); got.Dropped != 3 {
			t.Errorf("dropped %d records, want 3", got.Dropped)
		}
	})
	t.Run("a wall clock that is set does not age them", func(t *testing.T) {
		c := &ticker{}
		wall := time.Duration(0)
		s, _ := open(t, Options{Dir: t.TempDir(), MaxAge: 24 * time.Hour, Clock: func() clock.Moment {
			m := c.now()
			m.Wall = m.Wall.Add(wall)
			return m
		}})
		if err := s.Append(t.Context(), batch(1), nil); err != nil {
			t.Fatal(err)
		}
		wall = 1000 * time.Hour
		if got := drain(t, s); len(got) != 3 {
			t.Errorf("drained %q", got)
		}
	})
	t.Run("by size, but never the batch on its way", func(t *testing.T) {
		var log strings.Builder
		s, _ := open(t, Options{Dir: t.TempDir(), MaxBytes: 500, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err := s.Append(t.Context(), batch(1), nil); err != nil {
			t.Fatal(err)
		}
		if _, ok, _ := s.Next(t.Context()); !ok {
			t.Fatal("nothing to send")
		}
		for n := 2; n <= 9; n++ {
			if err := s.Append(t.Context(), batch(n), nil); err != nil {
				t.Fatal(err)
			}
		}
		got := s.Stats()
		if got.Bytes > 500 || got.Batches < 2 || got.Dropped != 3*(9-got.Batches) {
			t.Errorf("%+v", got)
		}
		if !strings.Contains(log.String(), "will not be billed") {
			t.Errorf("log: %s", log.String())
		}
		want := append(values(1, 1), values(9-got.Batches+2, 9)...)
		if drained := drain(t, s); !slices.Equal(drained, want) {
			t.Errorf("drained %q\nwant %q", drained, want)
		}
	})
}

// Each file is damaged in each way; the rest stays usable, and it is counted.
func TestDamageIsFoundAndSetAside(t *testing.T) {
	damages := map[string]func([]byte) []byte{
		"cut to nothing":        func([]byte) []byte { return nil },
		"cut in the header":     func(b []byte) []byte { return b[:30] },
		"cut in the payload":    func(b []byte) []byte { return b[:len(b)-10] },
		"longer":                func(b []byte) []byte { return append(b, 0) },
		"a bit in the payload":  func(b []byte) []byte { b[headerSize+5] ^= 1; return b },
		"a bit in the header":   func(b []byte) []byte { b[50] ^= 1; return b },
		"a bit in the checksum": func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"lengths of garbage":    func(b []byte) []byte { copy(b[49:], "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"); return b },
		"zeros":                 func(b []byte) []byte { clear(b); return b },
	}
	for name, damage := range damages {
		for _, file := range []string{recordsFile(2), stateFile} {
			t.Run(name+" of "+file, func(t *testing.T) {
				dir := t.TempDir()
				s, _ := open(t, Options{Dir: dir})
				for n := 1; n <= 3; n++ {
					if err := s.Append(t.Context(), batch(n), []byte("state")); err != nil {
						t.Fatal(err)
					}
				}
				s.Close()
				path := filepath.Join(dir, file)
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, damage(data), 0o600); err != nil {
					t.Fatal(err)
				}
				s, state := open(t, Options{Dir: dir})
				want := values(1, 3)
				if file == stateFile {
					if state != nil {
						t.Errorf("a damaged state was given: %q", state)
					}
				} else {
					want = append(values(1, 1), values(3, 3)...)
				}
				if got := drain(t, s); !slices.Equal(got, want) {
					t.Errorf("drained %q", got)
				}
				if got := s.Stats(); got.Damaged != 1 || got.Bytes != 0 {
					t.Errorf("%+v", got)
				}
				if err := s.Append(t.Context(), batch(4), []byte("new state")); err != nil {
					t.Fatal(err)
				}
				if got := drain(t, s); !slices.Equal(got, values(4, 4)) {
					t.Errorf("then %q", got)
				}
			})
		}
	}
}

func TestAFileOfANewerAgentIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, Options{Dir: dir})
	if err := s.Append(t.Context(), batch(1), []byte("state")); err != nil {
		t.Fatal(err)
	}
	s.Close()
	for _, file := range []string{recordsFile(1), stateFile} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		data[7] = version + 1
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Open(t.Context(), Options{Dir: dir, Log: quiet, Clock: (&ticker{}).now}); !errors.Is(err, errNewer) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// broken is a disk whose at-th change fails in a way, and from there on all
// changes if it dies.
type broken struct {
	folder
	at   int
	how  string
	seen int
	dead bool
}

var errBroken = errors.New("the disk broke")

// hows are the ways: nothing happens; half of the bytes arrive (at the end of
// the process too, when the page cache was not written); or all of it happens
// but the answer is lost.
var hows = []string{"refused", "half", "lost", "dies before", "dies half", "dies after"}

func (d *broken) change(do, half func() error) error {
	if d.dead {
		return errBroken
	}
	d.seen++
	if d.seen != d.at {
		return do()
	}
	d.dead = strings.HasPrefix(d.how, "dies")
	switch d.how {
	case "half", "dies half":
		if half != nil {
			if err := half(); err != nil {
				return err
			}
		}
	case "lost", "dies after":
		if err := do(); err != nil {
			return err
		}
	}
	return errBroken
}

func (d *broken) Write(name string, data []byte) error {
	// Hundreds of runs: that each write is synced has no part in this test.
	write := func(data []byte) error { return os.WriteFile(filepath.Join(string(d.folder), name), data, 0o600) }
	return d.change(func() error { return write(data) }, func() error { return write(data[:len(data)/2]) })
}

func (d *broken) Rename(from, to string) error {
	return d.change(func() error { return d.folder.Rename(from, to) }, nil)
}
func (d *broken) Remove(name string) error {
	return d.change(func() error { return d.folder.Remove(name) }, nil)
}
func (d *broken) Sync() error { return d.change(func() error { return nil }, nil) }

// A toy agent counts to ten: its state is how far it came, its records are the
// numbers. Whatever breaks at whichever step, once or for good with a new
// process afterwards, each number is sent, and repeats are whole.
func TestEveryStepBrokenInTurn(t *testing.T) {
	total := 0
	for _, how := range hows {
		for step := 1; ; step++ {
			dir := t.TempDir()
			d := &broken{folder: folder(dir), at: step, how: how}
			sent := map[string]int{}
			count(t, dir, d, sent)
			if d.dead {
				d = &broken{folder: folder(dir)}
				count(t, dir, d, sent)
			}
			for i := 1; i <= 10; i++ {
				value := fmt.Sprint(i)
				if sent[value] == 0 {
					t.Errorf("%s at step %d: %s was never sent", how, step, value)
				}
			}
			for value, times := range sent {
				// A batch that was sent and could not be removed is sent again as it was.
				if times > 2 || strings.Contains(value, "wrong") {
					t.Errorf("%s at step %d: %s was sent %d times", how, step, value, times)
				}
			}
			total++
			if d.at != 0 && d.seen < d.at {
				break // there is no such step
			}
			if step > 500 {
				t.Fatal("it never ends")
			}
		}
	}
	if total < 200 {
		t.Errorf("only %d ways were tried", total)
	}
}

// count runs the toy until it is done or its disk is dead.
func count(t *testing.T, dir string, d *broken, sent map[string]int) {
	t.Helper()
	ctx := t.Context()
	lock, err := lockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &Spool{opts: Options{Dir: dir, Log: quiet, Clock: (&ticker{}).now}, lock: lock, disk: d}
	defer s.Close()
	var state []byte
	recovered := false
	for tries := 0; tries < 100 && !d.dead; tries++ {
		if !recovered {
			if state, err = s.Recover(ctx); err != nil {
				continue
			}
			recovered = true
		}
		at := 0
		if state != nil {
			if _, err := fmt.Sscan(string(state), &at); err != nil {
				t.Fatalf("state %q", state)
			}
		}
		if at < 10 {
			next := fmt.Append(nil, at+1)
			if err := s.Append(ctx, []Record{{Topic: 'p', Key: []byte("k"), Value: next}}, next); err != nil {
				recovered = false
			} else {
				state = next
			}
		}
		batch, ok, err := s.Next(ctx)
		if err != nil {
			continue
		}
		if !ok && at == 10 {
			return
		}
		if ok {
			for _, r := range batch.Records {
				sent[string(r.Value)]++
			}
			_ = s.Done(batch.Number) // then it comes again
		}
	}
}

func TestWithoutRecoveryNothingIsAppendedAfterAFailure(t *testing.T) {
	dir := t.TempDir()
	d := &broken{folder: folder(dir), at: 2, how: "refused"}
	s, _ := open(t, Options{Dir: dir, disk: d})
	ctx := context.WithoutCancel(t.Context())
	if err := s.Append(ctx, batch(1), nil); !errors.Is(err, errBroken) {
		t.Fatalf("got %v", err)
	}
	if err := s.Append(ctx, batch(1), nil); err == nil || !strings.Contains(err.Error(), "call Recover first") {
		t.Fatalf("got %v", err)
	}
	if _, ok, err := s.Next(ctx); ok || err != nil {
		t.Error("what may not be counted was handed out")
	}
	if _, err := s.Recover(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(ctx, batch(1), nil); err != nil {
		t.Fatal(err)
	}
	if got := drain(t, s); !slices.Equal(got, values(1, 1)) {
		t.Errorf("drained %q", got)
	}
}

func FuzzFiles(f *testing.F) {
	h := header{kind: 'R', number: 7, when: (&ticker{}).now(), records: 3}
	f.Add(encodeFile(h, encodeRecords(batch(1))))
	f.Add(encodeFile(header{kind: 'S'}, []byte("state")))
	f.Add([]byte("RBSPOOL\x01R"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, kind := range []byte{'R', 'S'} {
			h, payload, err := decodeFile(data, kind)
			if err != nil {
				continue
			}
			if kind == 'R' {
				if records, err := decodeRecords(payload, h.records); err == nil && len(records) != h.records {
					t.Errorf("%d records, the header says %d", len(records), h.records)
				}
			}
		}
		_, _ = decodeRecords(data, 3)
	})
}
