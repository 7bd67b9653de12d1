package exporter

import (
	"context"
	"errors"
	"io"

	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// blockSource gives the blocks of a result one after another, then io.EOF.
type blockSource interface {
	Next(*store.Block) error
}

// readAhead takes blocks off the server while the ones before are still worked
// on: else the server waits for us and we for it, in turns.
type readAhead struct {
	from blockSource
	full chan *store.Block
	free chan *store.Block
	err  error // why full was closed: io.EOF after the last block
}

// aheadBlocks is how many blocks there are, of 65,000 rows or so each.
const aheadBlocks = 2

func newReadAhead(from blockSource) *readAhead {
	a := &readAhead{from: from, full: make(chan *store.Block, aheadBlocks), free: make(chan *store.Block, aheadBlocks)}
	for range aheadBlocks {
		a.free <- new(store.Block)
	}
	return a
}

// run reads until the end, an error, or the end of ctx, and returns errors other
// than io.EOF.
func (a *readAhead) run(ctx context.Context) error {
	defer close(a.full)
	for {
		var b *store.Block
		select {
		case b = <-a.free:
		case <-ctx.Done():
			a.err = context.Cause(ctx)
			return a.err
		}
		switch a.err = a.from.Next(b); {
		case errors.Is(a.err, io.EOF) && !errors.Is(a.err, io.ErrUnexpectedEOF):
			return nil
		case a.err != nil:
			return a.err
		}
		a.full <- b // never blocks: it has a place for every block
	}
}

// Next implements blockSource.
func (a *readAhead) Next(b *store.Block) error {
	next, ok := <-a.full
	if !ok {
		return a.err
	}
	*b, *next = *next, *b
	a.free <- next
	return nil
}
