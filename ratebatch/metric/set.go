package metric

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
)

//go:embed metrics.yaml
var defaultSet []byte

//go:embed schema.json
var schema []byte

// Default is the metrics.yaml that is in force until another one is applied.
func Default() []byte { return bytes.Clone(defaultSet) }

// Schema is a JSON schema of metrics.yaml, for editors.
func Schema() []byte { return bytes.Clone(schema) }

// canonical is what a metric's usage depends on, and nothing else: a new
// description or another order of the file is the same set of metrics.
type canonical struct {
	Name      string      `json:"name"`
	Unit      string      `json:"unit"`
	Table     string      `json:"table"`
	Time      string      `json:"time"`
	Bucket    int64       `json:"bucket"`
	RowKey    []string    `json:"key"`
	Version   []string    `json:"version"`
	Quantity  Kind        `json:"quantity"`
	Value     []string    `json:"value"`
	Integral  string      `json:"integral"`
	Covered   string      `json:"covered"`
	RegionKey string      `json:"region_key"`
	ScopeKey  string      `json:"scope_key"`
	Resource  []string    `json:"resource"`
	Groupby   [][2]string `json:"groupby"`
	Metadata  [][2]string `json:"metadata"`
	Factor    string      `json:"factor"`
	Offset    string      `json:"offset"`
	Mutate    Mutate      `json:"mutate"`
	Map       [][2]string `json:"mutate_map"`
}

// Canonical is the set in a form that is equal for sets that mean the same:
// JSON, one metric a line, sorted by name.
func (s *Set) Canonical() []byte {
	var b bytes.Buffer
	for _, m := range s.Metrics {
		c := canonical{
			m.Name, m.Unit, m.Table, m.Time, seconds64(m.Bucket), m.RowKey, m.Version, m.Quantity, m.Value, m.Integral,
			m.Covered, m.RegionKey, m.ScopeKey, m.Resource, pairsOf(m.Groupby), pairsOf(m.Metadata),
			m.Factor.RatString(), m.Offset.RatString(), m.Mutate, nil,
		}
		for _, e := range m.Map {
			c.Map = append(c.Map, [2]string{e.From.RatString(), e.To.String()})
		}
		line, err := json.Marshal(c)
		if err != nil {
			panic(err) // strings and numbers only
		}
		b.Write(append(line, '\n'))
	}
	return b.Bytes()
}

func pairsOf(attributes []Attribute) [][2]string {
	m := Metric{Groupby: attributes}
	var out [][2]string
	for _, a := range m.Attributes() {
		out = append(out, [2]string{a.Name, a.Column})
	}
	return out
}

// Digest is the sha256 of the canonical form, hexadecimal.
func (s *Set) Digest() string {
	sum := sha256.Sum256(s.Canonical())
	return hex.EncodeToString(sum[:])
}
