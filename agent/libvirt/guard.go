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
	procStats     = 344 // CONNECT_GET_ALL_DOMAIN_STATS

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
// The answer to the bulk call it keeps for decodeStats and hands go-libvirt an
// empty list in its place: of 500 domains that answer has 30,000 fields, and
// go-libvirt's decoder, which works by reflection, took half of what a poll
// costs on a compute node whose processors are for its guests.
//
// One goroutine reads and one at a time writes, as go-libvirt does.
type guard struct {
	net.Conn
	readOnly bool

	header  [headerSize + 4]byte // and an empty list behind it
	pending []byte               // of header, not yet handed out
	inLeft  uint32               // payload bytes of the packet under way
	outLeft uint32

	mu      sync.Mutex
	waiting map[uint32]uint32 // serials of calls without a reply, and what they call
	stats   []byte            // the payload of the last bulk answer, until it is taken
	cause   error             // why the connection was given up; the first counts
	done    chan struct{}     // closed with cause
}

func newGuard(c net.Conn, readOnly bool) *guard {
	return &guard{Conn: c, readOnly: readOnly, waiting: map[uint32]uint32{}, done: make(chan struct{})}
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
		if _, err := io.ReadFull(g.Conn, g.header[:headerSize]); err != nil {
			return 0, g.broken(fmt.Errorf("the connection ended: %w", err))
		}
		bulk, err := g.admit()
		if err != nil {
			return 0, g.broken(err)
		}
		g.pending = g.header[:headerSize]
		if bulk {
			if err := g.divert(); err != nil {
				return 0, g.broken(fmt.Errorf("the connection ended inside a packet: %w", err))
			}
		}
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

// divert keeps the payload of a bulk answer and has an empty list follow its
// header.
func (g *guard) divert() error {
	payload := make([]byte, g.inLeft)
	if _, err := io.ReadFull(g.Conn, payload); err != nil {
		return err
	}
	g.inLeft = 0
	binary.BigEndian.PutUint32(g.header[:], headerSize+4)
	g.pending = g.header[:]
	g.mu.Lock()
	g.stats = payload
	g.mu.Unlock()
	return nil
}

// takeStats gives the payload of the bulk call that was answered last, once.
func (g *guard) takeStats() []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	payload := g.stats
	g.stats = nil
	return payload
}

// admit checks the header of a packet from libvirtd, and says whether it is a
// bulk call's good answer.
func (g *guard) admit() (bulk bool, err error) {
	word := func(i int) uint32 { return binary.BigEndian.Uint32(g.header[4*i:]) }
	size, proc, kind, serial, status := word(0), word(3), word(4), word(5), word(6)
	if size < headerSize || size > maxPacket {
		return false, fmt.Errorf("libvirtd sent a packet of %d bytes; a packet has %d to %d", size, headerSize, maxPacket)
	}
	switch kind {
	case typeReply:
		g.mu.Lock()
		call, asked := g.waiting[serial]
		delete(g.waiting, serial)
		g.mu.Unlock()
		if !asked || call != proc || status > 1 {
			return false, fmt.Errorf("libvirtd sent a reply (serial %d, status %d) that belongs to no call", serial, status)
		}
		bulk = proc == procStats && status == 0
	case typeMessage:
		// Events carry a serial that means nothing (libvirtd's is 1), and
		// go-libvirt takes an event it does not know for the reply to that serial.
		if !subscribed[proc] {
			return false, fmt.Errorf("libvirtd sent event %d, which nobody subscribed to", proc)
		}
	default:
		return false, fmt.Errorf("libvirtd sent a packet of type %d, which nobody asked for", kind)
	}
	g.inLeft = size - headerSize
	return bulk, nil
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
		g.waiting[serial] = proc
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
