package wire

// FieldDoc says what one field of the records means, for the reference.
type FieldDoc struct {
	Name string // as on the wire
	Type string // JSON type, with its limits
	Text string
}

// RecordDoc is one kind of records: its topic, its Kafka key and the fields
// that it has beside the common ones.
type RecordDoc struct {
	Topic, Key string
	Fields     []FieldDoc
}

const (
	typeUUID   = "UUID"
	typeText   = "text, at most 1,024 bytes of UTF-8"
	typeCount  = "whole number, 64 bits"
	typeMaybe  = "whole number, 64 bits, or null"
	typeMillis = "whole number"
)

// Reference describes every field: those of the specification, which all
// records have, ours beside them, and those of each kind. A test compares it
// with the structs.
func Reference() (common, ours []FieldDoc, kinds []RecordDoc) {
	common = []FieldDoc{
		{"ts", "whole number", "end of the interval in Unix seconds, rounded down"},
		{"host", typeText, "the compute node; not empty"},
		{"region_name", typeText, "region of the cloud; not empty"},
		{"instance_uuid", typeUUID, "the instance"},
	}
	ours = []FieldDoc{
		{"v", "1", "version of the record; absent: a record of the original producer, and the next four must be absent too"},
		{"begin_ms", typeMillis, "begin of the interval in Unix milliseconds, inclusive; at most 92 days before the end"},
		{"end_ms", typeMillis, "end of the interval in Unix milliseconds, exclusive; ts is this in whole seconds"},
		{"epoch", typeCount, "of the agent, at least 1; with region, host and sequence the sample's identity: a sample that comes twice counts once"},
		{"sequence", typeCount, "number of the sample in its epoch, at least 1"},
		{"project_id", typeText, "who pays"},
		{"user_id", typeText, "user the instance belongs to"},
		{"flavor_name", typeText, "flavor in force at the end of the interval"},
		{"vcpus", "whole number, 16 bits", "number of virtual CPUs"},
		{"instance_name", typeText, "name of the instance"},
		{"image_id", typeText, "image the instance was made from"},
		{"domain_id", typeText, "libvirt's id of the domain; another one means the guest was started anew"},
		{"agent_version", typeText, "version of the agent"},
	}
	kinds = []RecordDoc{
		{TopicPort, "port UUID", []FieldDoc{
			{"port_uuid", typeUUID, "the port"},
			{"network_uuid", typeUUID, "network of the port; the nil UUID where it is not known"},
			{"rx_bytes", typeCount, "bytes that the guest received over the interval"},
			{"tx_bytes", typeCount, "bytes that the guest sent over the interval"},
		}},
		{TopicInstance, "instance UUID", []FieldDoc{
			{"cpu_pct", "0 to 100, at most two digits after the point", "CPU per cent over the interval, of all vCPUs together"},
			{"memory_actual_bytes", typeMaybe, "memory that the guest has been given, at the end"},
			{"memory_rss_bytes", typeMaybe, "memory that the guest takes on the host, at the end"},
			{"memory_usable_bytes", typeMaybe, "memory that the guest could still use, at the end"},
		}},
		{TopicDisk, "instance UUID `/` device", []FieldDoc{
			{"device", typeText, "the disk, by libvirt's target name, such as vda"},
			{"read_bytes", typeMaybe, "bytes read over the interval"},
			{"write_bytes", typeMaybe, "bytes written over the interval"},
			{"read_requests", typeMaybe, "read requests over the interval"},
			{"write_requests", typeMaybe, "write requests over the interval"},
			{"capacity_bytes", typeMaybe, "size of the disk as the guest sees it, at the end"},
			{"allocation_bytes", typeMaybe, "bytes that it takes on its store, at the end"},
			{"physical_bytes", typeMaybe, "size of its file, at the end"},
		}},
	}
	return common, ours, kinds
}
