package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A compute node's memory is for its guests. Go's collector waits until the
// heap has doubled, which right after a poll of hundreds of domains means that
// their readings are there twice. A limit makes it come earlier where little is
// live; it follows what is, so that many hosts in one agent do not keep it
// collecting all the time.
const leastMemory = 24 << 20

func memoryLimit(live uint64) int64 { return max(leastMemory, 12<<20+int64(live)*3/2) }

// limitMemory keeps the limit fitting until ctx is done. An operator who set
// GOMEMLIMIT knows better.
func limitMemory(ctx context.Context, every time.Duration) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(leastMemory))
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if metrics.Read(sample); sample[0].Value.Kind() == metrics.KindUint64 {
			debug.SetMemoryLimit(memoryLimit(sample[0].Value.Uint64()))
		}
	}
}
