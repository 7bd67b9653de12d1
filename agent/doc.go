// Package agent turns what libvirt says about a host's domains into records:
// what each instance, disk and port used over an interval. It decides what is
// billed, so its rules are few and each has a test that is named after it:
//
//   - The first poll of an agent without saved readings is a baseline: nothing
//     is known about the time before it. Later, a domain id or a device that
//     was not there at the last poll started from zero and counts in full.
//   - A counter that went backwards counts with its new value, and is counted
//     itself (a metric), because something restarted it.
//   - A domain whose CPU time went backwards, and a counter of its devices with
//     it, started again, whatever its id: polls of a machine that is off fail,
//     so nobody saw it go. A CPU time that went backwards alone is a counter.
//   - Missing is not zero. A reading that a stalled QEMU did not give leaves
//     the last one in place, and the next difference covers both intervals.
//   - A paused domain is metered like a running one.
//   - An interval is [begin, end) between two replies of libvirt, so intervals
//     tile. Its length comes from the clock since boot, so a wall clock that is
//     set neither loses nor doubles any; after a jump the interval keeps its
//     length and lies before its end.
//   - A domain that appeared between two polls started when libvirt's event
//     said so. Without that event nobody observed the time before, and it
//     counts for one poll interval at most, or for as long as its CPU time
//     proves that it ran.
//   - Traffic of a port that OVN cannot tell yet is held (and saved) and sent
//     once it can; libvirt decides what runs here, OVN only says whose it is.
//   - Readings advance only together with the records that they gave, in one
//     step of the spool. Whatever goes wrong before it, the next poll covers
//     the same time again.
//
// A sample's identity is (region, host, epoch, sequence). The sequence counts
// records; both are saved. A new epoch begins with a new state, and with each
// boot of the machine, in case an old copy of the state came back with it.
package agent
