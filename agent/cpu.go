package agent

import (
	"math/bits"
	"time"

	"github.com/ratebatch/ratebatch/agent/wire"
)

// cpuPercent is the share of all vCPUs that was used: 100 × used ÷ (elapsed ×
// vcpus), rounded half up to two decimals, at most 100. Whole numbers all the
// way: used × 10,000 may exceed 64 bits after a long gap, so it is divided as
// 128 bits. Elapsed and vcpus are at least 1.
func cpuPercent(usedNS uint64, elapsed time.Duration, vcpus uint16) wire.Hundredths {
	hi, divisor := bits.Mul64(uint64(elapsed), uint64(vcpus))
	for hi != 0 { // years on hundreds of vCPUs: halve both, nanoseconds do not matter there
		elapsed, usedNS = elapsed/2, usedNS/2
		hi, divisor = bits.Mul64(uint64(elapsed), uint64(vcpus))
	}
	high, low := bits.Mul64(usedNS, 100_00)
	low, carry := bits.Add64(low, divisor/2, 0)
	high += carry
	if high >= divisor {
		return 100_00
	}
	quotient, _ := bits.Div64(high, low, divisor)
	return wire.Hundredths(min(quotient, 100_00))
}

// advance gives the difference to a new reading, and the counter that the next
// one starts from. A reading below the last one is of a counter that restarted.
func (c counter) advance(reading uint64) (delta uint64, next counter, reset bool) {
	next = counter{reading, true}
	switch {
	case !c.OK:
		return 0, next, false
	case reading < c.V:
		return reading, next, true
	}
	return reading - c.V, next, false
}

// fellTo says whether a reading, nil for none, is below the last one.
func (c counter) fellTo(reading *uint64) bool {
	return c.OK && reading != nil && *reading < c.V
}
