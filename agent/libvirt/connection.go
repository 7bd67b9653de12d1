package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	rpc "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"
)

// connection is one go-libvirt client on one guarded connection. It is never
// connected twice: reusing a client races inside go-libvirt.
type connection struct {
	rpc   *rpc.Libvirt
	guard *guard
}

type dialed struct{ conn net.Conn }

func (d dialed) Dial() (net.Conn, error) { return d.conn, nil }

// newConnection dials, opens the driver and subscribes to events.
func (h *Host) newConnection(ctx context.Context) (*connection, error) {
	g, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	c := &connection{rpc: rpc.NewWithDialer(dialed{g}), guard: g}
	err = c.call(ctx, h.deadline, "opening "+h.target.driver, func() error {
		return c.rpc.ConnectToURI(rpc.ConnectURI(h.target.driver))
	})
	if err == nil {
		err = h.subscribe(ctx, c)
	}
	if err != nil {
		g.abort(err)
		return nil, fmt.Errorf("connecting to libvirtd at %s: %w", h.target, err)
	}
	return c, nil
}

func (c *connection) alive() bool {
	select {
	case <-c.guard.done:
		return false
	default:
		return true
	}
}

// call makes one call. Past the deadline, or the caller's, it closes the raw
// connection: go-libvirt knows no other way to stop waiting.
func (c *connection) call(ctx context.Context, limit time.Duration, what string, f func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.guard.abort(fmt.Errorf("%s: %w", what, context.Cause(ctx))) })
	err := f()
	stop()
	if err == nil {
		return nil
	}
	if cause := c.guard.reason(); cause != nil && !errors.Is(cause, errGoodbye) {
		return cause
	}
	return fmt.Errorf("%s: %w", what, err)
}

// close says goodbye, which keeps libvirtd's log free of our going, but does
// not insist.
func (c *connection) close() {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // closing has a limit of its own
	defer cancel()
	_ = c.call(ctx, time.Second, "closing", c.rpc.Disconnect)
	c.guard.abort(ErrClosed)
}

// subscribe registers for the events that change what a poll finds. A libvirtd
// that lacks one is used without it.
//
// A subscription ends with its socket and by nothing else. A context that ended
// first would have go-libvirt deregister all five at the moment at which close
// says goodbye, and libvirtd 9.0 has no lock between the two: it was seen to
// crash, reading the list of callbacks that the closing had freed. A meter that
// goes must not take the compute node's libvirtd with it.
func (h *Host) subscribe(ctx context.Context, c *connection) error {
	never := context.WithoutCancel(ctx)
	for _, id := range []rpc.DomainEventID{
		rpc.DomainEventIDLifecycle, rpc.DomainEventIDReboot, rpc.DomainEventIDDeviceAdded,
		rpc.DomainEventIDDeviceRemoved, rpc.DomainEventIDMetadataChange,
	} {
		err := c.call(ctx, h.deadline, "subscribing to events", func() error {
			ch, err := c.rpc.SubscribeEvents(never, id, nil)
			if err == nil {
				h.wg.Go(func() {
					for e := range ch {
						h.event(e)
					}
				})
			}
			return err
		})
		var refused rpc.Error
		if errors.As(err, &refused) || errors.Is(err, rpc.ErrUnsupported) {
			h.log.Warn("libvirtd does not offer an event; changes are found at the next poll", "event", int32(id), "error", err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// event turns libvirt's events into ours and marks the domain's XML as old.
func (h *Host) event(e any) {
	at := wallClock()
	switch e := e.(type) {
	case *rpc.DomainEventCallbackLifecycleMsg:
		var kind EventKind
		switch rpc.DomainEventType(e.Msg.Event) {
		case rpc.DomainEventStarted:
			kind = EventStarted
		case rpc.DomainEventSuspended, rpc.DomainEventPmsuspended:
			kind = EventSuspended
		case rpc.DomainEventResumed:
			kind = EventResumed
		case rpc.DomainEventShutdown:
			kind = EventShutdown
		case rpc.DomainEventStopped, rpc.DomainEventCrashed:
			kind = EventStopped
		default:
			return // defined, undefined: not about what runs
		}
		h.notice(kind, e.Msg.Dom, at, kind == EventStarted)
	case *rpc.DomainEventCallbackRebootMsg:
		h.notice(EventRebooted, e.Msg.Dom, at, false)
	case *rpc.DomainEventCallbackDeviceAddedMsg:
		h.notice(EventDeviceAdded, e.Dom, at, true)
	case *rpc.DomainEventCallbackDeviceRemovedMsg:
		h.notice(EventDeviceRemoved, e.Msg.Dom, at, true)
	case *rpc.DomainEventCallbackMetadataChangeMsg:
		h.markStale(uuid.UUID(e.Dom.UUID))
	}
}

func (h *Host) notice(kind EventKind, d rpc.Domain, at time.Time, changed bool) {
	if changed {
		h.markStale(uuid.UUID(d.UUID))
	}
	h.emit(Event{Kind: kind, Domain: uuid.UUID(d.UUID), ID: d.ID, Name: d.Name, At: at})
}

func (h *Host) markStale(id uuid.UUID) {
	h.mu.Lock()
	h.stale[id] = struct{}{}
	h.mu.Unlock()
}

func (h *Host) emit(e Event) {
	select {
	case h.events <- e:
	default:
		h.log.Debug("an event nobody reads was dropped", "event", e.Kind)
	}
}
