package main

import (
	"fmt"
	"io"
	"os"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

// argLimit bounds a file named on the command line, so that the wrong one (a dump,
// a device) is refused before it fills the memory.
type argLimit struct {
	what  string // the kind of file, in a sentence
	bytes int64
	hint  string // what to do instead of a longer one
}

var (
	planLimit = argLimit{"a rate plan", plan.MaxSize,
		"it is room for 240,000 mappings: give values of one price one rule, by an expression over what they share (vcpus, memory) or a mapping of an attribute that names their price class"}
	metricsLimit = argLimit{"a file of metrics", metric.MaxSize, "it is room for 10,000 metrics: is it the right file?"}
	rulesLimit   = argLimit{"a file of CloudKitty's rules", plan.MaxSize, "name several files: their lists are put together"}
	itemsLimit   = argLimit{"a list of items", plan.MaxSize, "cut it into several lists"}
)

func (l argLimit) exceeded(name, size string) error {
	return &ratebatch.ConfigError{Err: fmt.Errorf("%s has %s: %s has at most %d MB", name, size, l.what, l.bytes>>20), Hint: l.hint}
}

// openArg opens a file named on the command line; "-" is the standard input.
func (p *program) openArg(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(p.stdin), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, &ratebatch.ConfigError{Err: err}
	}
	return f, nil
}

// readArg reads a file named on the command line, whole.
func (p *program) readArg(name string, limit argLimit) ([]byte, error) {
	in, err := p.openArg(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if f, ok := in.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Size() > limit.bytes {
			return nil, limit.exceeded(name, fmt.Sprintf("%.1f MB", float64(info.Size())/(1<<20)))
		}
	}
	data, err := io.ReadAll(io.LimitReader(in, limit.bytes+1))
	if err != nil {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("read %s: %w", name, err)}
	}
	if int64(len(data)) > limit.bytes {
		return nil, limit.exceeded(name, "more than that")
	}
	return data, nil
}
