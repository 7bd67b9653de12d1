package schedules

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Health is what the daemon says of itself.
type Health struct {
	Alive  bool        `json:"alive"` // the loop has looked at the clock lately
	Turn   bool        `json:"turn"`  // this daemon runs the schedule; else it stands by
	Errors uint64      `json:"state_errors"`
	Jobs   []JobHealth `json:"jobs"`
}

// JobHealth is how a job goes.
type JobHealth struct {
	Job         string    `json:"job"`
	Running     bool      `json:"running"`
	Next        time.Time `json:"next"`
	LastStart   time.Time `json:"last_start,omitzero"`
	LastEnd     time.Time `json:"last_end,omitzero"`
	LastSuccess time.Time `json:"last_success,omitzero"`
	LastExit    int       `json:"last_exit"`
	Error       string    `json:"error,omitempty"`
	Done        uint64    `json:"done"`
	Failed      uint64    `json:"failed"`
	Skipped     uint64    `json:"skipped"`
	Missed      uint64    `json:"missed"`
}

// Health reads the daemon's state.
func (d *Daemon) Health() Health {
	now := d.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	// A look at State may take its whole timeout, twice.
	h := Health{Alive: !d.beat.IsZero() && now.Sub(d.beat) < 3*d.Tick+2*stateTimeout, Turn: d.turn, Errors: d.errs}
	for i := range d.File.Jobs {
		j := &d.File.Jobs[i]
		s := d.jobs[j.Name]
		if s == nil {
			continue
		}
		x := JobHealth{Job: j.Name, Running: s.running, Next: j.Next(now), LastSuccess: s.success, Done: s.done, Failed: s.failed, Skipped: s.skipped, Missed: s.missed}
		if r := s.record; r != nil {
			x.LastStart, x.LastEnd, x.LastExit = r.Start, r.End, r.Exit
			if r.Err != nil {
				x.Error = r.Err.Error()
			}
		}
		h.Jobs = append(h.Jobs, x)
	}
	return h
}

// Handler serves /healthz (200 while the daemon is alive, standing by included)
// and /metrics. It says nothing of arguments, so it holds no secret.
func (d *Daemon) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(d)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		h := d.Health()
		w.Header().Set("Content-Type", "application/json")
		if !h.Alive {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(h) // the client went away
	})
	return mux
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("ratebatch_schedule_"+name, help, labels, nil)
}

var (
	descTurn    = desc("turn", "1 if this daemon runs the schedule, 0 if it stands by.")
	descErrors  = desc("state_errors_total", "Looks at the run log or the lease that failed.")
	descRunning = desc("running", "1 while a run of the job goes on.", "name")
	descNext    = desc("next_timestamp_seconds", "The job's next slot.", "name")
	descStart   = desc("last_start_timestamp_seconds", "When the job's last run began.", "name")
	descSuccess = desc("last_success_timestamp_seconds", "When the job last ended well, since this daemon began.", "name")
	descSeconds = desc("last_duration_seconds", "How long the job's last ended run took.", "name")
	descExit    = desc("last_exit_code", "Exit code of the job's last ended run; -1 if it was killed.", "name")
	descRuns    = desc("runs_total", "Slots of the job by what became of them.", "name", "outcome")
)

// Describe implements prometheus.Collector.
func (d *Daemon) Describe(out chan<- *prometheus.Desc) {
	for _, x := range []*prometheus.Desc{descTurn, descErrors, descRunning, descNext, descStart, descSuccess, descSeconds, descExit, descRuns} {
		out <- x
	}
}

// Collect implements prometheus.Collector.
func (d *Daemon) Collect(out chan<- prometheus.Metric) {
	gauge := func(x *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(x, prometheus.GaugeValue, value, labels...)
	}
	counter := func(x *prometheus.Desc, value uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(x, prometheus.CounterValue, float64(value), labels...)
	}
	h := d.Health()
	gauge(descTurn, number(h.Turn))
	counter(descErrors, h.Errors)
	for _, j := range h.Jobs {
		gauge(descRunning, number(j.Running), j.Job)
		gauge(descNext, seconds(j.Next), j.Job)
		if !j.LastStart.IsZero() {
			gauge(descStart, seconds(j.LastStart), j.Job)
		}
		if !j.LastSuccess.IsZero() {
			gauge(descSuccess, seconds(j.LastSuccess), j.Job)
		}
		if !j.LastEnd.IsZero() {
			gauge(descSeconds, j.LastEnd.Sub(j.LastStart).Seconds(), j.Job)
			gauge(descExit, float64(j.LastExit), j.Job)
		}
		counter(descRuns, j.Done, j.Job, "done")
		counter(descRuns, j.Failed, j.Job, "failed")
		counter(descRuns, j.Skipped, j.Job, "skipped")
		counter(descRuns, j.Missed, j.Job, "missed")
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
