// Package clock reads the two clocks that metering needs. The wall clock says
// when something was used, for people and periods; the clock since boot says
// how long it lasted, because it neither jumps nor runs backwards. Moments are
// saved on disk, so the second one must hold across restarts of the agent:
// Go's own monotonic reading does not, CLOCK_BOOTTIME with the boot's id does.
package clock

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Moment is one reading of both clocks.
type Moment struct {
	Wall   time.Time
	BootID string        // of the agent's machine; readings of different boots cannot be compared
	Since  time.Duration // since that boot, suspended time included
}

// Elapsed is the time from one moment to a later one. Within one boot it is
// exact, whatever was done to the wall clock. Across boots only the wall clock
// is left, and a negative difference counts as nothing.
func Elapsed(from, to Moment) time.Duration {
	if from.BootID == to.BootID {
		return max(0, to.Since-from.Since)
	}
	return max(0, to.Wall.Sub(from.Wall))
}

// Before is the moment d earlier on both clocks.
func (m Moment) Before(d time.Duration) Moment {
	return Moment{Wall: m.Wall.Add(-d), BootID: m.BootID, Since: m.Since - d}
}

// System gives the machine's clocks; now is time.Now.
func System(now func() time.Time) (func() Moment, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("read the id of this boot: %w", err)
	}
	id := strings.TrimSpace(string(raw))
	return func() Moment {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			// Linux has had this clock since 2.6.39, so only a sandbox can forbid
			// it; CLOCK_MONOTONIC differs from it by suspended time only.
			_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
		}
		return Moment{Wall: now(), BootID: id, Since: time.Duration(ts.Nano())}
	}, nil
}
