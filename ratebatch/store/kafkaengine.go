package store

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// KafkaEngine says how a server consumes the topics by itself: ClickHouse's own
// Kafka tables and materialized views, into the same tables as ingest. It is for
// servers that have it and people who know it; it delivers at least once, keeps
// no watermark and notices no loss in Kafka.
type KafkaEngine struct {
	Brokers   []string
	Port      string // topics
	Instance  string
	Disk      string
	Group     string
	Consumers int           // per topic and server; 0: 1
	Flush     time.Duration // a message waits no longer to be written; 0: the server's 7.5 s

	TLS       bool
	Mechanism string // SASL; empty: none
	User      string
	Password  string // stands in the server's metadata
	Database  string // that the tables are in
	Cluster   string
}

type setting struct{ Name, Value string }

// kafkaKind is what the three kinds differ in.
type kafkaKind struct {
	Kind, Topic, Resource      string
	Columns, Own               string
	Numbers, Nullable, Texts   string
	Required, Others           []string
	Refuse, OnCluster, Brokers string
	Group                      string
	Consumers                  int
	Security                   []setting
	LateBefore                 string
}

// Statements renders the tables and views in the order in which they are made;
// the last three start the consumers.
func (o KafkaEngine) Statements() ([]string, error) {
	common := kafkaKind{Brokers: strings.Join(o.Brokers, ","), Group: o.Group, Consumers: max(o.Consumers, 1)}
	if o.Cluster != "" {
		common.OnCluster = " ON CLUSTER " + sqltext.Name(o.Cluster)
	}
	switch {
	case o.Mechanism != "" && o.TLS:
		common.Security = []setting{{"kafka_security_protocol", "sasl_ssl"}}
	case o.Mechanism != "":
		common.Security = []setting{{"kafka_security_protocol", "sasl_plaintext"}}
	case o.TLS:
		common.Security = []setting{{"kafka_security_protocol", "ssl"}}
	}
	if o.Flush > 0 {
		common.Security = append(common.Security, setting{"kafka_flush_interval_ms", strconv.FormatInt(o.Flush.Milliseconds(), 10)})
	}
	if o.Mechanism != "" {
		common.Security = append(common.Security, setting{"kafka_sasl_mechanism", o.Mechanism}, setting{"kafka_sasl_username", o.User}, setting{"kafka_sasl_password", o.Password})
	}
	unsigned := func(names ...string) string {
		var out []string
		for _, n := range names {
			out = append(out, "JSONExtract(record, '"+n+"', 'Nullable(UInt64)') AS "+n)
		}
		return strings.Join(out, ", ")
	}
	list := func(names ...string) string {
		if len(names) == 0 {
			return "emptyArrayString()"
		}
		return "['" + strings.Join(names, "', '") + "']"
	}
	texts := []string{"host", "region_name", "project_id", "user_id", "flavor_name", "instance_name", "image_id", "domain_id", "agent_version", "instance_uuid"}
	notUUID := func(name string) string {
		return "NOT match(JSONExtractString(record, '" + name + "'), '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'), 'field \"" + name + "\": is not a UUID',\n                   "
	}
	port, instance, disk := common, common, common
	port.Kind, port.Topic, port.Resource = "port", o.Port, "unhex(replaceAll(JSONExtractString(record, 'port_uuid'), '-', ''))"
	port.Required = []string{"port_uuid", "network_uuid", "rx_bytes", "tx_bytes"}
	port.Numbers, port.Nullable, port.Texts = list("vcpus", "rx_bytes", "tx_bytes"), list(), list(append(texts, "port_uuid", "network_uuid")...)
	port.Columns = "port_uuid, network_uuid, rx_bytes, tx_bytes"
	port.Own = "toUUIDOrZero(JSONExtractString(record, 'port_uuid')) AS port_uuid, toUUIDOrZero(JSONExtractString(record, 'network_uuid')) AS network_uuid, JSONExtractUInt(record, 'rx_bytes') AS rx_bytes, JSONExtractUInt(record, 'tx_bytes') AS tx_bytes"
	port.Refuse = notUUID("instance_uuid") + notUUID("port_uuid") + notUUID("network_uuid")

	memory := []string{"memory_actual_bytes", "memory_rss_bytes", "memory_usable_bytes"}
	instance.Kind, instance.Topic, instance.Resource = "instance", o.Instance, "''"
	instance.Required, instance.Others = append([]string{"cpu_pct"}, memory...), []string{"cpu_pct"}
	instance.Numbers, instance.Nullable, instance.Texts = list("vcpus"), list(memory...), list(texts...)
	instance.Columns = "cpu_pct, " + strings.Join(memory, ", ")
	instance.Own = "toDecimal32(JSONExtractRaw(record, 'cpu_pct'), 2) AS cpu_pct, " + unsigned(memory...)
	instance.Refuse = notUUID("instance_uuid") + `NOT match(JSONExtractRaw(record, 'cpu_pct'), '^(0|[1-9][0-9]?)(\\.[0-9]{1,2}0*)?$|^100(\\.0+)?$'), 'field "cpu_pct": is not a percentage such as 12.34',
                   `
	values := []string{"read_bytes", "write_bytes", "read_requests", "write_requests", "capacity_bytes", "allocation_bytes", "physical_bytes"}
	disk.Kind, disk.Topic, disk.Resource = "disk", o.Disk, "JSONExtractString(record, 'device')"
	disk.Required = append([]string{"device"}, values...)
	disk.Numbers, disk.Nullable, disk.Texts = list("vcpus"), list(values...), list(append(texts, "device")...)
	disk.Columns = "device, " + strings.Join(values, ", ")
	disk.Own = "JSONExtractString(record, 'device') AS device, " + unsigned(values...)
	disk.Refuse = notUUID("instance_uuid") + `JSONExtractString(record, 'device') = '', 'field "device": is empty',
                   `
	tmpl, err := template.New("").Funcs(template.FuncMap{"quote": sqltext.String}).ParseFS(files, "kafka/*.sql")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, k := range []*kafkaKind{&port, &instance, &disk} {
		// A consumer in the background works in no database of its own.
		k.LateBefore = strings.ReplaceAll(firstWholeHourText(k.Kind+"_samples", hour), "currentDatabase()", sqltext.String(o.Database))
	}
	for _, name := range []string{"1_records.sql", "2_samples_mv.sql", "3_late_mv.sql", "4_rejected_mv.sql", "5_queue.sql", "6_queue_mv.sql"} {
		for _, kind := range []kafkaKind{port, instance, disk} {
			var b bytes.Buffer
			if err := tmpl.ExecuteTemplate(&b, name, kind); err != nil {
				return nil, err
			}
			statement := strings.TrimSpace(b.String())
			if kafkaView.MatchString(statement) {
				statement += "\nCOMMENT " + sqltext.String(textOf(statement))
			}
			out = append(out, statement)
		}
	}
	return out, nil
}

// kafkaView names what a statement makes if that is one of the views.
var kafkaView = regexp.MustCompile(`(?m)^CREATE MATERIALIZED VIEW IF NOT EXISTS ([a-z_]+)`)

// MigrateKafkaEngine makes the Kafka tables and views. It may be repeated; what
// is there already stays as it is, but views that another version made are made
// anew. The consumers stop for that: what one reads while a view is missing would
// be lost for it.
func (s *Store) MigrateKafkaEngine(ctx context.Context, o KafkaEngine) error {
	o.Database = s.database
	statements, err := o.Statements()
	if err != nil {
		return err
	}
	there, err := s.tableComments(ctx)
	if err != nil {
		return err
	}
	var drop []string
	for _, statement := range statements {
		if m := kafkaView.FindStringSubmatch(statement); m != nil {
			comment, isThere := there[m[1]]
			_, text, _ := strings.Cut(statement, "\nCOMMENT ")
			if isThere && sqltext.String(comment) != text {
				drop = append(drop, m[1])
			}
		}
	}
	if len(drop) > 0 {
		drop = append([]string{"port_stats_queue_mv", "instance_stats_queue_mv", "disk_stats_queue_mv"}, drop...)
	}
	for _, view := range drop {
		if err := s.conn.Exec(ctx, "DROP VIEW IF EXISTS "+view+MigrateOptions{Cluster: o.Cluster}.onCluster()+" SYNC"); err != nil {
			return fmt.Errorf("%s: %w", view, describe(err))
		}
	}
	for _, statement := range statements {
		if err := s.conn.Exec(ctx, statement); err != nil {
			if strings.Contains(err.Error(), "Unknown table engine") {
				return &ratebatch.ConfigError{Err: err, Hint: "this server has no Kafka engine: use 'ratebatch ingest'"}
			}
			first, _, _ := strings.Cut(statement, "\n")
			return fmt.Errorf("%s: %w", strings.TrimPrefix(first, "-- "), describe(err))
		}
	}
	return nil
}
