package exporter

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ratebatch/ratebatch/exporter/bucket"
)

//go:embed manifest.schema.json
var manifestSchema []byte

// ManifestSchema is the JSON Schema (2020-12) that every manifest is valid by.
func ManifestSchema() []byte { return manifestSchema }

// ManifestVersion is the version of the manifest's own form.
const ManifestVersion = 1

// ManifestName is the file that names the current delivery of a dataset and
// month. It starts with an underscore so that tools that read whole folders
// skip it.
const ManifestName = "_manifest.json"

// Manifest says what a delivery holds. It is written last: a delivery without
// one did not happen. All of it follows from the state that was exported and
// the code that did it, so a repeated export writes the same manifest.
type Manifest struct {
	Version   int       `json:"manifest_version"`
	Dataset   string    `json:"dataset"`
	Format    string    `json:"format"`
	Month     string    `json:"month"`    // 2026-11
	Delivery  string    `json:"delivery"` // names the state: the same state has the same delivery
	Mechanism Mechanism `json:"mechanism"`
	Partition Partition `json:"partition"` // how rows are spread over files
	State     State     `json:"state"`
	Generator Generator `json:"generator"`
	SchemaID  string    `json:"schema_id"`
	Schema    Schema    `json:"schema"`

	Rows        uint64            `json:"rows"`
	Totals      map[string]string `json:"totals"` // per currency, exact, corrections included
	Corrections []Correction      `json:"corrections,omitempty"`
	// Increments are the append deliveries, oldest first; Files, Rows and Totals
	// are of all of them together. Empty for a complete delivery.
	Increments []Increment `json:"increments,omitempty"`
	Files      []File      `json:"files"`

	Focus *FocusMetadata `json:"focus,omitempty"`
}

// State is what of the commits a delivery holds.
type State struct {
	Begin   time.Time `json:"begin"`
	End     time.Time `json:"end"`
	Close   uint32    `json:"close"`   // number of the month's close, whose frozen commits these are; 0: the month is open
	Open    bool      `json:"open"`    // the month is not closed: what it holds may still change
	Partial bool      `json:"partial"` // not every period of the month is in
	// CompleteUntil is up to when all periods of all scopes are in; the month's
	// end unless it is partial.
	CompleteUntil time.Time `json:"complete_until"`
	// Missing names the scopes that lag behind the newest committed period.
	Missing []Missing `json:"missing,omitempty"`

	Commits      uint64            `json:"commits"`
	CommitDigest string            `json:"commit_digest"`
	CommittedAt  time.Time         `json:"committed_at"` // of the newest commit
	Lines        uint64            `json:"lines"`
	Totals       map[string]string `json:"totals"` // of the commits, per currency
	Plans        []string          `json:"plans"`
	Metrics      []string          `json:"metrics"`
}

// Increment is one append delivery: what was new when it was made. Its files
// are those below delivery=<its name>/.
type Increment struct {
	Sequence     int               `json:"sequence"` // from 1
	Delivery     string            `json:"delivery"`
	AsOf         time.Time         `json:"as_of"` // of the commits and closes that it brings the place to
	Close        uint32            `json:"close"`
	Commits      uint64            `json:"commits"` // of the state after it
	CommitDigest string            `json:"commit_digest"`
	NewPeriods   uint64            `json:"new_periods"`
	Adjusted     uint64            `json:"adjusted_periods"`
	Rows         uint64            `json:"rows"`
	Totals       map[string]string `json:"totals"` // of its rows
}

// Correction is what a delivery corrects of an earlier, closed month.
type Correction struct {
	Month   string            `json:"month"`
	Commits uint64            `json:"commits"` // that differ from what was billed
	Rows    uint64            `json:"rows"`
	Totals  map[string]string `json:"totals"`
}

// Missing is the time up to the newest committed period that a scope has not
// committed.
type Missing struct {
	Scope   string `json:"scope"`
	Seconds uint64 `json:"seconds"`
}

// Generator is the program that wrote a delivery.
type Generator struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// File is one file of a delivery.
type File struct {
	Path      string            `json:"path"` // relative to the manifest's folder
	Partition map[string]string `json:"partition,omitempty"`
	Rows      uint64            `json:"rows"`
	Bytes     uint64            `json:"bytes"`
	SHA256    string            `json:"sha256"`
}

// deliveries are the names of all deliveries whose files the manifest lists.
func (m *Manifest) deliveries() []string {
	if len(m.Increments) == 0 {
		return []string{m.Delivery}
	}
	var names []string
	for _, i := range m.Increments {
		names = append(names, i.Delivery)
	}
	return names
}

// Folder is where the deliveries of a dataset and month are.
func Folder(dataset, month string) string {
	return "v1/dataset=" + dataset + "/month=" + month + "/"
}

func (m *Manifest) encode() ([]byte, error) {
	for _, list := range []*[]string{&m.State.Plans, &m.State.Metrics} {
		if *list == nil {
			*list = []string{} // an empty list is no null
		}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(m)
	return out.Bytes(), err
}

// maxManifest bounds what is read as a manifest: a year of files is far below.
const maxManifest = 256 << 20

// ReadManifest reads the current manifest below folder; bucket.ErrNotExist if
// there is none.
func ReadManifest(ctx context.Context, b bucket.Bucket, folder string) (*Manifest, []byte, error) {
	in, err := b.Open(ctx, folder+ManifestName)
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxManifest+1))
	if err != nil {
		return nil, nil, fmt.Errorf("%s%s: %w", folder, ManifestName, err)
	}
	if len(text) > maxManifest {
		return nil, nil, fmt.Errorf("%s%s is larger than %d bytes", folder, ManifestName, maxManifest)
	}
	m, err := parseManifest(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s%s: %w", folder, ManifestName, err)
	}
	return m, text, nil
}

func parseManifest(text []byte) (*Manifest, error) {
	var m Manifest
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		return nil, err
	}
	if m.Version != ManifestVersion {
		return nil, fmt.Errorf("manifest version %d, this program reads %d", m.Version, ManifestVersion)
	}
	if m.Dataset == "" || m.Delivery == "" {
		return nil, errors.New("no dataset or delivery is named")
	}
	// Totals are added up, and whoever may write to the place wrote them.
	lists := []map[string]string{m.Totals, m.State.Totals}
	for _, x := range m.Increments {
		lists = append(lists, x.Totals)
	}
	for _, x := range m.Corrections {
		lists = append(lists, x.Totals)
	}
	for _, totals := range lists {
		for currency, total := range totals {
			if len(total) > 100 || !plainNumber.MatchString(total) {
				return nil, fmt.Errorf("the total %.40q of %.40q is no plain decimal", total, currency)
			}
		}
	}
	return &m, nil
}
