package agent

import (
	"testing"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/agent/libvirt"
)

func TestTrafficOfAnUnknownPortIsHeldAndSentOnceItIsKnown(t *testing.T) {
	b := newBench(t)
	known := b.ports
	b.ports = nil
	b.poll(at(0), vm(1, 0, 1000, 500, 0))
	g := b.poll(at(60), vm(1, 0, 1100, 510, 0))
	b.want(g, "cpu 0-60 0.00, disk 0-60 0/0")
	if g.Unresolved != 1 {
		t.Errorf("%d unresolved", g.Unresolved)
	}
	b.poll(at(120), vm(1, 0, 50, 520, 0)) // a reset meanwhile is part of it
	b.ports = known
	b.want(b.poll(at(180), vm(1, 0, 60, 530, 0)), "cpu 120-180 0.00, port 0-180 160/30, disk 120-180 0/0")
	b.want(b.poll(at(240), vm(1, 0, 61, 530, 0)), "cpu 180-240 0.00, port 180-240 1/0, disk 180-240 0/0")

	t.Run("also when the instance is gone by then", func(t *testing.T) {
		b := newBench(t)
		b.ports = nil
		b.poll(at(0))
		b.poll(at(60), vm(1, 0, 1000, 500, 0))
		b.want(b.poll(at(120)), "")
		b.want(b.poll(at(7000)), "")
		b.ports = known
		g := b.poll(at(7200))
		b.want(g, "port 0-60 1000/500")
		if g.Ports[0].ProjectID != "project-a" || g.Ports[0].NetworkUUID != network {
			t.Errorf("%+v", g.Ports[0])
		}
		if b.want(b.poll(at(7260)), ""); len(b.state.Domains) != 0 {
			t.Error("it is kept though nothing is held any more")
		}
	})
	t.Run("also when another incarnation runs by then", func(t *testing.T) {
		b := newBench(t)
		b.ports = nil
		b.poll(at(0), vm(1, 0, 0, 0, 0))
		b.poll(at(60), vm(1, 0, 1000, 500, 0))
		b.poll(at(120), vm(2, 0, 7, 7, 0))
		b.ports = known
		b.want(b.poll(at(180), vm(2, 0, 8, 8, 0)), "cpu 120-180 0.00, port 0-60 1000/500, port 60-180 8/8, disk 120-180 0/0")
	})
	t.Run("OVN's last answer holds when it has none any more", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0), vm(1, 0, 0, 0, 0))
		b.poll(at(60), vm(1, 0, 10, 10, 0))
		b.ports = nil
		g := b.poll(at(120), vm(1, 0, 20, 20, 0))
		if len(g.Ports) != 1 || g.Ports[0].NetworkUUID != network {
			t.Errorf("got %s", g.say())
		}
	})
	t.Run("after a day it goes without a network, because the interface's id is the port's", func(t *testing.T) {
		b := newBench(t)
		b.ports = nil
		b.poll(at(0), vm(1, 0, 0, 0, 0))
		b.poll(at(86399), vm(1, 0, 10, 10, 0))
		g := b.poll(at(86400), vm(1, 0, 20, 20, 0))
		if len(g.Ports) != 1 || g.Ports[0].RxBytes != 20 || g.Ports[0].PortUUID.String() != portID || g.Ports[0].NetworkUUID != uuid.Nil || g.Networkless != 1 {
			t.Errorf("got %s", g.say())
		}
	})
	t.Run("a tap that nothing identifies is kept while it lives, and its loss is counted", func(t *testing.T) {
		b := newBench(t)
		b.ports = nil
		tapOnly := func(rx uint64) libvirt.Domain {
			d := vm(1, 0, rx, 0, 0)
			d.Interfaces[0].InterfaceID = ""
			return d
		}
		b.poll(at(0), tapOnly(0))
		b.poll(at(100_000), tapOnly(70))
		b.poll(at(100_060))
		if g := b.poll(at(103_700)); g.LostPorts != 1 || g.LostBytes != 70 {
			t.Errorf("lost %d ports with %d bytes, want 1 with 70", g.LostPorts, g.LostBytes)
		}
	})
	t.Run("a port that is not metered is not held either", func(t *testing.T) {
		b := newBench(t)
		b.ports = map[string]Port{portID: {Ignored: true}}
		b.poll(at(0), vm(1, 0, 0, 0, 0))
		if g := b.poll(at(60), vm(1, 0, 9, 9, 0)); len(g.Ports) != 0 || g.Ignored != 1 || g.Unresolved != 0 {
			t.Errorf("got %s", g.say())
		}
		b.ports = known
		b.want(b.poll(at(120), vm(1, 0, 10, 10, 0)), "cpu 60-120 0.00, port 60-120 1/1, disk 60-120 0/0")
	})
	t.Run("once it is to be metered and its row cannot be read, it is held", func(t *testing.T) {
		b := newBench(t)
		b.ports = map[string]Port{portID: {Ignored: true}}
		b.poll(at(0), vm(1, 0, 0, 0, 0))
		b.poll(at(60), vm(1, 0, 9, 9, 0))
		b.ports = map[string]Port{portID: {}}
		if g := b.poll(at(120), vm(1, 0, 10, 10, 0)); len(g.Ports) != 0 || g.Ignored != 0 || g.Unresolved != 1 {
			t.Errorf("got %s", g.say())
		}
		b.ports = known
		b.want(b.poll(at(180), vm(1, 0, 12, 12, 0)), "cpu 120-180 0.00, port 60-180 3/3, disk 120-180 0/0")
		b.ports = map[string]Port{portID: {}}
		b.want(b.poll(at(240), vm(1, 0, 13, 13, 0)), "cpu 180-240 0.00, port 180-240 1/1, disk 180-240 0/0")
	})
	t.Run("other settings void answers that they may have changed", func(t *testing.T) {
		for name, old := range map[string]Port{"ignored": {Ignored: true}, "without a network": {UUID: uuid.MustParse(portID)}} {
			b := newBench(t)
			b.state.resolvedBy("ovn compute:nova")
			b.ports = map[string]Port{portID: old}
			b.poll(at(0), vm(1, 0, 0, 0, 0))
			b.poll(at(60), vm(1, 0, 9, 9, 0))
			b.ports = nil // OVN is away
			b.state.resolvedBy("ovn compute:nova")
			if g := b.poll(at(120), vm(1, 0, 10, 10, 0)); g.Unresolved != 0 {
				t.Errorf("%s, the same settings: got %s", name, g.say())
			}
			b.state.resolvedBy("ovn compute:*")
			if g := b.poll(at(180), vm(1, 0, 11, 11, 0)); len(g.Ports) != 0 || g.Unresolved != 1 || g.Ignored != 0 {
				t.Errorf("%s, other settings: got %s", name, g.say())
			}
			b.ports = known
			b.want(b.poll(at(240), vm(1, 0, 12, 12, 0)), "cpu 180-240 0.00, port 120-240 2/2, disk 180-240 0/0")
		}
		b := newBench(t)
		b.poll(at(0), vm(1, 0, 0, 0, 0))
		b.poll(at(60), vm(1, 0, 9, 9, 0))
		b.ports = nil
		b.state.resolvedBy("ovn compute:*")
		b.want(b.poll(at(120), vm(1, 0, 10, 10, 0)), "cpu 60-120 0.00, port 60-120 1/1, disk 60-120 0/0") // whose it is stays true
	})
	t.Run("a tap resolves without an interface id", func(t *testing.T) {
		b := newBench(t)
		b.ports["tapc0ffee01-00"] = known[portID]
		d := vm(1, 0, 0, 0, 0)
		d.Interfaces[0].InterfaceID = ""
		b.poll(at(0), d)
		d = vm(1, 0, 9, 9, 0)
		d.Interfaces[0].InterfaceID = ""
		b.want(b.poll(at(60), d), "cpu 0-60 0.00, port 0-60 9/9, disk 0-60 0/0")
	})
}

func TestWhoPays(t *testing.T) {
	pays := func(t *testing.T, b *bench, change func(*libvirt.Domain)) got {
		d := vm(1, 0, 0, 0, 0)
		change(&d)
		b.poll(at(0), d)
		b.poll(at(60), d)
		return b.poll(at(120), d)
	}
	t.Run("what Nova wrote", func(t *testing.T) {
		g := pays(t, newBench(t), func(*libvirt.Domain) {})
		if g.Instances[0].ProjectID != "project-a" || g.Ports[0].ProjectID != "project-a" || g.Disks[0].ProjectID != "project-a" || g.Unattributed != 0 {
			t.Errorf("%+v", g)
		}
	})
	t.Run("else the port's project", func(t *testing.T) {
		g := pays(t, newBench(t), func(d *libvirt.Domain) { d.Nova = libvirt.Nova{} })
		if g.Instances[0].ProjectID != "ovn-project" || g.Ports[0].ProjectID != "ovn-project" || g.Instances[0].InstanceName != "instance-00000001" {
			t.Errorf("%+v", g)
		}
	})
	t.Run("else nobody, and it is metered all the same", func(t *testing.T) {
		b := newBench(t)
		b.meter.resolver = InterfaceIDs{}
		g := pays(t, b, func(d *libvirt.Domain) { d.Nova = libvirt.Nova{} })
		if g.Instances[0].ProjectID != "" || g.Ports[0].PortUUID.String() != portID || g.Ports[0].NetworkUUID != uuid.Nil || g.Unattributed != 1 {
			t.Errorf("%+v", g)
		}
	})
	t.Run("as long as the XML cannot be read, the readings wait", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0))
		d := vm(1, 30, 100, 10, 40)
		d.Described, d.Nova, d.Interfaces[0].InterfaceID = false, libvirt.Nova{}, ""
		g := b.poll(at(60), d)
		b.want(g, "")
		if g.Undescribed != 1 {
			t.Errorf("%d undescribed", g.Undescribed)
		}
		b.want(b.poll(at(120), vm(1, 60, 200, 20, 80)), "cpu 0-120 25.00, port 0-120 200/20, disk 0-120 80/160")
		// Known once, it stays known.
		d = vm(1, 90, 300, 30, 80)
		d.Described, d.Nova, d.Interfaces[0].InterfaceID = false, libvirt.Nova{}, ""
		if g := b.poll(at(180), d); len(g.Instances) != 1 || g.Instances[0].ProjectID != "project-a" || len(g.Ports) != 1 {
			t.Errorf("got %s", g.say())
		}
	})
	t.Run("a baseline without XML is a baseline", func(t *testing.T) {
		b := newBench(t)
		d := vm(1, 30, 100, 10, 40)
		d.Described = false
		b.poll(at(0), d)
		b.want(b.poll(at(60), vm(1, 60, 200, 20, 80)), "cpu 0-60 25.00, port 0-60 100/10, disk 0-60 40/80")
	})
}
