package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/agent"
	"github.com/ratebatch/ratebatch/agent/clock"
	"github.com/ratebatch/ratebatch/agent/kafka"
	"github.com/ratebatch/ratebatch/agent/libvirt"
	"github.com/ratebatch/ratebatch/agent/ovn"
	"github.com/ratebatch/ratebatch/agent/spool"
	"github.com/ratebatch/ratebatch/agent/wire/broker"
)

// libvirtOptions are those of a node; reading a password file may fail.
func (p *program) libvirtOptions(n nodeConfig) (libvirt.Options, error) {
	c := &p.config
	o := libvirt.Options{
		URI: n.LibvirtURI, Username: n.Username, Password: n.Password,
		TLS:      libvirt.TLSFiles{CA: c.Libvirt.CACert, Cert: c.Libvirt.Certificate, Key: c.Libvirt.PrivateKey},
		Deadline: time.Duration(c.CommandTimeout), Log: p.log.With("host", n.Host),
	}
	if n.AuthFile != "" && n.Username == "" {
		o.AuthFile, o.AuthSection = n.AuthFile, n.AuthSection
	}
	if n.PasswordFile != "" {
		password, err := broker.ReadPassword(n.PasswordFile)
		if err != nil {
			return o, fmt.Errorf("libvirt of %s: %w", n.Host, err)
		}
		o.Password = password
	}
	return o, nil
}

// local says that a URI means libvirtd of this machine.
func local(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && u.Host == "" && (u.Scheme == "qemu" || u.Scheme == "qemu+unix")
}

func (p *program) ovnOptions(chassis string) ovn.Options {
	c := &p.config.OVN
	o := ovn.Options{
		Endpoints: list(c.NBDB), TLS: ovn.TLSFiles{CA: c.CACert, Cert: c.Certificate, Key: c.PrivateKey},
		DeviceOwner: c.DeviceOwner, Timeout: time.Duration(p.config.CommandTimeout), Log: p.log,
	}
	if c.SBDB != "" {
		o.Endpoints, o.Southbound, o.Chassis = list(c.SBDB), true, chassis
	}
	return o
}

// resolvers gives each node its way to OVN. They share one, unless each has a
// chassis of its own to ask for.
func (p *program) resolvers() (of func(nodeConfig) agent.Ports, closeAll func(), err error) {
	if p.config.OVN.Disabled {
		return func(nodeConfig) agent.Ports { return agent.InterfaceIDs{} }, func() {}, nil
	}
	byChassis := map[string]*ports{}
	closeAll = func() {
		for _, r := range byChassis {
			r.ovn.Close()
		}
	}
	for _, n := range p.config.nodes() {
		if byChassis[n.OVNChassis] != nil {
			continue
		}
		r, err := ovn.New(p.ovnOptions(n.OVNChassis))
		if err != nil {
			closeAll()
			return nil, nil, configError{err}
		}
		byChassis[n.OVNChassis] = &ports{ovn: r, hosts: map[string][]agent.VNIC{}}
	}
	return func(n nodeConfig) agent.Ports { return byChassis[n.OVNChassis] }, closeAll, nil
}

// resolvedBy is what answers about ports follow from, but for the databases'
// contents.
func (c *ovnConfig) resolvedBy() string {
	if c.Disabled {
		return "interface ids"
	}
	return "ovn " + c.DeviceOwner
}

// ports asks one resolver for the vNICs of several hosts.
type ports struct {
	ovn *ovn.Resolver

	mu    sync.Mutex
	hosts map[string][]agent.VNIC
}

// Watch passes on what all hosts have now.
func (p *ports) Watch(host string, vnics []agent.VNIC) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hosts[host] = vnics
	var ids []string
	var taps []ovn.Tap
	for _, of := range p.hosts {
		for _, v := range of {
			if v.InterfaceID != "" {
				ids = append(ids, v.InterfaceID)
			} else {
				taps = append(taps, ovn.Tap{Name: v.Tap, Instance: v.Instance})
			}
		}
	}
	p.ovn.SetPorts(ids, taps)
}

// Resolve asks by the interface's id, else by the tap's name.
func (p *ports) Resolve(interfaceID, tap string, instance uuid.UUID) (agent.Port, bool) {
	var answer ovn.Port
	var ok, ignored bool
	if interfaceID != "" {
		answer, ok = p.ovn.Resolve(interfaceID)
		_, ignored = p.ovn.Ignored(interfaceID)
	} else {
		answer, ok = p.ovn.ResolveTap(tap, instance)
		_, ignored = p.ovn.IgnoredTap(tap, instance)
	}
	switch {
	case ok:
		return agent.Port{UUID: answer.PortUUID, Network: answer.NetworkUUID, ProjectID: answer.ProjectID}, true
	case ignored:
		return agent.Port{Ignored: true}, true
	}
	return agent.Port{}, p.ovn.Unreadable(interfaceID)
}

// folderOf is a host's part of the state directory. Names may hold anything.
func folderOf(dir string, n nodeConfig) string {
	return filepath.Join(dir, url.PathEscape(n.RegionName)+"_"+url.PathEscape(n.Host))
}

// assembly is everything that runs.
type assembly struct {
	hosts     []*agent.Host
	sources   []*libvirt.Host
	spools    map[string]*spool.Spool // by host; those of former hosts by region and host
	publisher *agent.Publisher
	producer  *kafka.Producer
	closers   []func()
}

func (a *assembly) close() {
	for i := len(a.closers) - 1; i >= 0; i-- {
		a.closers[i]()
	}
}

// build opens the spools and makes the clients; nothing is connected yet.
func (p *program) build(ctx context.Context, newMetrics func(map[string]*spool.Spool) *agent.Metrics) (a *assembly, err error) {
	a = &assembly{spools: map[string]*spool.Spool{}}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	now, err := clock.System(p.now)
	if err != nil {
		return a, err
	}
	nodes := p.config.nodes()
	if a.producer, err = kafka.New(kafka.Options{Broker: p.config.broker(), Topics: p.config.topics()}); err != nil {
		return a, configError{err}
	}
	a.closers = append(a.closers, a.producer.Close)
	portsOf, closePorts, err := p.resolvers()
	if err != nil {
		return a, err
	}
	a.closers = append(a.closers, closePorts)
	states := make([][]byte, len(nodes))
	var queue []*spool.Spool
	for i, n := range nodes {
		s, state, err := spool.Open(ctx, spool.Options{
			Dir: folderOf(p.config.StateDir, n), MaxAge: time.Duration(p.config.Spool.MaxAge), MaxBytes: p.config.Spool.MaxBytes / int64(len(nodes)), Clock: now, Log: p.log,
		})
		if err != nil {
			return a, err
		}
		a.closers = append(a.closers, func() { s.Close() })
		a.spools[n.Host], states[i] = s, state
		queue = append(queue, s)
	}
	former, err := p.former(ctx, a, now)
	if err != nil {
		return a, err
	}
	metrics := newMetrics(a.spools)
	a.publisher = agent.NewPublisher(agent.PublisherOptions{Spools: queue, Former: former, Producer: a.producer, Clock: now, Metrics: metrics, Log: p.log})
	var problems []error
	for i, n := range nodes {
		options, err := p.libvirtOptions(n)
		if err != nil {
			problems = append(problems, configError{err})
			continue
		}
		hypervisor, err := libvirt.Target(n.LibvirtURI)
		if err != nil {
			hypervisor = "" // the polls will say it
		}
		source := libvirt.New(options)
		a.closers = append(a.closers, func() { source.Close() })
		h, err := agent.NewHost(agent.HostOptions{
			Name: n.Host, Region: n.RegionName, Local: local(n.LibvirtURI), Hypervisor: hypervisor, Source: source, Ports: portsOf(n), Spool: queue[i], State: states[i], ResolvedBy: p.config.OVN.resolvedBy(),
			Interval: time.Duration(p.config.Interval), Hold: time.Duration(p.config.OVN.Hold), Version: version, Clock: now, Metrics: metrics,
			Stored: a.publisher.Wake, Log: p.log,
		})
		problems = append(problems, err)
		a.hosts, a.sources = append(a.hosts, h), append(a.sources, source)
	}
	return a, errors.Join(problems...)
}
