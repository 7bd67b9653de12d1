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
// their readings are there twice. On such a node, one hypervisor per agent, a
// limit makes it come earlier. An agent of many hypervisors runs elsewhere and
// keeps Go's way: a limit that is a little too tight has the collector take
// half of the processor, which cost 200 hosts their first polls.
const (
	firstLimit = 24 << 20
	leastHeap  = 13 << 20
)

// memoryLimit leaves the heap three fifths above what is live, beside what the
// runtime needs for itself.
func memoryLimit(live, beside uint64) int64 {
	return max(firstLimit, int64(beside)+max(leastHeap, int64(live)*8/5))
}

// limitMemory keeps the limit fitting until ctx is done. An operator who set
// GOMEMLIMIT knows better.
func limitMemory(ctx context.Context, every time.Duration) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(firstLimit))
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(samples)
		var n [5]uint64
		for i, s := range samples {
			if s.Value.Kind() != metrics.KindUint64 {
				return // another runtime: it has to do without
			}
			n[i] = s.Value.Uint64()
		}
		debug.SetMemoryLimit(memoryLimit(n[0], n[1]-n[2]-n[3]-n[4]))
	}
}
