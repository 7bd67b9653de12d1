package wire_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/agent/wire"
)

// The reference has exactly the fields that are on the wire, in their order.
func TestReferenceHasEveryField(t *testing.T) {
	common, ours, kinds := wire.Reference()
	var written []string
	for _, list := range [][]wire.FieldDoc{common, ours} {
		for _, f := range list {
			written = append(written, f.Name)
		}
	}
	slices.Sort(written)
	onWire := jsonNames(reflect.TypeFor[wire.Common]())
	slices.Sort(onWire)
	if !slices.Equal(written, onWire) {
		t.Errorf("common fields: the reference has %v, the wire %v", written, onWire)
	}
	for i, typ := range []reflect.Type{reflect.TypeFor[wire.Port](), reflect.TypeFor[wire.Instance](), reflect.TypeFor[wire.Disk]()} {
		var names []string
		for _, f := range kinds[i].Fields {
			names = append(names, f.Name)
			if f.Text == "" || f.Type == "" {
				t.Errorf("%s %s says nothing", kinds[i].Topic, f.Name)
			}
		}
		if want := jsonNames(typ); !slices.Equal(names, want) {
			t.Errorf("%s: the reference has %v, the wire %v", kinds[i].Topic, names, want)
		}
	}
}

func jsonNames(typ reflect.Type) []string {
	var out []string
	for i := range typ.NumField() {
		if name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ","); name != "" {
			out = append(out, name)
		}
	}
	return out
}
