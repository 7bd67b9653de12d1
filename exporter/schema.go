package exporter

import (
	"encoding/json"
	"strings"

	"github.com/google/uuid"
)

// Kind is the type of a dataset's column. There are few on purpose: every tool
// that finance uses reads them the same way.
type Kind string

// The kinds of columns and how Parquet stores them.
const (
	String    Kind = "STRING"   // BYTE_ARRAY, UTF8
	JSON      Kind = "JSON"     // BYTE_ARRAY, UTF8, holding one JSON object
	Decimal   Kind = "DECIMAL"  // FIXED_LEN_BYTE_ARRAY(16), DECIMAL(38,18)
	Timestamp Kind = "DATETIME" // INT64, TIMESTAMP(MICROS, isAdjustedToUTC)
	Integer   Kind = "INTEGER"  // INT64
)

// Precision and Scale of every decimal column.
const (
	Precision = 38
	Scale     = 18
)

// Field describes one column of a dataset.
type Field struct {
	Name     string `json:"name"`
	Kind     Kind   `json:"type"`
	Nullable bool   `json:"nullable,omitempty"`
	Unit     string `json:"unit,omitempty"`
	Doc      string `json:"description"`

	// unique columns differ in every row: a dictionary would only cost time.
	unique bool
	// digits is how many digits after the point text formats write at least; 0:
	// as many as there are. Binary formats have their scale.
	digits int32
}

// Schema is the declared form of a dataset. Every file of a dataset has it,
// whatever its rows hold: an all-null column keeps its type.
type Schema struct {
	Dataset string  `json:"dataset"`
	Version string  `json:"version"`
	Fields  []Field `json:"fields"`
}

// namespace is the UUIDv5 namespace of everything this package names.
var namespace = uuid.MustParse("6f1d3a0e-6a0f-5c1b-9b57-0d8f3f1d2c44")

// ID names the schema: it changes whenever a column does.
func (s Schema) ID() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and booleans only
	}
	return uuid.NewSHA1(namespace, text).String()
}

// columns is what of the schema a reader depends on; a description may change.
func (s Schema) columns() string {
	var b strings.Builder
	for _, f := range s.Fields {
		b.WriteString(f.Name + " " + string(f.Kind))
		if f.Nullable {
			b.WriteString("?")
		}
		b.WriteString(", ")
	}
	return strings.TrimSuffix(b.String(), ", ")
}

// linesSchema is the dataset "lines": every row of the commits, priced or not.
var linesSchema = Schema{Dataset: "lines", Version: "1", Fields: []Field{
	{Name: "line_id", Kind: String, Doc: "UUIDv5 of the line's key; the same line has the same id in every export", unique: true},
	{Name: "region", Kind: String, Doc: "region of the cloud"},
	{Name: "scope", Kind: String, Doc: "whose usage this is: the project, unless configured otherwise"},
	{Name: "begin", Kind: Timestamp, Doc: "begin of the rated period, inclusive"},
	{Name: "end", Kind: Timestamp, Doc: "end of the rated period, exclusive"},
	{Name: "metric", Kind: String, Doc: "what was metered"},
	{Name: "resource", Kind: String, Doc: "instance, port or disk"},
	{Name: "attributes", Kind: JSON, Doc: "attributes in force, names sorted, values strings"},
	{Name: "unit", Kind: String, Doc: "unit of quantity"},
	{Name: "quantity", Kind: Decimal, Unit: "as in column unit", Doc: "how much was used in the period"},
	{Name: "price", Kind: Decimal, Unit: "as in column currency", Doc: "what it costs; 0 in a bucket"},
	{Name: "currency", Kind: String, Doc: "currency of price"},
	{Name: "rule", Kind: String, Doc: "the rule that priced the line, or why it has no price"},
	{Name: "bucket", Kind: String, Doc: "empty for an ordinary line; unpriced, rejected or skipped for usage without a price"},
	{Name: "part", Kind: Integer, Doc: "number of the line among those of one usage row, from 0"},
	{Name: "revision", Kind: Integer, Doc: "how often the period was rated, from 1"},
	{Name: "corrects", Kind: String, Nullable: true, Doc: "for a correction of a closed month, and an adjustment of an append delivery: line_id of the line it changes; quantity and price are the difference"},
}}

// summarySchema is the dataset "summary": what a scope used and owes per day
// and metric.
var summarySchema = Schema{Dataset: "summary", Version: "1", Fields: []Field{
	{Name: "scope", Kind: String, Doc: "whose usage this is"},
	{Name: "day", Kind: Timestamp, Doc: "begin of the day in UTC"},
	{Name: "metric", Kind: String, Doc: "what was metered"},
	{Name: "unit", Kind: String, Doc: "unit of quantity"},
	{Name: "quantity", Kind: Decimal, Unit: "as in column unit", Doc: "how much was used"},
	{Name: "price", Kind: Decimal, Unit: "as in column currency", Doc: "what it costs"},
	{Name: "currency", Kind: String, Doc: "currency of price"},
	{Name: "bucket", Kind: String, Doc: "empty for priced usage; unpriced, rejected or skipped"},
	{Name: "lines", Kind: Integer, Doc: "number of rated lines"},
	{Name: "correction", Kind: Integer, Doc: "1 if this corrects a closed month, else 0"},
}}

// statementSchema is the dataset "statement": what goes on a project's bill.
var statementSchema = Schema{Dataset: "statement", Version: "1", Fields: []Field{
	{Name: "statement_id", Kind: String, Doc: "UUIDv5 of month, scope and currency: the same in every export"},
	{Name: "scope", Kind: String, Doc: "whom the statement is for"},
	{Name: "scope_name", Kind: String, Nullable: true, Doc: "name of the scope, if known"},
	{Name: "month", Kind: Timestamp, Doc: "begin of the month"},
	{Name: "position", Kind: Integer, Doc: "order on the statement, from 1"},
	{Name: "kind", Kind: String, Doc: "usage, correction, rounding or total"},
	{Name: "metric", Kind: String, Nullable: true, Doc: "what was metered; null on rounding and total"},
	{Name: "rule", Kind: String, Nullable: true, Doc: "the rule that priced it"},
	{Name: "quantity", Kind: Decimal, Nullable: true, Unit: "as in column unit", Doc: "how much was used"},
	{Name: "unit", Kind: String, Nullable: true, Doc: "unit of quantity"},
	{Name: "exact", Kind: Decimal, Unit: "as in column currency", Doc: "the sum of the lines, unrounded"},
	{Name: "amount", Kind: Decimal, Unit: "as in column currency", Doc: "rounded half-even to the currency's digits; usage, corrections and rounding add up to the total"},
	{Name: "currency", Kind: String, Doc: "ISO 4217"},
	{Name: "description", Kind: String, Doc: "what a person reads: the metric, or what a discount, minimum, maximum, correction or rounding is"},
}}
