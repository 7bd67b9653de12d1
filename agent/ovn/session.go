package ovn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"
)

// session is one client with at most one monitor, from its start to its end.
type session struct {
	r       *Resolver
	client  client.Client
	names   map[string]struct{}
	chassis string        // row id the monitor is about
	done    chan struct{} // closed once the connection is gone
	closing chan struct{} // closed by close
	once    sync.Once
}

// open connects and starts watching. Without names (and chassis) it only
// connects.
func (r *Resolver) open(ctx context.Context, names []string) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	dbModel, err := r.source.model()
	if err != nil {
		return nil, err
	}
	log := logr.FromSlogHandler(r.log.Handler())
	opts := []client.Option{client.WithLogger(&log)}
	endpoints := slices.Clone(r.opts.Endpoints)
	// Spread the hosts over the cluster.
	rand.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
	for _, e := range endpoints {
		opts = append(opts, client.WithEndpoint(e))
	}
	if r.opts.TLS.CA != "" {
		conf, err := r.opts.TLS.config()
		if err != nil {
			return nil, err
		}
		opts = append(opts, client.WithTLSConfig(conf))
	}
	c, err := client.NewOVSDBClient(dbModel, opts...)
	if err != nil {
		return nil, fmt.Errorf("ovn: %w", err)
	}
	db, table, _ := r.source.table()
	if err := c.Connect(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("ovn: connecting to %s at %v: %w (is ovsdb-server running there, and may this host reach it?)", db, r.opts.Endpoints, err)
	}
	s := &session{r: r, client: c, names: make(map[string]struct{}, len(names)), done: make(chan struct{}), closing: make(chan struct{})}
	for _, n := range names {
		s.names[n] = struct{}{}
	}
	r.wg.Go(func() {
		// The library tells of a disconnect only who is waiting at that moment,
		// so of our own close we tell ourselves.
		select {
		case <-c.DisconnectNotify():
		case <-s.closing:
		}
		close(s.done)
		r.poke()
	})
	if err := s.watch(ctx, names); err != nil {
		s.close()
		return nil, fmt.Errorf("ovn: watching %d ports in %s of %s: %w", len(names), table, db, err)
	}
	return s, nil
}

// watch sets the monitor up and takes in what is there.
func (s *session) watch(ctx context.Context, names []string) error {
	r := s.r
	var monitor *client.Monitor
	switch {
	case r.opts.Chassis != "":
		id, err := s.chassisID(ctx)
		if err != nil {
			return err
		}
		s.chassis = id
		monitor = r.source.byChassis(s.client, r.opts.Chassis, id)
	case len(names) > 0:
		monitor = r.source.byName(s.client, names)
	default:
		return nil
	}
	// Deletions are not listened to: answers are kept as last known.
	take := func(m model.Model) {
		if w, ok := rowOf(m); ok {
			r.learn(w)
		}
	}
	s.client.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc: func(_ string, m model.Model) {
			take(m)
			if ch, ok := m.(*chassis); ok && ch.UUID != s.chassis {
				s.client.Close() // a new row of the chassis: its ports hang on that one now
			}
		},
		UpdateFunc: func(_ string, _, m model.Model) { take(m) },
	})
	if _, err := s.client.Monitor(ctx, monitor); err != nil {
		return err
	}
	// The events come later, one by one; what is here now is taken at once.
	return s.take(ctx)
}

// take learns every row that the client holds: at the start, and again when a
// port that is being watched already comes (back) to this host.
func (s *session) take(ctx context.Context) error {
	if s.r.source.southbound {
		var rows []*portBinding
		if err := s.client.List(ctx, &rows); err != nil {
			return err
		}
		for _, m := range rows {
			s.r.learn(row{m.LogicalPort, m.ExternalIDs})
		}
		return nil
	}
	var rows []*logicalSwitchPort
	if err := s.client.List(ctx, &rows); err != nil {
		return err
	}
	for _, m := range rows {
		s.r.learn(row{m.Name, m.ExternalIDs})
	}
	return nil
}

// chassisID finds the chassis's row; empty when ovn-controller has none now.
func (s *session) chassisID(ctx context.Context) (string, error) {
	results, err := s.client.Transact(ctx, chassisByName(s.r.opts.Chassis))
	if err != nil {
		return "", err
	}
	if len(results) != 1 || results[0].Error != "" {
		return "", fmt.Errorf("looking for chassis %q: %+v", s.r.opts.Chassis, results)
	}
	for _, w := range results[0].Rows {
		if id, ok := w["_uuid"].(ovsdb.UUID); ok {
			return id.GoUUID, nil
		}
	}
	return "", nil
}

// ofInstance asks for an instance's ports.
func (s *session) ofInstance(ctx context.Context, id uuid.UUID) ([]row, error) {
	ctx, cancel := context.WithTimeout(ctx, s.r.opts.Timeout)
	defer cancel()
	op, err := s.r.source.ofInstance(id)
	if err != nil {
		return nil, err
	}
	results, err := s.client.Transact(ctx, op)
	if err != nil {
		return nil, fmt.Errorf("ovn: looking for the ports of %s: %w", id, err)
	}
	if len(results) != 1 || results[0].Error != "" {
		return nil, fmt.Errorf("ovn: looking for the ports of %s: %+v", id, results)
	}
	var out []row
	for _, w := range results[0].Rows {
		if x, ok := s.r.source.selected(w); ok {
			out = append(out, x)
		}
	}
	return out, nil
}

// ping finds a server that hangs or a connection that died silently.
func (s *session) ping(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.r.opts.Timeout)
	defer cancel()
	if err := s.client.Echo(ctx); err != nil && s.alive() {
		s.r.log.Warn("ovsdb-server does not answer", "endpoint", s.client.CurrentEndpoint(), "error", err)
		s.client.Close()
	}
}

func (s *session) has(name string) bool {
	if s.r.opts.Chassis != "" {
		return true
	}
	_, ok := s.names[name]
	return ok
}

func (s *session) alive() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// close ends the session; it may be called again.
func (s *session) close() {
	s.once.Do(func() { close(s.closing) })
	s.client.Close()
}
