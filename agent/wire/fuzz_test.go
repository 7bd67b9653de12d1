package wire_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ratebatch/ratebatch/agent/wire"
)

// check holds for any input: decoding does not panic; what it takes is JSON and
// means the same to encoding/json; writing it and reading it again changes
// nothing.
func check[T any](t *testing.T, data []byte, decode func([]byte, *T) error, encode func(*T, []byte) []byte) {
	t.Helper()
	var got, parsed, again T
	if err := decode(data, &got); err != nil {
		return
	}
	if err := json.Unmarshal(data, &parsed); err != nil {
		t.Fatalf("taken, but encoding/json says %v", err)
	}
	if diff := cmp.Diff(got, parsed); diff != "" {
		t.Fatalf("encoding/json reads otherwise:\n%s", diff)
	}
	text := encode(&got, nil)
	if err := decode(text, &again); err != nil {
		t.Fatalf("what was written, %s, is refused: %v", text, err)
	}
	if diff := cmp.Diff(got, again); diff != "" {
		t.Fatalf("the way through changes the record:\n%s", diff)
	}
}

func seed(f *testing.F, file string, ours []byte) {
	for _, line := range lines(f, file) {
		f.Add(line)
	}
	f.Add(ours)
	f.Add([]byte(`{"v":1,"ts":5,"host":"\u00e9\ud83d\ude00\n","vcpus":0}`))
	f.Add([]byte(`{"v":2}`))
	f.Add([]byte(" {\t} "))
}

func FuzzDecodePort(f *testing.F) {
	seed(f, "original-port-stats.jsonl", port().Append(nil))
	f.Fuzz(func(t *testing.T, data []byte) { check(t, data, wire.DecodePort, (*wire.Port).Append) })
}

func FuzzDecodeInstance(f *testing.F) {
	seed(f, "original-instance-stats.jsonl", instance().Append(nil))
	f.Fuzz(func(t *testing.T, data []byte) { check(t, data, wire.DecodeInstance, (*wire.Instance).Append) })
}

func FuzzDecodeDisk(f *testing.F) {
	seed(f, "original-disk-stats.jsonl", disk().Append(nil))
	f.Fuzz(func(t *testing.T, data []byte) { check(t, data, wire.DecodeDisk, (*wire.Disk).Append) })
}

// FuzzText: any text survives, but for bytes that are not UTF-8.
func FuzzText(f *testing.F) {
	f.Add("web \"1\"\\\n\u2028\x7f\xff")
	f.Fuzz(func(t *testing.T, name string) {
		if len(name) > wire.MaxText/3 {
			return
		}
		r := port()
		r.InstanceName = name
		text := r.Append(nil)
		var got, parsed wire.Port
		if err := wire.DecodePort(text, &got); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if err := json.Unmarshal(text, &parsed); err != nil || parsed.InstanceName != got.InstanceName {
			t.Fatalf("%q: %q, encoding/json %q, %v", name, got.InstanceName, parsed.InstanceName, err)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	records := [][]byte{port().Append(nil), instance().Append(nil), disk().Append(nil)}
	other := []*wire.Port{port()}
	other[0].InstanceName, other[0].ProjectID = "vm-2", "b"
	b.ReportAllocs()
	var p wire.Port
	var i wire.Instance
	var d wire.Disk
	n := 0
	for b.Loop() {
		if wire.DecodePort(records[0], &p) != nil || wire.DecodeInstance(records[1], &i) != nil || wire.DecodeDisk(records[2], &d) != nil {
			b.Fatal("refused")
		}
		n += 3
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkAppend(b *testing.B) {
	p, i, d, room := port(), instance(), disk(), make([]byte, 0, 4096)
	n := 0
	for b.Loop() {
		p.Append(room)
		i.Append(room)
		d.Append(room)
		n += 3
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}
