// Package spool keeps on disk what must survive the agent: the last readings
// of the counters (the state) and the records that no broker has acknowledged
// yet. Both change in one step, so a counter never moves on without its record
// and no interval is sent under two identities.
//
// A batch of records is a file of its own, written and synced before the state
// file that names it as the last one replaces its predecessor; that rename is
// the step. After a crash a batch beyond the state's number was never sent and
// never counted, and is removed: the next poll covers its interval again.
// A delivered batch is removed; if the crash comes first it is sent again, with
// the identities it had, which is no second sample.
//
// Nothing leaves silently: what is too old, too much or damaged is counted and
// logged, with the time it covered.
package spool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ratebatch/ratebatch/agent/clock"
)

// ErrInUse says that another process has the spool open.
var ErrInUse = errors.New("another ratebatch-agent uses this folder")

// Options of a spool; MaxAge and MaxBytes of 0 mean no bound.
type Options struct {
	Dir      string
	MaxAge   time.Duration // of a batch, by the clock since boot where it can tell
	MaxBytes int64         // of all batches on disk
	Clock    func() clock.Moment
	Log      *slog.Logger

	disk disk // tests break it
}

// Stats says what a spool holds and what it lost since it was opened.
type Stats struct {
	Batches, Records int
	Bytes            int64
	Oldest           time.Duration // age of the oldest batch, 0 without one
	Dropped          int           // records that were too old or too much
	Damaged          int           // files that were not what was written
}

// Spool is one host's folder. Its methods may be called from several
// goroutines; one of them appends, one of them drains.
type Spool struct {
	opts Options
	lock *os.File
	disk disk

	mu      sync.Mutex
	last    uint64   // the number of the last batch
	batches []header // unsent, in order
	sending uint64   // the batch that Next gave away; the bounds leave it alone
	unsure  bool     // a write failed half way: only the disk knows what stands there
	stats   Stats
}

// Open opens or makes the folder and gives the saved state, nil where there is
// none (then readings start with a baseline).
func Open(ctx context.Context, opts Options) (*Spool, []byte, error) {
	s := &Spool{opts: opts, disk: opts.disk}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("spool: %w: name a folder that the agent may write with --state-dir", err)
	}
	lock, err := lockFolder(opts.Dir)
	if err != nil {
		return nil, nil, fmt.Errorf("spool %s: %w: stop the other one, or give this one its own --state-dir", opts.Dir, err)
	}
	s.lock = lock
	if s.disk == nil {
		s.disk = folder(opts.Dir)
	}
	state, err := s.Recover(ctx)
	if err != nil {
		lock.Close()
		return nil, nil, err
	}
	return s, state, nil
}

// Close lets another process open the folder.
func (s *Spool) Close() error { return s.lock.Close() }

const stateFile = "state"

func recordsFile(number uint64) string { return fmt.Sprintf("%020d.records", number) }

// Recover reads from disk what holds, as after a crash, and gives the state.
// After a failed Append it must be called before the next one.
func (s *Spool) Recover(ctx context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, err := s.disk.List()
	if err != nil {
		return nil, fmt.Errorf("spool %s: %w", s.opts.Dir, err)
	}
	state, last, known, err := s.readState(ctx)
	if err != nil {
		return nil, err
	}
	var batches []header
	var bytes int64
	slices.Sort(names)
	for _, name := range names {
		base, isRecords := strings.CutSuffix(name, ".records")
		if strings.HasSuffix(name, ".tmp") {
			err = errors.Join(err, s.disk.Remove(name))
		}
		var number uint64
		if n, _ := fmt.Sscanf(base, "%d", &number); !isRecords || n != 1 || name != recordsFile(number) {
			continue
		}
		if known && number > last {
			err = errors.Join(err, s.disk.Remove(name)) // its counters did not move on, so it will be counted again
			continue
		}
		head, size, readErr := s.disk.Head(name, headerSize)
		if readErr != nil {
			return nil, fmt.Errorf("spool %s: %w", s.opts.Dir, readErr)
		}
		h, headErr := decodeHeader(head, 'R', size)
		if headErr == nil && h.number != number {
			headErr = fmt.Errorf("%w: it holds batch %d", errDamaged, h.number)
		}
		if errors.Is(headErr, errNewer) {
			return nil, fmt.Errorf("spool %s: %s: %w: install that version again, or let it drain the spool first", s.opts.Dir, name, headErr)
		}
		last = max(last, number)
		if headErr != nil {
			err = errors.Join(err, s.setAside(ctx, name, headErr))
			continue
		}
		batches = append(batches, h)
		bytes += size
	}
	if err != nil {
		return nil, fmt.Errorf("spool %s: tidy up: %w", s.opts.Dir, err)
	}
	s.last, s.batches, s.unsure = last, batches, false
	s.stats.Bytes = bytes
	return state, nil
}

// readState gives the saved state and the number of the last batch that it
// counts; known is false where there is none or it is damaged.
func (s *Spool) readState(ctx context.Context) (state []byte, last uint64, known bool, err error) {
	data, err := s.disk.Read(stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, false, nil
	}
	if err != nil {
		return nil, 0, false, fmt.Errorf("spool %s: %w", s.opts.Dir, err)
	}
	h, payload, err := decodeFile(data, 'S')
	switch {
	case errors.Is(err, errNewer):
		return nil, 0, false, fmt.Errorf("spool %s: state: %w: install that version again, or remove the folder (one interval is lost then)", s.opts.Dir, err)
	case err != nil:
		return nil, 0, false, s.setAside(ctx, stateFile, err)
	}
	return payload, h.number, true, nil
}

// setAside keeps a damaged file for a person to look at, the newest of each name.
func (s *Spool) setAside(ctx context.Context, name string, reason error) error {
	s.stats.Damaged++
	aside := "damaged.state"
	if name != stateFile {
		aside = fmt.Sprintf("damaged.%d.records", s.stats.Damaged%8)
	}
	s.opts.Log.ErrorContext(ctx, "a file of the spool is damaged and was set aside; what it held is lost", "folder", s.opts.Dir, "file", name, "kept_as", aside, "error", reason)
	if err := s.disk.Rename(name, aside); err != nil {
		return err
	}
	return s.disk.Sync()
}

// Append saves records and the state that counts them, in one step: after an
// error, or a crash at any point, either both hold or neither, and Recover says
// which. No records are fine: then only the state is saved.
func (s *Spool) Append(ctx context.Context, records []Record, state []byte) error {
	now := s.opts.Clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsure {
		return fmt.Errorf("spool %s: an earlier write failed: call Recover first", s.opts.Dir)
	}
	// Any error below leaves it open what stands on disk.
	s.unsure = true
	h := header{kind: 'R', number: s.last, when: now, records: len(records)}
	var size int64
	if len(records) > 0 {
		h.number++
		data := encodeFile(h, encodeRecords(records))
		size = int64(len(data))
		h.packed = len(data) - headerSize - footerSize
		if err := s.put(recordsFile(h.number), data); err != nil {
			return fmt.Errorf("spool %s: write batch %d: %w", s.opts.Dir, h.number, err)
		}
	}
	if err := s.put(stateFile, encodeFile(header{kind: 'S', number: h.number, when: now}, state)); err != nil {
		return fmt.Errorf("spool %s: save the readings: %w", s.opts.Dir, err)
	}
	s.unsure = false
	s.last = h.number
	if len(records) > 0 {
		s.batches = append(s.batches, h)
		s.stats.Bytes += size
	}
	s.prune(ctx, now)
	return nil
}

// put replaces a file as a whole. The folder is synced before it returns, so
// what comes next cannot reach the disk earlier.
func (s *Spool) put(name string, data []byte) error {
	if err := s.disk.Write(name+".tmp", data); err != nil {
		return err
	}
	if err := s.disk.Rename(name+".tmp", name); err != nil {
		return err
	}
	return s.disk.Sync()
}

// prune drops the oldest batches beyond the bounds.
func (s *Spool) prune(ctx context.Context, now clock.Moment) {
	var dropped []header
	for len(s.batches) > 0 {
		i := 0
		if s.batches[0].number == s.sending {
			i = 1
		}
		old := s.opts.MaxAge > 0 && i < len(s.batches) && clock.Elapsed(s.batches[i].when, now) > s.opts.MaxAge
		much := s.opts.MaxBytes > 0 && s.stats.Bytes > s.opts.MaxBytes
		if i >= len(s.batches) || !old && !much {
			break
		}
		h := s.batches[i]
		if err := s.disk.Remove(recordsFile(h.number)); err != nil {
			s.opts.Log.ErrorContext(ctx, "the spool is full and its oldest batch cannot be removed", "folder", s.opts.Dir, "batch", h.number, "error", err)
			break
		}
		s.forget(i)
		s.stats.Dropped += h.records
		dropped = append(dropped, h)
	}
	if len(dropped) == 0 {
		return
	}
	records := 0
	for _, h := range dropped {
		records += h.records
	}
	s.opts.Log.ErrorContext(ctx, "the spool is full: its oldest records were dropped and will not be billed",
		"folder", s.opts.Dir, "records", records, "batches", len(dropped), "polled_from", dropped[0].when.Wall.UTC(), "polled_to", dropped[len(dropped)-1].when.Wall.UTC())
}

func (s *Spool) forget(i int) {
	h := s.batches[i]
	s.batches = slices.Delete(s.batches, i, i+1)
	s.stats.Bytes -= int64(headerSize + h.packed + footerSize)
}

// Batch is what Next gives: records in the order in which they were appended.
type Batch struct {
	Number  uint64
	Records []Record
}

// Next reads the oldest unsent batch; ok is false when there is none. It stays
// in the spool until Done. Damaged batches are set aside and counted on the way.
func (s *Spool) Next(ctx context.Context) (batch Batch, ok bool, err error) {
	now := s.opts.Clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsure {
		return batch, false, nil // the one that appends will Recover; until then the disk may hold an uncounted batch
	}
	s.sending = 0
	s.prune(ctx, now)
	for len(s.batches) > 0 {
		number := s.batches[0].number
		data, err := s.disk.Read(recordsFile(number))
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				return batch, false, fmt.Errorf("spool %s: read batch %d: %w", s.opts.Dir, number, err)
			}
			s.stats.Damaged++
			s.opts.Log.ErrorContext(ctx, "a batch vanished from the spool; what it held is lost", "folder", s.opts.Dir, "batch", number)
			s.forget(0)
			continue
		}
		h, payload, err := decodeFile(data, 'R')
		var records []Record
		if err == nil {
			records, err = decodeRecords(payload, h.records)
		}
		if err == nil && h.number == number {
			s.sending = number
			return Batch{number, records}, true, nil
		}
		if err := s.setAside(ctx, recordsFile(number), err); err != nil {
			return batch, false, fmt.Errorf("spool %s: set batch %d aside: %w", s.opts.Dir, number, err)
		}
		s.forget(0)
	}
	return batch, false, nil
}

// Done removes a batch whose records are all acknowledged. Where that fails it
// is sent again later, which the records' identities make harmless.
func (s *Spool) Done(number uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sending == number {
		s.sending = 0
	}
	i := slices.IndexFunc(s.batches, func(h header) bool { return h.number == number })
	if i < 0 {
		return nil
	}
	if err := s.disk.Remove(recordsFile(number)); err != nil {
		return fmt.Errorf("spool %s: remove the delivered batch %d: %w", s.opts.Dir, number, err)
	}
	s.forget(i)
	return nil
}

// Retire sets the saved state aside: whoever opens the folder next begins
// without readings. Unsent records stay.
func (s *Spool) Retire() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.disk.Rename(stateFile, "former."+stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = s.disk.Sync()
	}
	if err != nil {
		return fmt.Errorf("spool %s: set the readings aside: %w", s.opts.Dir, err)
	}
	return nil
}

// Stats says what the spool holds now.
func (s *Spool) Stats() Stats {
	now := s.opts.Clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.stats
	out.Batches = len(s.batches)
	for _, h := range s.batches {
		out.Records += h.records
	}
	if len(s.batches) > 0 {
		out.Oldest = clock.Elapsed(s.batches[0].when, now)
	}
	return out
}
