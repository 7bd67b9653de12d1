package exporter

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
	"github.com/shopspring/decimal"
)

// Finding is a rule of FOCUS that a file breaks, and how often.
type Finding struct {
	Rule    string `json:"rule"`
	Rows    uint64 `json:"rows"` // 0: the file as a whole
	Example string `json:"example"`
}

// FocusReport is what FocusCheck found out about a file.
type FocusReport struct {
	Version  string            `json:"version"`
	Rows     uint64            `json:"rows"`
	Totals   map[string]string `json:"totals"`   // BilledCost per currency
	Invoices int               `json:"invoices"` // distinct InvoiceId
	Findings []Finding         `json:"findings"`
}

// focusMandatory are the columns that every file must have; those that came
// with 1.3 are asked for from then on.
var focusMandatory = map[string][]string{
	"1.2": {"BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeClass",
		"ChargeDescription", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingQuantity", "PricingUnit",
		"ProviderName", "PublisherName", "ServiceCategory", "ServiceName"},
	"1.3": {"HostProviderName", "ServiceProviderName"},
}

var focusNotNull = []string{"BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargePeriodEnd", "ChargePeriodStart",
	"ContractedCost", "EffectiveCost", "HostProviderName", "InvoiceIssuerName", "ListCost", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName", "ServiceProviderName"}

var focusDecimals = []string{"BilledCost", "ConsumedQuantity", "ContractedCost", "ContractedUnitPrice", "EffectiveCost", "ListCost", "ListUnitPrice", "PricingQuantity"}

var focusDates = []string{"BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart"}

var focusValues = map[string][]string{
	"ChargeCategory":  {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
	"ChargeClass":     {"Correction"},
	"ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
	"PricingCategory": {"Standard", "Dynamic", "Committed", "Other"},
	"ServiceCategory": {"AI and Machine Learning", "Analytics", "Business Applications", "Compute", "Databases", "Developer Tools", "Multicloud", "Identity", "Integration",
		"Internet of Things", "Management and Governance", "Media", "Migration", "Mobile", "Networking", "Security", "Storage", "Web", "Other"},
}

var (
	plainNumber = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)
	threeCaps   = regexp.MustCompile(`^[A-Z]{3}$`)
)

// focusRow is one row of a file; ok is false for a null or a column that is
// not there.
type focusRow func(column string) (text string, ok bool)

// FocusCheck holds a file (Parquet or CSV) against the rules of FOCUS. Unlike
// the public validator it compares decimals as decimals, accepts every UTF-8
// text and no exponents; docs/finance.md lists where the two disagree.
func FocusCheck(ctx context.Context, path, version string) (FocusReport, error) {
	c := &focusChecker{report: FocusReport{Version: version, Totals: map[string]string{}}, findings: map[string]*Finding{}, totals: map[string]decimal.Decimal{},
		invoices: map[string]bool{}, one: map[string]map[string]string{}}
	var err error
	if strings.HasSuffix(strings.ToLower(path), ".csv") {
		err = c.readCSV(ctx, path)
	} else {
		err = c.readParquet(ctx, path)
	}
	if err != nil {
		return c.report, fmt.Errorf("%s: %w", path, err)
	}
	for currency, total := range c.totals {
		c.report.Totals[currency] = total.String()
	}
	c.report.Invoices = len(c.invoices)
	c.report.Findings = []Finding{}
	for _, rule := range sortedNames(c.findings) {
		c.report.Findings = append(c.report.Findings, *c.findings[rule])
	}
	return c.report, nil
}

type focusChecker struct {
	report   FocusReport
	columns  []string
	findings map[string]*Finding
	totals   map[string]decimal.Decimal
	invoices map[string]bool
	one      map[string]map[string]string // "ServiceName has one ServiceCategory" -> name -> category
}

func (c *focusChecker) found(rule, example string) {
	f := c.findings[rule]
	if f == nil {
		f = &Finding{Rule: rule, Example: example}
		c.findings[rule] = f
	}
	if c.report.Rows > 0 {
		f.Rows++
	}
}

func (c *focusChecker) header(columns []string) {
	c.columns = columns
	want := slices.Clone(focusMandatory["1.2"])
	if c.report.Version != "1.2" {
		want = append(want, focusMandatory["1.3"]...)
	}
	for _, name := range want {
		if !slices.Contains(columns, name) {
			c.found("mandatory columns are there", name+" is missing")
		}
	}
	known := map[string]bool{}
	for _, f := range focusFields {
		known[f.Name] = true
	}
	for _, name := range []string{"AvailabilityZone", "BillingAccountType", "CapacityReservationId", "CapacityReservationStatus", "CommitmentDiscountCategory", "CommitmentDiscountId",
		"CommitmentDiscountName", "CommitmentDiscountQuantity", "CommitmentDiscountStatus", "CommitmentDiscountType", "CommitmentDiscountUnit", "ContractedUnitPrice", "ListUnitPrice",
		"PricingCurrency", "PricingCurrencyContractedUnitPrice", "PricingCurrencyEffectiveCost", "PricingCurrencyListUnitPrice", "SkuPriceDetails", "SkuPriceId"} {
		known[name] = true
	}
	for _, name := range columns {
		switch {
		case strings.HasPrefix(name, "x_") && len(name) > 50:
			c.found("custom columns have names of at most 50 characters", name)
		case !strings.HasPrefix(name, "x_") && !known[name]:
			c.found("columns that FOCUS does not know start with x_", name)
		}
	}
}

func (c *focusChecker) row(get focusRow) {
	c.report.Rows++
	at := func(text string) string { return fmt.Sprintf("row %d: %s", c.report.Rows, text) }
	for _, name := range focusNotNull {
		if _, ok := get(name); !ok && slices.Contains(c.columns, name) {
			c.found(name+" is not null", at("null"))
		}
	}
	for _, name := range c.columns {
		if text, ok := get(name); ok && !strings.HasPrefix(name, "x_") {
			switch strings.ToUpper(text) {
			case "", "NULL", "N/A", "NONE":
				c.found("a missing value is a null, not a text", at(name+" is "+fmt.Sprintf("%q", text)))
			}
		}
	}
	numbers := map[string]decimal.Decimal{}
	for _, name := range focusDecimals {
		text, ok := get(name)
		if !ok {
			continue
		}
		if !plainNumber.MatchString(text) {
			c.found("numbers are plain: no exponent, no sign but minus, no thousands", at(name+" is "+text))
			continue
		}
		numbers[name] = decimal.RequireFromString(text)
	}
	dates := map[string]time.Time{}
	for _, name := range focusDates {
		text, ok := get(name)
		if !ok {
			continue
		}
		const layout = "2006-01-02T15:04:05Z"
		t, err := time.Parse(layout, text)
		if err != nil || t.Format(layout) != text { // Parse takes fractions of a second as well
			c.found("dates are UTC and written 2026-11-01T00:00:00Z", at(name+" is "+text))
			continue
		}
		dates[name] = t
	}
	for _, pair := range [][2]string{{"BillingPeriodStart", "BillingPeriodEnd"}, {"ChargePeriodStart", "ChargePeriodEnd"}} {
		if from, to := dates[pair[0]], dates[pair[1]]; !from.IsZero() && !to.IsZero() && !from.Before(to) {
			c.found("a period begins before it ends", at(pair[0]+" "+from.Format(time.RFC3339)))
		}
	}
	for name, allowed := range focusValues {
		if text, ok := get(name); ok && !slices.Contains(allowed, text) {
			c.found(name+" has one of the allowed values", at(text))
		}
	}
	currency, _ := get("BillingCurrency")
	if !threeCaps.MatchString(currency) {
		c.found("BillingCurrency is an ISO 4217 code", at(currency))
	}
	category, _ := get("ChargeCategory")
	class, _ := get("ChargeClass")
	if _, ok := get("ConsumedQuantity"); ok && category != "Usage" {
		c.found("ConsumedQuantity is null unless ChargeCategory is Usage", at(category))
	}
	for _, pair := range [][2]string{{"PricingQuantity", "PricingUnit"}, {"ConsumedQuantity", "ConsumedUnit"}} {
		_, quantity := get(pair[0])
		_, unit := get(pair[1])
		if quantity != unit && slices.Contains(c.columns, pair[0]) {
			c.found(pair[1]+" is null exactly where "+pair[0]+" is", at(pair[0]))
		}
	}
	if _, ok := get("PricingQuantity"); !ok && (category == "Usage" || category == "Purchase") && class != "Correction" {
		c.found("PricingQuantity is not null for usage and purchases", at("null"))
	}
	for _, name := range []string{"ListUnitPrice", "ContractedUnitPrice", "SkuPriceId", "SkuId"} {
		if _, ok := get(name); !slices.Contains(c.columns, name) {
			continue
		} else if priced := (category == "Usage" || category == "Purchase") && class != "Correction"; !ok && priced {
			c.found(name+" is not null for usage and purchases", at("null"))
		} else if ok && category == "Tax" {
			c.found(name+" is null for taxes", at(name))
		}
		if numbers[name].IsNegative() {
			c.found("a unit price is not negative", at(name+" is "+numbers[name].String()))
		}
	}
	for _, name := range []string{"ListCost", "ContractedCost"} {
		if cost, ok := numbers[name]; ok && category == "Credit" && !cost.Equal(numbers["BilledCost"]) {
			c.found(name+" of a credit is its BilledCost", at(cost.String()))
		}
	}
	for _, triple := range [][3]string{{"ListUnitPrice", "PricingQuantity", "ListCost"}, {"ContractedUnitPrice", "PricingQuantity", "ContractedCost"}} {
		unit, ok := get(triple[0])
		if !ok || class == "Correction" || !plainNumber.MatchString(unit) {
			continue
		}
		quantity, ok1 := numbers[triple[1]]
		cost, ok2 := numbers[triple[2]]
		if price := decimal.RequireFromString(unit); ok1 && ok2 && !price.Mul(quantity).Equal(cost) {
			c.found(triple[0]+" × "+triple[1]+" = "+triple[2], at(fmt.Sprintf("%s × %s is not %s", price, quantity, cost)))
		}
	}
	if class == "Correction" && dates["ChargePeriodStart"].Compare(dates["BillingPeriodStart"]) >= 0 {
		c.found("a correction is of an earlier billing period", at(dates["ChargePeriodStart"].Format(time.RFC3339)))
	}
	for _, pair := range [][2]string{{"ServiceName", "ServiceCategory"}, {"ServiceName", "ServiceSubcategory"}, {"SkuPriceId", "SkuId"}} {
		name, ok := get(pair[0])
		of, ok2 := get(pair[1])
		if !ok || !ok2 {
			continue
		}
		rule := "one " + pair[0] + " has one " + pair[1]
		if c.one[rule] == nil {
			c.one[rule] = map[string]string{}
		}
		if before, seen := c.one[rule][name]; seen && before != of {
			c.found(rule, at(name+" has "+before+" and "+of))
		} else if len(c.one[rule]) < cacheLimit {
			c.one[rule][name] = of
		}
	}
	if tags, ok := get("Tags"); ok {
		if err := flatObject(tags); err != nil {
			c.found("Tags is a flat JSON object", at(err.Error()))
		}
	}
	if invoice, ok := get("InvoiceId"); ok && len(c.invoices) < 16*cacheLimit {
		c.invoices[invoice] = true
	}
	c.totals[currency] = c.totals[currency].Add(numbers["BilledCost"])
}

// flatObject says whether a text is a JSON object without repeated keys,
// objects or lists in it.
func flatObject(text string) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	if t, err := decoder.Token(); err != nil || t != json.Delim('{') {
		return errors.New("no object")
	}
	seen := map[string]bool{}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return err
		}
		if name := fmt.Sprint(key); seen[name] {
			return fmt.Errorf("key %q is there twice", name)
		} else {
			seen[name] = true
		}
		value, err := decoder.Token()
		if err != nil {
			return err
		}
		if _, nested := value.(json.Delim); nested {
			return fmt.Errorf("the value of %q is nested", key)
		}
	}
	if _, err := decoder.Token(); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("more than one object")
	}
	return nil
}

func (c *focusChecker) readCSV(ctx context.Context, path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	reader := csv.NewReader(in)
	reader.ReuseRecord = true
	header, err := reader.Read()
	if err != nil {
		return err
	}
	index := map[string]int{}
	for i, name := range header {
		index[name] = i
	}
	c.header(slices.Clone(header))
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		record, err := reader.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		c.row(func(column string) (string, bool) {
			i, ok := index[column]
			if !ok || record[i] == "" { // CSV has no other null
				return "", false
			}
			return strings.TrimPrefix(record[i], "'"), true
		})
	}
}

func (c *focusChecker) readParquet(ctx context.Context, path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	parquetReader, err := file.NewParquetReader(in)
	if err != nil {
		return err
	}
	defer parquetReader.Close()
	reader, err := pqarrow.NewFileReader(parquetReader, pqarrow.ArrowReadProperties{BatchSize: 1 << 13}, memory.DefaultAllocator)
	if err != nil {
		return err
	}
	records, err := reader.GetRecordReader(ctx, nil, nil)
	if err != nil {
		return err
	}
	defer records.Release()
	index := map[string]int{}
	var columns []string
	for i, f := range records.Schema().Fields() {
		index[f.Name] = i
		columns = append(columns, f.Name)
		if slices.Contains(focusDates, f.Name) && f.Type.ID() != arrow.TIMESTAMP {
			c.found("dates are timestamps", f.Name+" is "+f.Type.String())
		}
		if slices.Contains(focusDecimals, f.Name) && f.Type.ID() != arrow.DECIMAL128 {
			c.found("numbers are decimals", f.Name+" is "+f.Type.String())
		}
	}
	c.header(columns)
	for records.Next() {
		record := records.Record()
		for row := range int(record.NumRows()) {
			c.row(func(column string) (string, bool) {
				i, ok := index[column]
				if !ok || record.Column(i).IsNull(row) {
					return "", false
				}
				return cellText(record.Column(i), row), true
			})
		}
	}
	if err := records.Err(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// cellText writes a value the way CSV has it; Arrow's own text of a decimal has
// exponents.
func cellText(column arrow.Array, row int) string {
	switch a := column.(type) {
	case *array.Decimal128:
		return decimal.NewFromBigInt(a.Value(row).BigInt(), -a.DataType().(*arrow.Decimal128Type).Scale).String()
	case *array.Timestamp:
		return a.Value(row).ToTime(a.DataType().(*arrow.TimestampType).Unit).UTC().Format("2006-01-02T15:04:05Z")
	}
	return column.ValueStr(row)
}
