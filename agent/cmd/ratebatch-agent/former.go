package main

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/agent"
	"github.com/ratebatch/ratebatch/agent/clock"
	"github.com/ratebatch/ratebatch/agent/libvirt"
	"github.com/ratebatch/ratebatch/agent/spool"
)

// former opens the folders of hosts that the configuration names no longer:
// the host or its region was renamed, or the node was taken out. Their unsent
// records were used all the same and are sent. What cannot be sent is said.
func (p *program) former(ctx context.Context, a *assembly, now func() clock.Moment) ([]*spool.Spool, error) {
	entries, err := os.ReadDir(p.config.StateDir)
	if err != nil {
		return nil, err
	}
	ours, metered := map[string]bool{}, map[string]string{}
	for _, n := range p.config.nodes() {
		ours[folderOf(p.config.StateDir, n)] = true
		if target, err := libvirt.Target(n.LibvirtURI); err == nil {
			metered[target] = n.RegionName + "/" + n.Host
		}
	}
	var out []*spool.Spool
	for _, e := range entries {
		dir := filepath.Join(p.config.StateDir, e.Name())
		name, ok := hostOf(e.Name())
		if !ok || !e.IsDir() || ours[dir] || !used(dir) {
			continue
		}
		// The folder only gets smaller: the bound on bytes is for the others.
		s, saved, err := spool.Open(ctx, spool.Options{Dir: dir, MaxAge: time.Duration(p.config.Spool.MaxAge), Clock: now, Log: p.log})
		if errors.Is(err, spool.ErrInUse) {
			p.log.WarnContext(ctx, "the folder of a host that is not configured here is in use; whoever uses it sends its records", "host", name, "folder", dir)
			continue
		}
		if err != nil {
			p.log.ErrorContext(ctx, "the unsent records of a former host cannot be read; they will not be billed before that is mended", "host", name, "error", err)
			continue
		}
		a.closers = append(a.closers, func() { s.Close() })
		if saved != nil {
			p.retire(ctx, s, saved, name, metered)
		}
		stats := s.Stats()
		if stats.Batches == 0 {
			s.Close()
			continue
		}
		p.log.WarnContext(ctx, "a former host has unsent records; they are sent", "host", name, "records", stats.Records, "oldest", stats.Oldest.Round(time.Second))
		a.spools[name] = s
		out = append(out, s)
	}
	return out, nil
}

// retire says what a former host's readings hold. Where the hypervisor is
// metered under another name now they are set aside: should the old name come
// back, what was counted in between would be counted once more.
func (p *program) retire(ctx context.Context, s *spool.Spool, saved []byte, name string, metered map[string]string) {
	last, err := agent.ReadFormer(saved)
	if err != nil {
		p.log.ErrorContext(ctx, "a former host", "host", name, "error", err)
		return
	}
	heir := metered[last.Hypervisor]
	if last.VNICs > 0 {
		hint := "name the host again to have it sent"
		if heir != "" {
			hint = "its hypervisor is metered as " + heir + " now"
		}
		p.log.ErrorContext(ctx, "traffic of a former host was held, because OVN did not know its ports; it will not be billed", "host", name, "vnics", last.VNICs, "bytes", last.Bytes, "last_poll", last.Polled, "hint", hint)
	}
	if heir == "" {
		return
	}
	p.log.InfoContext(ctx, "a hypervisor has another name now; the readings under its old one are set aside", "former", name, "now", heir)
	if err := s.Retire(); err != nil {
		p.log.ErrorContext(ctx, "should the old name come back, what is counted until then will be counted twice", "host", name, "error", err)
	}
}

// hostOf turns a folder's name back into region and host.
func hostOf(folder string) (string, bool) {
	region, host, ok := strings.Cut(folder, "_")
	region, err := url.PathUnescape(region)
	host, err2 := url.PathUnescape(host)
	return region + "/" + host, ok && err == nil && err2 == nil
}

// used says whether a folder is a spool's.
func used(dir string) bool {
	for _, pattern := range []string{"state", "*.records"} {
		if found, err := fs.Glob(os.DirFS(dir), pattern); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}
