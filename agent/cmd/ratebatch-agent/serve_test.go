package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/agent"
	"github.com/ratebatch/ratebatch/agent/clock"
)

// Polls that are an hour apart are no trouble until one is missing.
func TestHealthGoesByTheInterval(t *testing.T) {
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		interval, silent time.Duration
		ok               bool
	}{{time.Minute, 14 * time.Minute, true}, {time.Minute, 16 * time.Minute, false}, {time.Hour, 59 * time.Minute, true}, {time.Hour, 122 * time.Minute, false}} {
		now := clock.Moment{Wall: begin, Since: time.Hour}
		host, err := agent.NewHost(agent.HostOptions{Name: "compute-1", Region: "RegionOne", Interval: tt.interval, Clock: func() clock.Moment { return now }, Ports: agent.InterfaceIDs{}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		now.Wall, now.Since = now.Wall.Add(tt.silent), now.Since+tt.silent
		a := &assembly{hosts: []*agent.Host{host}}
		if h := a.health(); (h.Status == "ok") != tt.ok || !tt.ok && !strings.Contains(h.Problems[0], "no poll has worked for "+tt.silent.String()) {
			t.Errorf("every %s, silent for %s: %+v", tt.interval, tt.silent, h)
		}
	}
}
