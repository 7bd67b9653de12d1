package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

// point is one priced quantity of CloudKitty.
type point struct {
	scope, metric string
	begin         time.Time
	qty, price    decimal.Decimal
}

// frames is CloudKitty's answer, of its API v2 and v1.
type frames struct {
	Dataframes []struct {
		// v2
		Period struct{ Begin string } `json:"period"`
		Usage  map[string][]struct {
			Vol     struct{ Qty json.Number }   `json:"vol"`
			Rating  struct{ Price json.Number } `json:"rating"`
			GroupBy map[string]any              `json:"groupby"`
		} `json:"usage"`
		// v1
		Begin     string `json:"begin"`
		Tenant    string `json:"tenant_id"`
		Resources []struct {
			Service string      `json:"service"`
			Volume  json.Number `json:"volume"`
			Rating  json.Number `json:"rating"`
		} `json:"resources"`
	} `json:"dataframes"`
}

// readPoints reads a file of dataframes: JSON of either API, one answer or
// several pages one after another, or the client's CSV.
func readPoints(name string, r io.Reader, scopeKey string, each func(point) error) error {
	var err error
	if strings.HasSuffix(strings.ToLower(name), ".csv") {
		err = readPointsCSV(r, scopeKey, each)
	} else {
		err = readPointsJSON(r, scopeKey, each)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func readPointsJSON(r io.Reader, scopeKey string, each func(point) error) error {
	d := json.NewDecoder(r)
	for page := 1; ; page++ {
		var x frames
		if err := d.Decode(&x); errors.Is(err, io.EOF) && page > 1 {
			return nil
		} else if err != nil {
			return fmt.Errorf("page %d is no dataframes of CloudKitty: %w", page, err)
		}
		for i, f := range x.Dataframes {
			where := fmt.Sprintf("page %d, frame %d", page, i+1)
			for metric, list := range f.Usage {
				for _, u := range list {
					scope, ok := u.GroupBy[scopeKey].(string)
					if !ok {
						return fmt.Errorf("%s: a point of %s has no %s in groupby: name the scope's key with --scope-key", where, metric, scopeKey)
					}
					if err := emit(where, scope, metric, f.Period.Begin, u.Vol.Qty.String(), u.Rating.Price.String(), each); err != nil {
						return err
					}
				}
			}
			for _, u := range f.Resources {
				if err := emit(where, f.Tenant, u.Service, f.Begin, u.Volume.String(), u.Rating.String(), each); err != nil {
					return err
				}
			}
		}
	}
}

// groupValue finds a key in a cell of the client's CSV, which is JSON or a
// Python dict.
func groupValue(cell, key string) string {
	m := regexp.MustCompile(`['"]` + regexp.QuoteMeta(key) + `['"]\s*:\s*['"]([^'"]*)['"]`).FindStringSubmatch(cell)
	if m == nil {
		return ""
	}
	return m[1]
}

func readPointsCSV(r io.Reader, scopeKey string, each func(point) error) error {
	rows := csv.NewReader(r)
	head, err := rows.Read()
	if err != nil {
		return fmt.Errorf("the line of names: %w", err)
	}
	column := func(names ...string) int {
		for i, h := range head {
			for _, n := range names {
				if strings.EqualFold(strings.NewReplacer(" ", "", "_", "").Replace(strings.TrimPrefix(h, "\ufeff")), strings.ReplaceAll(n, "_", "")) {
					return i
				}
			}
		}
		return -1
	}
	begin, metric := column("begin"), column("metrictype", "type", "metric", "service", "restype")
	qty, price := column("qty", "quantity", "volume"), column("price", "rating", "rate", "cost")
	scope, group := column(scopeKey, "scopeid", "scope", "tenantid"), column("groupby", "desc")
	if begin < 0 || metric < 0 || qty < 0 || price < 0 || scope < 0 && group < 0 {
		return fmt.Errorf("the columns %q are not those of 'cloudkitty dataframes get -f csv': begin, type, qty, price and %s or group by are needed", head, scopeKey)
	}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line, _ := rows.FieldPos(0)
		where := fmt.Sprintf("line %d", line)
		name := ""
		if scope >= 0 {
			name = row[scope]
		} else if name = groupValue(row[group], scopeKey); name == "" {
			return fmt.Errorf("%s: no %s in group by: name the scope's key with --scope-key", where, scopeKey)
		}
		if err := emit(where, name, row[metric], row[begin], row[qty], row[price], each); err != nil {
			return err
		}
	}
}

// foreignDigits bounds numbers before and after the point, far beyond what a
// float of CloudKitty's is printed with: adding up a 1e999999999 would take the
// machine's memory.
const foreignDigits = 60

// emit parses a point. Numbers come as text, digit by digit: CloudKitty's are
// floats, but nothing here adds to their error.
func emit(where, scope, metric, begin, qty, price string, each func(point) error) error {
	p := point{scope: scope, metric: metric}
	var err error
	if p.begin, err = parseCloudKittyTime(begin); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if p.qty, err = plan.ParseNumber(strings.TrimSpace(qty), foreignDigits, foreignDigits); err != nil {
		return fmt.Errorf("%s: quantity: %w", where, err)
	}
	if price == "" {
		price = "0" // a point that no rule priced
	}
	if p.price, err = plan.ParseNumber(strings.TrimSpace(price), foreignDigits, foreignDigits); err != nil {
		return fmt.Errorf("%s: price: %w", where, err)
	}
	return each(p)
}

func parseCloudKittyTime(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05-07:00", "2006-01-02 15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("begin %q is no time", text)
}
