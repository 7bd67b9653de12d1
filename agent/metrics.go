package agent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratebatch/ratebatch/agent/spool"
)

// Metrics are the agent's, for Prometheus. A nil *Metrics counts nothing.
type Metrics struct {
	polls       *prometheus.CounterVec // host, result
	seconds     *prometheus.GaugeVec   // host
	last        *prometheus.GaugeVec   // host
	found       *prometheus.GaugeVec   // host, kind
	records     *prometheus.CounterVec // host, topic
	resets      *prometheus.CounterVec // host
	lostBytes   *prometheus.CounterVec // host
	networkless *prometheus.CounterVec // host
	delivered   prometheus.Counter
	failures    prometheus.Counter
}

// NewMetrics registers them. spools are shown by their hosts' names.
func NewMetrics(registry prometheus.Registerer, spools map[string]*spool.Spool) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "ratebatch_agent", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "ratebatch_agent", Name: name, Help: help}, labels)
	}
	m := &Metrics{
		polls:       counter("polls_total", "Polls of a hypervisor, by result: ok or error.", "host", "result"),
		seconds:     gauge("poll_seconds", "How long the last poll took, libvirt's part included.", "host"),
		last:        gauge("last_poll_timestamp_seconds", "When the last good whole poll was, in Unix time.", "host"),
		found:       gauge("domains", "Domains of the last whole poll: all; unattributed (no project); undescribed (XML not read yet); silent (no CPU time). And unresolved_ports and ignored_ports: vNICs whose traffic is held, or not metered by configuration.", "host", "kind"),
		records:     counter("records_total", "Records put into the spool.", "host", "topic"),
		resets:      counter("counter_resets_total", "Counters that went backwards; their new values were counted.", "host"),
		lostBytes:   counter("lost_port_bytes_total", "Traffic of vNICs that vanished before anything could say which ports they were.", "host"),
		networkless: counter("networkless_records_total", "Port records sent without a network, because OVN did not know the port for too long.", "host"),
		delivered:   prometheus.NewCounter(prometheus.CounterOpts{Namespace: "ratebatch_agent", Name: "delivered_records_total", Help: "Records that the brokers acknowledged."}),
		failures:    prometheus.NewCounter(prometheus.CounterOpts{Namespace: "ratebatch_agent", Name: "delivery_failures_total", Help: "Attempts to deliver that failed; the records stay in the spool."}),
	}
	registry.MustRegister(m.polls, m.seconds, m.last, m.found, m.records, m.resets, m.lostBytes, m.networkless, m.delivered, m.failures, spoolCollector(spools))
	return m
}

func (m *Metrics) polled(host string, took time.Duration, err error) {
	if m == nil {
		return
	}
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.polls.WithLabelValues(host, result).Inc()
	m.seconds.WithLabelValues(host).Set(took.Seconds())
}

func (m *Metrics) counted(host string, whole bool, s step) {
	if m == nil {
		return
	}
	perTopic := map[byte]int{}
	for _, r := range s.Records {
		perTopic[r.Topic]++
	}
	for topic, name := range map[byte]string{TopicPort: "port", TopicInstance: "instance", TopicDisk: "disk"} {
		m.records.WithLabelValues(host, name).Add(float64(perTopic[topic]))
	}
	m.resets.WithLabelValues(host).Add(float64(s.Counts.Resets))
	m.lostBytes.WithLabelValues(host).Add(float64(s.Counts.LostBytes))
	m.networkless.WithLabelValues(host).Add(float64(s.Counts.Networkless))
	if !whole {
		return
	}
	m.last.WithLabelValues(host).Set(float64(s.State.Polled.Wall) / 1000)
	for kind, n := range map[string]int{"all": s.Counts.Domains, "unattributed": s.Counts.Unattributed, "undescribed": s.Counts.Undescribed,
		"silent": s.Counts.Silent, "unresolved_ports": s.Counts.Unresolved, "ignored_ports": s.Counts.Ignored} {
		m.found.WithLabelValues(host, kind).Set(float64(n))
	}
}

func (m *Metrics) delivery(records int, err error) {
	if m == nil {
		return
	}
	m.delivered.Add(float64(records))
	if err != nil {
		m.failures.Inc()
	}
}

// spoolCollector asks the spools when somebody looks.
type spoolCollector map[string]*spool.Spool

var (
	spoolRecords = prometheus.NewDesc("ratebatch_agent_spool_records", "Records that no broker has acknowledged yet.", []string{"host"}, nil)
	spoolBytes   = prometheus.NewDesc("ratebatch_agent_spool_bytes", "What they take on disk.", []string{"host"}, nil)
	spoolOldest  = prometheus.NewDesc("ratebatch_agent_spool_oldest_seconds", "Age of the oldest of them; beyond the wait of the rating job, billing is late.", []string{"host"}, nil)
	spoolDropped = prometheus.NewDesc("ratebatch_agent_spool_dropped_records_total", "Records that were too old or too many for the spool; they will not be billed.", []string{"host"}, nil)
	spoolDamaged = prometheus.NewDesc("ratebatch_agent_spool_damaged_files_total", "Files of the spool that were not what was written; what they held is lost.", []string{"host"}, nil)
)

// Describe lists what Collect gives.
func (c spoolCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{spoolRecords, spoolBytes, spoolOldest, spoolDropped, spoolDamaged} {
		out <- d
	}
}

// Collect reads the spools' statistics.
func (c spoolCollector) Collect(out chan<- prometheus.Metric) {
	for host, s := range c {
		stats := s.Stats()
		for _, x := range []struct {
			desc  *prometheus.Desc
			kind  prometheus.ValueType
			value float64
		}{
			{spoolRecords, prometheus.GaugeValue, float64(stats.Records)},
			{spoolBytes, prometheus.GaugeValue, float64(stats.Bytes)},
			{spoolOldest, prometheus.GaugeValue, stats.Oldest.Seconds()},
			{spoolDropped, prometheus.CounterValue, float64(stats.Dropped)},
			{spoolDamaged, prometheus.CounterValue, float64(stats.Damaged)},
		} {
			out <- prometheus.MustNewConstMetric(x.desc, x.kind, x.value, host)
		}
	}
}
