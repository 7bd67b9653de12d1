package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/agent/wire"
)

var (
	instanceID = uuid.MustParse("6c0e9a52-8f4d-4d57-9d57-1b0f6a2e7c11")
	portID     = uuid.MustParse("f1c5d1b0-7a6e-4a39-8d0e-2f3a4b5c6d7e")
	networkID  = uuid.MustParse("11111111-2222-4333-8444-555555555555")
)

func some(n uint64) *uint64 { return &n }

func common() wire.Common {
	return wire.Common{
		V: 1, TS: 1795971408, Host: "compute-1", RegionName: "RegionOne", InstanceUUID: instanceID,
		BeginMS: 1795971348250, EndMS: 1795971408999, Epoch: 1795000000, Sequence: 42,
		ProjectID: "8d5c", UserID: "u-1", FlavorName: "m1.small", VCPUs: 2, InstanceName: "web \"1\"\n\u00e9\U0001F600", ImageID: "img", DomainID: "7", AgentVersion: "1.2",
	}
}

func port() *wire.Port {
	return &wire.Port{Common: common(), PortUUID: portID, NetworkUUID: networkID, RxBytes: 1<<64 - 1, TxBytes: 0}
}

func instance() *wire.Instance {
	return &wire.Instance{Common: common(), CPUPct: 1234, MemoryActualBytes: some(1 << 32), MemoryRSSBytes: some(0)}
}

func disk() *wire.Disk {
	return &wire.Disk{Common: common(), Device: "vda", ReadBytes: some(1), WriteBytes: some(2), ReadRequests: some(3), WriteRequests: some(4), CapacityBytes: some(5), AllocationBytes: some(6)}
}

// lines reads a file of recorded records.
func lines(t testing.TB, name string) [][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSpace(text), []byte("\n"))
}

// The recorded records were written by Python's json.dumps, as the original
// producer does. encoding/json, which is another decoder, has to read the same.
func TestRecordsOfTheOriginalProducerLoad(t *testing.T) {
	for _, line := range lines(t, "original-port-stats.jsonl") {
		got, want := wire.Port{Common: common()}, wire.Port{} // what a reused record held must not stay
		if err := wire.DecodePort(line, &got); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		same(t, line, &got, &want, got.Original())
	}
	for _, line := range lines(t, "original-instance-stats.jsonl") {
		got, want := wire.Instance{Common: common()}, wire.Instance{}
		if err := wire.DecodeInstance(line, &got); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		same(t, line, &got, &want, got.Original())
	}
	for _, line := range lines(t, "original-disk-stats.jsonl") {
		got, want := wire.Disk{Common: common(), ReadBytes: some(1)}, wire.Disk{}
		if err := wire.DecodeDisk(line, &got); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		same(t, line, &got, &want, got.Original())
	}
	var first wire.Instance
	if err := wire.DecodeInstance(lines(t, "original-instance-stats.jsonl")[0], &first); err != nil || first.CPUPct != 1234 || *first.MemoryActualBytes != 1<<32 || first.MemoryUsableBytes != nil {
		t.Errorf("the first instance record: %+v, %v", first, err)
	}
}

func same[T any](t *testing.T, line []byte, got, want *T, original bool) {
	t.Helper()
	if err := json.Unmarshal(line, want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" || !original {
		t.Errorf("%s: original %v, encoding/json reads otherwise (-json +wire):\n%s", line, original, diff)
	}
}

func TestRecordsComeBackAsTheyWere(t *testing.T) {
	original := wire.Common{TS: 1, Host: "h", RegionName: "r", InstanceUUID: instanceID}
	p, i, d := port(), instance(), disk()
	p2, i2, d2 := port(), instance(), disk()
	p2.Common, i2.Common, d2.Common = original, original, original
	for _, want := range []*wire.Port{p, p2} {
		var got, parsed wire.Port
		roundTrip(t, want.Append(nil), want, &got, &parsed, wire.DecodePort)
	}
	for _, want := range []*wire.Instance{i, i2} {
		var got, parsed wire.Instance
		roundTrip(t, want.Append(nil), want, &got, &parsed, wire.DecodeInstance)
	}
	for _, want := range []*wire.Disk{d, d2} {
		var got, parsed wire.Disk
		roundTrip(t, want.Append(nil), want, &got, &parsed, wire.DecodeDisk)
	}
}

func roundTrip[T any](t *testing.T, text []byte, want, got, parsed *T, decode func([]byte, *T) error) {
	t.Helper()
	if err := decode(text, got); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if err := json.Unmarshal(text, parsed); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if diff := cmp.Diff(want, got) + cmp.Diff(want, parsed); diff != "" {
		t.Errorf("%s\n%s", text, diff)
	}
}

// The bytes of version 1, for ever.
func TestGoldenBytes(t *testing.T) {
	const shared = `{"v":1,"ts":1795971408,"host":"compute-1","region_name":"RegionOne","instance_uuid":"6c0e9a52-8f4d-4d57-9d57-1b0f6a2e7c11",` +
		`"begin_ms":1795971348250,"end_ms":1795971408999,"epoch":1795000000,"sequence":42,"project_id":"8d5c","user_id":"u-1","flavor_name":"m1.small","vcpus":2,` +
		`"instance_name":"web \"1\"\u000aé😀","image_id":"img","domain_id":"7","agent_version":"1.2",`
	for name, tt := range map[string]struct{ got, want string }{
		"port":               {string(port().Append(nil)), shared + `"port_uuid":"f1c5d1b0-7a6e-4a39-8d0e-2f3a4b5c6d7e","network_uuid":"11111111-2222-4333-8444-555555555555","rx_bytes":18446744073709551615,"tx_bytes":0}`},
		"instance":           {string(instance().Append(nil)), shared + `"cpu_pct":12.34,"memory_actual_bytes":4294967296,"memory_rss_bytes":0,"memory_usable_bytes":null}`},
		"disk":               {string(disk().Append(nil)), shared + `"device":"vda","read_bytes":1,"write_bytes":2,"read_requests":3,"write_requests":4,"capacity_bytes":5,"allocation_bytes":6,"physical_bytes":null}`},
		"key of a port":      {string(port().Key()), "f1c5d1b0-7a6e-4a39-8d0e-2f3a4b5c6d7e"},
		"key of a disk":      {string(disk().Key()), "6c0e9a52-8f4d-4d57-9d57-1b0f6a2e7c11/vda"},
		"key of an instance": {string(instance().Key()), "6c0e9a52-8f4d-4d57-9d57-1b0f6a2e7c11"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, tt.got, tt.want)
		}
	}
}

func TestBadRecordsAreRefusedWithTheReason(t *testing.T) {
	good := string(port().Append(nil))
	old := `{"ts": 5, "host": "h", "region_name": "r", "instance_uuid": "6c0e9a52-8f4d-4d57-9d57-1b0f6a2e7c11", "port_uuid": "f1c5d1b0-7a6e-4a39-8d0e-2f3a4b5c6d7e", "network_uuid": "11111111-2222-4333-8444-555555555555", "rx_bytes": 1, "tx_bytes": 2}`
	swap := func(text, from, to string) string {
		if !strings.Contains(text, from) {
			t.Fatalf("%s is not in %s", from, text)
		}
		return strings.Replace(text, from, to, 1)
	}
	for name, tt := range map[string]struct{ record, want string }{
		"nothing":                        {"", `port record: is not a JSON object: ""`},
		"garbage":                        {"\x00\xffxyz", "is not a JSON object"},
		"an array":                       {"[1]", "is not a JSON object"},
		"an empty object":                {"{}", `field "ts": is missing`},
		"cut off":                        {good[:len(good)-1], "ends where ',' or '}' should come"},
		"cut within a name":              {`{"ts`, "ends within a field name"},
		"cut within a text":              {`{"host":"comp`, "ends within a text"},
		"two objects":                    {good + "{}", `goes on behind the object: "{}"`},
		"a missing comma":                {swap(good, `,"host"`, `"host"`), "should come"},
		"a trailing comma":               {swap(good, `}`, `,}`), "where a field name should come"},
		"an unknown field":               {swap(good, `"host"`, `"extra":1,"host"`), `field "extra": is not known`},
		"a field in other letters":       {swap(good, `"host"`, `"Host"`), `field "Host": is not known`},
		"an unknown field, original":     {swap(old, `"host"`, `"extra": 1, "host"`), `field "extra": is not known`},
		"the next version":               {swap(good, `"v":1`, `"v":2,"new":{"a":[]}`), `field "v": version 2, this program reads version 1`},
		"version 0":                      {swap(good, `"v":1`, `"v":0`), "version 0"},
		"a field twice":                  {swap(good, `"host"`, `"ts":1795971408,"host"`), `field "ts": comes twice`},
		"a missing field":                {swap(good, `,"tx_bytes":0`, ``), `field "tx_bytes": is missing`},
		"a missing identity":             {swap(good, `"epoch":1795000000,`, ``), `field "epoch": is missing`},
		"an identity without version":    {swap(old, `"host"`, `"epoch": 5, "sequence": 1, "host"`), `field "epoch": comes without a version`},
		"null":                           {swap(good, `"tx_bytes":0`, `"tx_bytes":null`), `field "tx_bytes": null is not a number`},
		"a negative number":              {swap(good, `"tx_bytes":0`, `"tx_bytes":-5`), `field "tx_bytes": -5 is negative`},
		"a part of a byte":               {swap(good, `"tx_bytes":0`, `"tx_bytes":0.5`), "0.5 is not a whole number"},
		"an exponent":                    {swap(good, `"tx_bytes":0`, `"tx_bytes":1e3`), "1e3 is not a whole number"},
		"2^64":                           {swap(good, `18446744073709551615`, `18446744073709551616`), "18446744073709551616 does not fit into 64 bits"},
		"20 nines":                       {swap(good, `18446744073709551615`, `99999999999999999999`), "does not fit into 64 bits"},
		"a leading zero":                 {swap(good, `"tx_bytes":0`, `"tx_bytes":01`), "01 begins with 0"},
		"NaN":                            {swap(good, `"tx_bytes":0`, `"tx_bytes":NaN`), "NaN is not a number"},
		"a number as text":               {swap(good, `"tx_bytes":0`, `"tx_bytes":"0"`), `"0" is not a number`},
		"no value":                       {swap(good, `"tx_bytes":0`, `"tx_bytes":`), "nothing is not a number"},
		"a text as number":               {swap(good, `"host":"compute-1"`, `"host":1`), `field "host": 1 is not a text`},
		"an empty host":                  {swap(good, `"host":"compute-1"`, `"host":""`), `field "host": is empty`},
		"an empty region":                {swap(good, `"region_name":"RegionOne"`, `"region_name":""`), `field "region_name": is empty`},
		"a text that is too long":        {swap(good, `compute-1`, strings.Repeat("x", 1025)), "has 1025 bytes, more than 1024"},
		"a text that is not UTF-8":       {swap(good, `compute-1`, "\xff"), "is not UTF-8"},
		"a control character":            {swap(good, `compute-1`, "a\nb"), "control character"},
		"an unknown escape":              {swap(good, `compute-1`, `\x`), `unknown escape \x`},
		"a short \\u":                    {swap(good, `compute-1`, `\u12`), "four hexadecimal digits"},
		"half of a pair":                 {swap(good, `compute-1`, `\ud83d`), "half of a surrogate pair"},
		"a UUID without hyphens":         {swap(good, portID.String(), strings.ReplaceAll(portID.String(), "-", "")), "is not a UUID"},
		"a UUID with a wrong digit":      {swap(good, portID.String(), "g1c5d1b0-7a6e-4a39-8d0e-2f3a4b5c6d7e"), "is not a UUID"},
		"an empty UUID":                  {swap(good, portID.String(), ""), "is not a UUID"},
		"70,000 vCPUs":                   {swap(good, `"vcpus":2`, `"vcpus":70000`), "70000 is more than 65535"},
		"time 0":                         {swap(old, `"ts": 5`, `"ts": 0`), "0 lies outside 1 to"},
		"a time in milliseconds":         {swap(old, `"ts": 5`, `"ts": 1795971408999`), "lies outside"},
		"an end before the begin":        {swap(good, `"begin_ms":1795971348250`, `"begin_ms":1795971409000`), `field "begin_ms": 1795971409000 is not before`},
		"an empty interval":              {swap(good, `"begin_ms":1795971348250`, `"begin_ms":1795971408999`), "is not before"},
		"an interval of a year":          {swap(good, `"begin_ms":1795971348250`, `"begin_ms":1764435408999`), "more than 92 days"},
		"a ts that is not the end's":     {swap(good, `"ts":1795971408`, `"ts":1795971409`), `field "ts": 1795971409 is not the second of end_ms`},
		"epoch 0":                        {swap(good, `"epoch":1795000000`, `"epoch":0`), "epochs begin at 1"},
		"sequence 0":                     {swap(good, `"sequence":42`, `"sequence":0`), "sequences begin at 1"},
		"a reason is short and readable": {`{"` + strings.Repeat("\xff", 5000) + `":1}`, "…"},
	} {
		t.Run(name, func(t *testing.T) {
			var r wire.Port
			err := wire.DecodePort([]byte(tt.record), &r)
			var decode *wire.DecodeError
			if !errors.As(err, &decode) || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 400 {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestPercentages(t *testing.T) {
	const record = `{"ts":5,"host":"h","region_name":"r","instance_uuid":"6c0e9a52-8f4d-4d57-9d57-1b0f6a2e7c11","cpu_pct":%,"memory_actual_bytes":null,"memory_rss_bytes":null,"memory_usable_bytes":null}`
	for text, want := range map[string]wire.Hundredths{
		"0": 0, "0.0": 0, "0.01": 1, "0.1": 10, "12.34": 1234, "12.340": 1234, "7": 700, "99.99": 9999, "100": 10000, "100.0": 10000, "100.00": 10000,
	} {
		var r wire.Instance
		if err := wire.DecodeInstance([]byte(strings.Replace(record, "%", text, 1)), &r); err != nil || r.CPUPct != want {
			t.Errorf("%s: %d, %v, want %d", text, r.CPUPct, err, want)
		}
	}
	for text, want := range map[string]string{
		"100.01": "more than 100", "1000": "more than 100", "99999999999999999999": "more than 100", "-0.01": "is negative", "12.345": "more than two digits",
		"01.5": "not a percentage", ".5": "not a percentage", "5.": "not a percentage", "1.2.3": "not a percentage", "1e1": "not a percentage", "null": "not a percentage",
		"NaN": "not a percentage", `"12.34"`: "not a percentage", "": "not a percentage",
	} {
		var r wire.Instance
		if err := wire.DecodeInstance([]byte(strings.Replace(record, "%", text, 1)), &r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Ingest keeps pointers of one record while it decodes the next into the same variable.
func TestAReusedRecordLeavesTheLastOnesValues(t *testing.T) {
	var r wire.Disk
	if err := wire.DecodeDisk(disk().Append(nil), &r); err != nil {
		t.Fatal(err)
	}
	kept := r
	next := disk()
	*next.ReadBytes, next.Host = 77, "other"
	if err := wire.DecodeDisk(next.Append(nil), &r); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(disk(), &kept); diff != "" {
		t.Errorf("the first record changed:\n%s", diff)
	}
	if *r.ReadBytes != 77 || r.Host != "other" {
		t.Errorf("the second record: %+v", r)
	}
}

func TestAnInvalidNameIsWrittenReadably(t *testing.T) {
	r := port()
	r.InstanceName = "a\xffb\x00"
	var got wire.Port
	if err := wire.DecodePort(r.Append(nil), &got); err != nil || got.InstanceName != "a\ufffdb\x00" {
		t.Errorf("%q, %v", got.InstanceName, err)
	}
}

func TestWritingAllocatesNothing(t *testing.T) {
	p, i, d, room := port(), instance(), disk(), make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() {
		p.Append(room)
		i.Append(room)
		d.Append(room)
		d.AppendKey(room)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
