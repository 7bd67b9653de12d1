package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// withStore opens ClickHouse, hands a Store to use, and closes it again.
func (p *program) withStore(ctx context.Context, use func(context.Context, *store.Store) error) (err error) {
	if p.engine.URL == "" && !p.engine.Create {
		// A mistyped folder is a mistake, not a new cloud.
		if _, err := os.Stat(p.engine.DataDir); errors.Is(err, fs.ErrNotExist) {
			return &ratebatch.ConfigError{Err: fmt.Errorf("there is no data folder %s", p.engine.DataDir), Hint: "name yours with --data, or make it with 'ratebatch migrate'"}
		}
	}
	e, err := engine.Open(ctx, p.engine)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := e.Close(); err == nil {
			err = closeErr
		}
	}()
	return use(ctx, p.openStore(e.Conn(), e.Database()))
}

// print writes value as JSON, or calls table, as --output says.
func (p *program) print(value any, table func()) error {
	if p.output != "json" {
		raw := p.stdout
		p.stdout = printable{raw}
		defer func() { p.stdout = raw }()
		table()
		return nil
	}
	encoder := json.NewEncoder(p.stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func mapKeys[K comparable, V any](m map[K]V) iter.Seq[K] { return maps.Keys(m) }

// progressBar shows how far long work is: a bar on a terminal, a line every
// few seconds elsewhere.
type progressBar struct {
	bars  *mpb.Progress
	bar   *mpb.Bar
	w     io.Writer
	label string
	unit  string
	total int64
	next  time.Time
	now   func() time.Time
}

func (p *program) progress(label string, total int64, unit string) *progressBar {
	b := &progressBar{w: p.stderr, label: label, unit: unit, total: total, now: p.now}
	b.next = b.now().Add(2 * time.Second)
	if total > 0 && isTerminal(p.stderr) {
		b.bars = mpb.New(mpb.WithOutput(p.stderr), mpb.WithWidth(40))
		b.bar = b.bars.AddBar(total,
			mpb.PrependDecorators(decor.Name(label+" "), decor.CountersNoUnit("%d / %d "+unit)),
			mpb.AppendDecorators(decor.Percentage(), decor.Name(" ETA "), decor.AverageETA(decor.ET_STYLE_GO)))
	}
	return b
}

func (b *progressBar) set(done int64) {
	if b.bar != nil {
		b.bar.SetCurrent(done)
		return
	}
	if now := b.now(); b.bars == nil && now.After(b.next) && b.total > 0 {
		fmt.Fprintf(b.w, "%s: %d of %d %s (%d%%)\n", b.label, done, b.total, b.unit, 100*done/b.total)
		b.next = now.Add(2 * time.Second)
	}
}

func (b *progressBar) done() {
	if b.bars != nil {
		b.bar.Abort(false)
		b.bars.Wait()
	}
}
