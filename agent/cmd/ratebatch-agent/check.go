package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ratebatch/ratebatch/agent/kafka"
	"github.com/ratebatch/ratebatch/agent/libvirt"
	"github.com/ratebatch/ratebatch/agent/ovn"
)

// finding is one thing that check looked at.
type finding struct {
	What string `json:"what"`
	OK   bool   `json:"ok"`
	Says string `json:"says"`
	Hint string `json:"hint,omitempty"` // what the operator can do
}

// check looks at everything that run needs.
func (p *program) check(ctx context.Context) error {
	var found []finding
	for _, n := range p.config.nodes() {
		found = append(found, p.checkLibvirt(ctx, n))
	}
	found = append(found, p.checkOVN(ctx), p.checkKafka(ctx), p.checkState())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	wrong := false
	for _, f := range found {
		wrong = wrong || !f.OK
	}
	if p.output == "json" {
		encoder := json.NewEncoder(p.stdout)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(found); err != nil {
			return err
		}
	} else {
		for _, f := range found {
			mark := "ok   "
			if !f.OK {
				mark = "WRONG"
			}
			fmt.Fprintf(p.stdout, "%s  %s: %s\n", mark, f.What, f.Says)
			if f.Hint != "" {
				fmt.Fprintf(p.stdout, "       %s\n", f.Hint)
			}
		}
	}
	if wrong {
		return errFound
	}
	return nil
}

func bad(what string, err error, hint string) finding {
	return finding{What: what, Says: err.Error(), Hint: hint}
}

func (p *program) checkLibvirt(ctx context.Context, n nodeConfig) finding {
	what := "libvirt of " + n.Host + " at " + n.LibvirtURI
	options, err := p.libvirtOptions(n)
	if err != nil {
		return bad(what, err, "")
	}
	h := libvirt.New(options)
	defer h.Close()
	hint := "is libvirtd running there, and may this user read its socket (group libvirt)? For TCP and TLS: is it listening, do user and password fit?"
	if err := h.Check(ctx); err != nil {
		return bad(what, err, hint)
	}
	snapshot, err := h.Poll(ctx)
	if err != nil {
		return bad(what, err, hint)
	}
	f := finding{What: what, OK: true}
	payers, silent := 0, 0
	for _, d := range snapshot.Domains {
		if d.Nova.ProjectID != "" {
			payers++
		}
		if d.CPUTimeNS == nil || d.VCPUs == 0 {
			silent++
		}
	}
	f.Says = fmt.Sprintf("%d domains, %d of them with a project", len(snapshot.Domains), payers)
	if silent > 0 {
		f.Says += fmt.Sprintf(", %d without a CPU time", silent)
	}
	if len(snapshot.Domains) > 0 && payers == 0 {
		f.OK = false
		f.Hint = "no domain has Nova's metadata: their usage would be nobody's. Is this a host of Nova's?"
	}
	return f
}

func (p *program) checkOVN(ctx context.Context) finding {
	if p.config.OVN.Disabled {
		return finding{What: "OVN", OK: true, Says: "not used (--no-ovn): the interface ids in the domains' XML are the ports"}
	}
	o := p.ovnOptions(p.config.nodes()[0].OVNChassis)
	what := fmt.Sprintf("OVN at %v", o.Endpoints)
	r, err := ovn.New(o)
	if err != nil {
		return bad(what, err, "")
	}
	defer r.Close()
	if err := r.Check(ctx); err != nil {
		return bad(what, err, "is ovsdb-server listening there (ovn-nbctl get-connection), and do firewalls let this host through? For ssl: do key, certificate and CA fit?")
	}
	return finding{What: what, OK: true, Says: "answers"}
}

func (p *program) checkKafka(ctx context.Context) finding {
	what := "Kafka at " + p.config.Kafka.BootstrapServers
	producer, err := kafka.New(kafka.Options{Broker: p.config.broker(), Topics: p.config.topics()})
	if err != nil {
		return bad(what, err, "")
	}
	defer producer.Close()
	if err := producer.Check(ctx); err != nil {
		return bad(what, err, "is it listening there, does its certificate fit, and does 'advertised.listeners' name an address that this host can reach?")
	}
	return finding{What: what, OK: true, Says: "the login works and the three topics are there"}
}

// checkState looks whether the folder could be made and written, and leaves
// nothing behind. A running agent has its part of it open, which is fine.
func (p *program) checkState() finding {
	what := "state directory " + p.config.StateDir
	hint := "make it, and let the agent's user write it: install -d -m 0700 -o USER " + p.config.StateDir
	dir := p.config.StateDir
	if _, err := os.Stat(dir); os.IsNotExist(err) {
		dir = filepath.Dir(dir) // run makes it there
	}
	f, err := os.CreateTemp(dir, ".check-")
	if err != nil {
		return bad(what, err, hint)
	}
	f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return bad(what, err, hint)
	}
	return finding{What: what, OK: true, Says: fmt.Sprintf("can be written; unsent records stay up to %s", time.Duration(p.config.Spool.MaxAge))}
}
