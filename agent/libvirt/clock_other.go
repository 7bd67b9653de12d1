//go:build !linux

package libvirt

import "time"

// sinceBoot is only the process's age here: compute nodes run Linux, other
// systems are for looking at the code.
func sinceBoot() time.Duration { return time.Since(processStart) }
