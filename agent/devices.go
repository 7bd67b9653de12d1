package agent

import (
	"slices"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/agent/libvirt"
	"github.com/ratebatch/ratebatch/agent/wire"
)

// ports takes the readings of a domain's vNICs: what each received and sent
// since the last one is held until sendPorts can say which port that is.
func (w *work) ports(cur *domain, d *libvirt.Domain, fresh bool) {
	var seen []string
	for i := range d.Interfaces {
		n := &d.Interfaces[i]
		if n.Name == "" {
			continue // libvirt names each; without a name nothing ties two readings together
		}
		seen = append(seen, n.Name)
		p := w.port(cur, n, fresh)
		if n.RxBytes == nil || n.TxBytes == nil {
			continue
		}
		rx, nextRx, rxReset := p.Rx.advance(*n.RxBytes)
		tx, nextTx, txReset := p.Tx.advance(*n.TxBytes)
		for _, reset := range [...]bool{rxReset, txReset} {
			if reset {
				w.counts.Resets++
			}
		}
		if !p.Rx.OK {
			p.Since = w.now
		} else {
			p.HeldRx, p.HeldTx, p.Until = p.HeldRx+rx, p.HeldTx+tx, w.now
		}
		p.Rx, p.Tx = nextRx, nextTx
	}
	for i := range cur.Ports {
		if !slices.Contains(seen, cur.Ports[i].Name) {
			cur.Ports[i].Gone = true
		}
	}
}

// port finds a vNIC's readings or begins new ones. Another port on a tap of the
// same name is another vNIC; an id that the XML did not tell yet is not.
func (w *work) port(cur *domain, n *libvirt.Interface, fresh bool) *port {
	for i := range cur.Ports {
		p := &cur.Ports[i]
		if p.Gone || p.Name != n.Name {
			continue
		}
		if p.InterfaceID != "" && n.InterfaceID != "" && p.InterfaceID != n.InterfaceID {
			p.Gone = true
			continue
		}
		if n.InterfaceID != "" {
			p.InterfaceID = n.InterfaceID
		}
		return p
	}
	p := port{Name: n.Name, InterfaceID: n.InterfaceID}
	switch {
	case w.first:
		p.Since = w.now
	case fresh:
		p.Rx.OK, p.Tx.OK, p.Since = true, true, cur.Since
	default:
		p.Rx.OK, p.Tx.OK, p.Since = true, true, w.appeared(w.looked, 0)
	}
	cur.Ports = append(cur.Ports, p)
	return &cur.Ports[len(cur.Ports)-1]
}

// sendPorts writes the records of the vNICs whose port is known, and forgets
// those that are gone and hold nothing any more.
func (w *work) sendPorts(instance uuid.UUID, cur *domain) {
	kept := cur.Ports[:0]
	for _, p := range cur.Ports {
		if p.Until != (stamp{}) {
			w.sendPort(instance, cur, &p)
		}
		if !p.Gone || p.Until != (stamp{}) {
			kept = append(kept, p)
		}
	}
	cur.Ports = kept
}

func (w *work) sendPort(instance uuid.UUID, cur *domain, p *port) {
	if answer, ok := w.resolver.Resolve(p.InterfaceID, p.Name, instance); ok && (answer != Port{} || p.Answer.Ignored) {
		p.Answer = answer
	}
	answer := p.Answer
	if answer.Ignored {
		w.counts.Ignored++
		p.HeldRx, p.HeldTx, p.Since, p.Until = 0, 0, p.Until, stamp{}
		return
	}
	if answer.UUID == uuid.Nil {
		w.counts.Unresolved++
		if w.now.since(p.Since) < w.hold {
			return
		}
		// Nobody will tell any more. The interface's id is the port's; only its
		// network stays unknown.
		id, err := uuid.Parse(p.InterfaceID)
		switch {
		case err == nil:
			answer.UUID = id
			w.counts.Networkless++
		case p.Gone:
			w.counts.LostPorts++
			w.counts.LostBytes += p.HeldRx + p.HeldTx
			p.Until = stamp{}
			return
		default:
			return // as long as it is there, its sums take no more room
		}
	}
	begin, end := interval(p.Since, p.Until, wire.MaxInterval)
	if begin >= end {
		if !p.Gone {
			return // the next reading makes it longer
		}
		begin = end - 1 // there is none: the bytes count, in as short a time as can be
	}
	r := wire.Port{Common: w.common(instance, cur, begin, end), PortUUID: answer.UUID, NetworkUUID: answer.Network, RxBytes: p.HeldRx, TxBytes: p.HeldTx}
	w.add(TopicPort, r.AppendKey, r.Append)
	p.HeldRx, p.HeldTx, p.Since, p.Until = 0, 0, p.Until, stamp{}
}

// disks begins the readings of devices that are new and forgets those that are
// gone: libvirt lists a stalled disk without counters, but it lists it.
func (w *work) disks(cur *domain, d *libvirt.Domain, fresh bool) {
	kept := make([]disk, 0, len(d.Disks))
	for i := range d.Disks {
		name := d.Disks[i].Device
		if name == "" || slices.ContainsFunc(kept, func(k disk) bool { return k.Device == name }) {
			continue
		}
		if at := slices.IndexFunc(cur.Disks, func(k disk) bool { return k.Device == name }); at >= 0 {
			kept = append(kept, cur.Disks[at])
			continue
		}
		k := disk{Device: name, Since: w.now}
		if !w.first {
			for c := range k.Counters {
				k.Counters[c].OK = true
			}
			if k.Since = cur.Since; !fresh {
				k.Since = w.appeared(w.looked, 0)
			}
		}
		kept = append(kept, k)
	}
	cur.Disks = kept
}

func (w *work) sendDisks(cur *domain, d *libvirt.Domain) {
	for i := range d.Disks {
		at := slices.IndexFunc(cur.Disks, func(k disk) bool { return k.Device == d.Disks[i].Device })
		if at >= 0 {
			w.sendDisk(cur, d.UUID, &cur.Disks[at], &d.Disks[i])
		}
	}
}

func (w *work) sendDisk(cur *domain, instance uuid.UUID, k *disk, d *libvirt.Disk) {
	readings := countersOf(d)
	var told uint8
	for c, reading := range readings {
		if reading != nil {
			told |= 1 << c
		}
	}
	sizes := d.CapacityBytes != nil || d.AllocationBytes != nil || d.PhysicalBytes != nil
	if told == 0 && !sizes {
		return // nothing was observed: the next reading covers this interval too
	}
	if k.Told&^told != 0 && w.now.since(k.Since) < patience {
		return
	}
	begin, end := interval(k.Since, w.now, wire.MaxInterval)
	var deltas [4]*uint64
	next := *k
	next.Told, next.Since = told, w.now
	resets := 0
	for c, reading := range readings {
		if reading == nil {
			continue
		}
		delta, counter, reset := k.Counters[c].advance(*reading)
		if reset {
			resets++
		}
		if k.Counters[c].OK {
			deltas[c] = &delta
		}
		next.Counters[c] = counter
	}
	if w.first {
		*k = next
		return
	}
	if begin >= end {
		return
	}
	r := wire.Disk{Common: w.common(instance, cur, begin, end), Device: text(k.Device),
		ReadBytes: deltas[0], WriteBytes: deltas[1], ReadRequests: deltas[2], WriteRequests: deltas[3],
		CapacityBytes: d.CapacityBytes, AllocationBytes: d.AllocationBytes, PhysicalBytes: d.PhysicalBytes}
	w.add(TopicDisk, r.AppendKey, r.Append)
	w.counts.Resets += resets
	*k = next
}

// countersOf gives a device's counters in the order in which disk keeps them.
func countersOf(d *libvirt.Disk) [4]*uint64 {
	return [4]*uint64{d.ReadBytes, d.WriteBytes, d.ReadRequests, d.WriteRequests}
}
