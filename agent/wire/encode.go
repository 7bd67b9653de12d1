package wire

import (
	"strconv"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Append writes the record as one JSON object without spaces, after dst. It
// allocates nothing where dst has room. It does not check: what DecodePort
// would refuse (an interval that ends before it begins) is the producer's to
// avoid.
func (r *Port) Append(dst []byte) []byte {
	dst = r.append(dst)
	dst = appendUUID(append(dst, `,"port_uuid":"`...), r.PortUUID)
	dst = appendUUID(append(dst, `","network_uuid":"`...), r.NetworkUUID)
	dst = strconv.AppendUint(append(dst, `","rx_bytes":`...), r.RxBytes, 10)
	dst = strconv.AppendUint(append(dst, `,"tx_bytes":`...), r.TxBytes, 10)
	return append(dst, '}')
}

// Append is Port's.
func (r *Instance) Append(dst []byte) []byte {
	dst = r.append(dst)
	dst = r.CPUPct.append(append(dst, `,"cpu_pct":`...))
	dst = appendOptional(append(dst, `,"memory_actual_bytes":`...), r.MemoryActualBytes)
	dst = appendOptional(append(dst, `,"memory_rss_bytes":`...), r.MemoryRSSBytes)
	dst = appendOptional(append(dst, `,"memory_usable_bytes":`...), r.MemoryUsableBytes)
	return append(dst, '}')
}

// Append is Port's.
func (r *Disk) Append(dst []byte) []byte {
	dst = r.append(dst)
	dst = appendText(append(dst, `,"device":`...), r.Device)
	dst = appendOptional(append(dst, `,"read_bytes":`...), r.ReadBytes)
	dst = appendOptional(append(dst, `,"write_bytes":`...), r.WriteBytes)
	dst = appendOptional(append(dst, `,"read_requests":`...), r.ReadRequests)
	dst = appendOptional(append(dst, `,"write_requests":`...), r.WriteRequests)
	dst = appendOptional(append(dst, `,"capacity_bytes":`...), r.CapacityBytes)
	dst = appendOptional(append(dst, `,"allocation_bytes":`...), r.AllocationBytes)
	dst = appendOptional(append(dst, `,"physical_bytes":`...), r.PhysicalBytes)
	return append(dst, '}')
}

// append writes the shared fields and leaves the object open. The version comes
// first, so that a reader which is too old sees it before any field that it
// does not know.
func (c *Common) append(dst []byte) []byte {
	dst = append(dst, '{')
	if c.V != 0 {
		dst = append(strconv.AppendInt(append(dst, `"v":`...), int64(c.V), 10), ',')
	}
	dst = strconv.AppendInt(append(dst, `"ts":`...), c.TS, 10)
	dst = appendText(append(dst, `,"host":`...), c.Host)
	dst = appendText(append(dst, `,"region_name":`...), c.RegionName)
	dst = append(appendUUID(append(dst, `,"instance_uuid":"`...), c.InstanceUUID), '"')
	if c.V != 0 {
		dst = strconv.AppendInt(append(dst, `,"begin_ms":`...), c.BeginMS, 10)
		dst = strconv.AppendInt(append(dst, `,"end_ms":`...), c.EndMS, 10)
		dst = strconv.AppendUint(append(dst, `,"epoch":`...), c.Epoch, 10)
		dst = strconv.AppendUint(append(dst, `,"sequence":`...), c.Sequence, 10)
	}
	dst = appendAttribute(dst, `,"project_id":`, c.ProjectID)
	dst = appendAttribute(dst, `,"user_id":`, c.UserID)
	dst = appendAttribute(dst, `,"flavor_name":`, c.FlavorName)
	if c.VCPUs != 0 {
		dst = strconv.AppendUint(append(dst, `,"vcpus":`...), uint64(c.VCPUs), 10)
	}
	dst = appendAttribute(dst, `,"instance_name":`, c.InstanceName)
	dst = appendAttribute(dst, `,"image_id":`, c.ImageID)
	dst = appendAttribute(dst, `,"domain_id":`, c.DomainID)
	return appendAttribute(dst, `,"agent_version":`, c.AgentVersion)
}

// appendAttribute leaves out what is empty: absent and empty mean the same.
func appendAttribute(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return appendText(append(dst, name...), value)
}

func appendOptional(dst []byte, n *uint64) []byte {
	if n == nil {
		return append(dst, "null"...)
	}
	return strconv.AppendUint(dst, *n, 10)
}

const hexDigits = "0123456789abcdef"

func appendUUID(dst []byte, id uuid.UUID) []byte {
	for i, b := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, hexDigits[b>>4], hexDigits[b&15])
	}
	return dst
}

// appendText writes a JSON string. Bytes that are not UTF-8 become U+FFFD, as
// in encoding/json: a broken name must not cost the usage.
func appendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	plain := 0 // s[plain:i] waits to be copied
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(append(dst, s[plain:i]...), "\ufffd"...)
				plain = i + 1
			}
			i += size
			continue
		}
		dst = append(dst, s[plain:i]...)
		if c == '"' || c == '\\' {
			dst = append(dst, '\\', c)
		} else {
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		plain = i
	}
	return append(append(dst, s[plain:]...), '"')
}
