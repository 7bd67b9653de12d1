package libvirt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

const (
	headerSize = 28
	// maxPacket is libvirt's own limit of a message (VIR_NET_MESSAGE_MAX).
	maxPacket = 32<<20 + headerSize

	remoteProgram = 0x20008086
	procOpen      = 1

	typeReply   = 1
	typeMessage = 2
)

// subscribed are the messages of the events that subscribe asks for:
// lifecycle, reboot, device removed, device added, metadata change.
var subscribed = map[uint32]bool{318: true, 319: true, 333: true, 354: true, 379: true}

// guard stands between go-libvirt and the wire. Inbound it lets only packets
// through that go-libvirt can bear: it panics in its own goroutine on a length
// below the header's, allocates whatever length it is told, and blocks for ever
// on a second reply to one call. Outbound it marks the session read-only, which
// go-libvirt has no way to say.
//
// One goroutine reads and one at a time writes, as go-libvirt does.
type guard struct {
	net.Conn
	readOnly bool

	header  [headerSize]byte
	pending []byte // of header, not yet handed out
	inLeft  uint32 // payload bytes of the packet under way
	outLeft uint32

	mu      sync.Mutex
	waiting map[uint32]struct{} // serials of calls without a reply
	cause   error               // why the connection was given up; the first counts
	done    chan struct{}       // closed with cause
}

func newGuard(c net.Conn, readOnly bool) *guard {
	return &guard{Conn: c, readOnly: readOnly, waiting: map[uint32]struct{}{}, done: make(chan struct{})}
}

// abort closes the connection for a reason and frees whoever waits on it.
func (g *guard) abort(cause error) {
	g.mu.Lock()
	first := g.cause == nil
	if first {
		g.cause = cause
		close(g.done)
	}
	g.mu.Unlock()
	if first {
		g.Conn.Close()
	}
}

// errGoodbye: go-libvirt closed the connection itself, after Disconnect or
// because opening it was refused. The call's own error says more.
var errGoodbye = errors.New("the client closed the connection")

// Close is go-libvirt's way to end the connection.
func (g *guard) Close() error {
	g.abort(errGoodbye)
	return nil
}

// reason is why the connection ended, or nil while it lives.
func (g *guard) reason() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause
}

func (g *guard) Read(p []byte) (int, error) {
	if len(g.pending) > 0 {
		n := copy(p, g.pending)
		g.pending = g.pending[n:]
		return n, nil
	}
	if g.inLeft == 0 {
		if _, err := io.ReadFull(g.Conn, g.header[:]); err != nil {
			return 0, g.broken(fmt.Errorf("the connection ended: %w", err))
		}
		if err := g.admit(); err != nil {
			return 0, g.broken(err)
		}
		g.pending = g.header[:]
		return g.Read(p)
	}
	if uint32(len(p)) > g.inLeft {
		p = p[:g.inLeft]
	}
	n, err := g.Conn.Read(p)
	g.inLeft -= uint32(n)
	if err != nil {
		err = g.broken(fmt.Errorf("the connection ended inside a packet: %w", err))
	}
	return n, err
}

// broken gives the connection up and returns an error that go-libvirt takes
// for final (it retries what net.OpError calls temporary).
func (g *guard) broken(err error) error {
	g.abort(err)
	return io.EOF
}

// admit checks the header of a packet from libvirtd.
func (g *guard) admit() error {
	word := func(i int) uint32 { return binary.BigEndian.Uint32(g.header[4*i:]) }
	size, proc, kind, serial, status := word(0), word(3), word(4), word(5), word(6)
	if size < headerSize || size > maxPacket {
		return fmt.Errorf("libvirtd sent a packet of %d bytes; a packet has %d to %d", size, headerSize, maxPacket)
	}
	switch kind {
	case typeReply:
		g.mu.Lock()
		_, asked := g.waiting[serial]
		delete(g.waiting, serial)
		g.mu.Unlock()
		if !asked || status > 1 || subscribed[proc] {
			return fmt.Errorf("libvirtd sent a reply (serial %d, status %d) that belongs to no call", serial, status)
		}
	case typeMessage:
		// Events carry a serial that means nothing (libvirtd's is 1), and
		// go-libvirt takes an event it does not know for the reply to that serial.
		if !subscribed[proc] {
			return fmt.Errorf("libvirtd sent event %d, which nobody subscribed to", proc)
		}
	default:
		return fmt.Errorf("libvirtd sent a packet of type %d, which nobody asked for", kind)
	}
	g.inLeft = size - headerSize
	return nil
}

func (g *guard) Write(p []byte) (int, error) {
	// go-libvirt writes each packet through an empty 4 KiB buffer, so a packet
	// starts at a write's start and CONNECT_OPEN fits into one.
	if g.outLeft == 0 {
		if len(p) < headerSize {
			return 0, fmt.Errorf("libvirt: a packet's header was written in parts")
		}
		size, proc, serial := binary.BigEndian.Uint32(p), binary.BigEndian.Uint32(p[12:]), binary.BigEndian.Uint32(p[20:])
		g.outLeft = size
		g.mu.Lock()
		g.waiting[serial] = struct{}{}
		g.mu.Unlock()
		if g.readOnly && proc == procOpen && uint32(len(p)) == size && size > headerSize {
			p = append([]byte(nil), p...)
			p[len(p)-1] |= 1 // VIR_CONNECT_RO; the flags are the call's last word
		}
	}
	n, err := g.Conn.Write(p)
	g.outLeft -= min(g.outLeft, uint32(n))
	if err != nil {
		g.abort(fmt.Errorf("the connection ended: %w", err))
	}
	return n, err
}
