// Package libvirt reads what the domains of one host have used so far.
//
// A poll is one bulk statistics call for all active domains (paused ones
// included: they still occupy memory and disk) and domain XML only for domains
// that are new or changed, because XML has no bulk call. The package says what
// libvirt said: a field that libvirt left out is nil, since missing is not zero
// and the next difference then covers both intervals.
//
// It trusts neither libvirtd nor QEMU to answer. Every call has a deadline, and
// past it the raw connection is closed, which frees whatever waits on it;
// go-libvirt itself has no timeouts, panics on a packet length below its header
// and hangs in Disconnect while libvirtd is stopped. So a connection lives in a
// client object of its own, behind a net.Conn of ours that checks every packet,
// and is thrown away whole when anything goes wrong.
//
// Authentication (SASL with SCRAM-SHA-256, or DIGEST-MD5 with its encryption on
// plain TCP as Kolla-Ansible deploys it) happens in the dialer, on the raw
// connection; go-libvirt then finds nothing left to authenticate. Sessions are
// read-only.
package libvirt

import (
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
)

// Options say where a libvirtd is and how to speak to it.
type Options struct {
	// URI is qemu:///system, qemu+unix:///system?socket=/path,
	// qemu+tcp://host[:16509]/system or qemu+tls://host[:16514]/system.
	URI string

	// Username and Password are for SASL; both or neither. Without them,
	// AuthFile is read: an INI file in libvirt's auth.conf format, section
	// AuthSection (credentials-default, as Nova's deployments write it).
	Username, Password    string
	AuthFile, AuthSection string

	// TLS is for qemu+tls. Without files the system's roots are used and no
	// client certificate is shown. ServerName replaces the URI's host name.
	TLS TLSFiles

	// Deadline bounds each call, the connection's set-up included; 20 s when
	// zero. libvirtd needs about 5.5 ms per domain for a bulk call.
	Deadline time.Duration

	// MaxBackoff bounds the pause between attempts to connect; 1 min when zero.
	MaxBackoff time.Duration

	Log *slog.Logger
}

// TLSFiles are PEM files; empty means none.
type TLSFiles struct {
	CA, Cert, Key string
	ServerName    string
}

// Snapshot is one poll's answer.
type Snapshot struct {
	// At is the wall clock when libvirt's reply arrived. It also carries Go's
	// monotonic reading, which Sub uses and serialization loses.
	At time.Time
	// Mono is the time since the machine's boot at the same moment, sleep
	// included: differences hold across a restart of the agent (on the same
	// boot) and whatever happens to the wall clock.
	Mono    time.Duration
	Domains []Domain
}

// State is a domain's state by libvirt's numbers.
type State int32

// The states of virDomainState.
const (
	StateUnknown     State = 0
	StateRunning     State = 1
	StateBlocked     State = 2
	StatePaused      State = 3
	StateShutdown    State = 4
	StateShutoff     State = 5
	StateCrashed     State = 6
	StatePMSuspended State = 7
)

// Domain is what libvirt said about one active domain. Counters count from
// the domain's start; nil means the hypervisor did not tell.
type Domain struct {
	UUID uuid.UUID
	// ID grows with each start and restore of any domain and survives a restart
	// of libvirtd: another ID means counters that began at zero.
	ID    int32
	Name  string
	State State
	// VCPUs is how many are online; 0 when the hypervisor did not tell.
	VCPUs uint16

	CPUTimeNS         *uint64
	MemoryActualBytes *uint64
	MemoryRSSBytes    *uint64
	MemoryUsableBytes *uint64

	Interfaces []Interface
	Disks      []Disk

	Nova Nova
	// Described is false as long as the domain's XML could not be read. Nova
	// and the interfaces' ids are then unknown, which is not the same as absent:
	// keep the readings, attribute them later.
	Described bool
	// Problem says why the XML was read but refused (an XML bomb, say). The
	// domain is metered, to nobody.
	Problem string
}

// Interface is one vNIC, by the name of its device on the host. Received and
// sent are the guest's view.
type Interface struct {
	Name        string
	InterfaceID string // virtualport/parameters@interfaceid; may be empty
	MAC         string
	RxBytes     *uint64
	TxBytes     *uint64
}

// Disk is one block device by its target name (vda).
type Disk struct {
	Device          string
	ReadBytes       *uint64
	WriteBytes      *uint64
	ReadRequests    *uint64
	WriteRequests   *uint64
	CapacityBytes   *uint64
	AllocationBytes *uint64
	PhysicalBytes   *uint64
}

// Nova is what Nova wrote into the domain's metadata; empty strings where it
// wrote nothing.
type Nova struct {
	ProjectID    string
	UserID       string
	FlavorName   string
	InstanceName string
	ImageID      string
}

// EventKind is what happened.
type EventKind string

// The kinds of events.
const (
	EventStarted       EventKind = "started"
	EventSuspended     EventKind = "suspended"
	EventResumed       EventKind = "resumed"
	EventShutdown      EventKind = "shutdown" // the guest has stopped, its counters can still be read in part
	EventStopped       EventKind = "stopped"  // gone
	EventRebooted      EventKind = "rebooted"
	EventDeviceAdded   EventKind = "device_added"
	EventDeviceRemoved EventKind = "device_removed"
	EventReconnected   EventKind = "reconnected" // events may have been missed
)

// Event is a reason to poll once more. It does not replace a poll: events are
// lost while there is no connection, and when nobody reads them.
type Event struct {
	Kind   EventKind
	Domain uuid.UUID // zero for reconnected
	ID     int32
	Name   string
	At     time.Time
}

// ErrClosed is what a closed Host answers.
var ErrClosed = errors.New("libvirt: the host was closed")

const (
	defaultDeadline   = 20 * time.Second
	defaultMaxBackoff = time.Minute
)
