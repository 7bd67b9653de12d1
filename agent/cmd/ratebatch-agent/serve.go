package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// unwell is from when on silence is worth a red light: readings keep, but a
// rating job waits two hours only. Polls that are further apart have the time of
// two.
const unwell = 15 * time.Minute

// health is what /healthz says: 200 and "ok", or 503 and what is wrong.
type health struct {
	Status   string   `json:"status"`
	Problems []string `json:"problems,omitempty"`
}

func (a *assembly) health() health {
	h := health{Status: "ok"}
	for _, host := range a.hosts {
		if _, polls := host.Health(); polls > unwell && polls > 2*host.Interval()+time.Minute {
			h.Problems = append(h.Problems, fmt.Sprintf("host %s: no poll has worked for %s", host.Name(), polls.Round(time.Second)))
		}
	}
	for name, s := range a.spools {
		stats := s.Stats()
		if stats.Oldest > unwell {
			h.Problems = append(h.Problems, fmt.Sprintf("host %s: %d records wait for Kafka, the oldest for %s", name, stats.Records, stats.Oldest.Round(time.Second)))
		}
	}
	if len(h.Problems) > 0 {
		h.Status = "unwell"
	}
	return h
}

// serve answers on loopback until ctx is done.
func serve(ctx context.Context, listener net.Listener, registry *prometheus.Registry, of func() health, log *slog.Logger) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		h := of()
		w.Header().Set("Content-Type", "application/json")
		if h.Status != "ok" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if err := json.NewEncoder(w).Encode(h); err != nil {
			log.DebugContext(r.Context(), "an answer was not taken", "error", err)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, WriteTimeout: 30 * time.Second}
	done := context.AfterFunc(ctx, func() { server.Close() })
	defer done()
	if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		log.ErrorContext(ctx, "metrics and health are not served any more", "error", err)
	}
}
