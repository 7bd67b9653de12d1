package exporter

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"
)

const focusDataset = "focus"

// FocusVersions lists the versions of FOCUS that can be written. Both have the
// same columns: all that 1.2 demands, which the public validator checks, and
// those that 1.3 added. They differ in what the metadata says.
func FocusVersions() []string { return []string{"1.2", "1.3"} }

// focusFields are the columns of FOCUS in alphabetical order, then ours.
//
// FOCUS asks that unit price × PricingQuantity is the cost to the last digit. A
// rated line's price can be a·quantity + b between thresholds, or be rounded at
// its 18th digit: such a charge is priced as a whole, PricingQuantity 1 of the
// unit Charges, and ConsumedQuantity has what was metered. There is one price
// for each charge (a project's own rules are no discount on a list), so List
// and Contracted are the same. A line of negative price is a Credit, since a
// unit price must not be negative.
var focusFields = []Field{
	{Name: "BilledCost", Kind: Decimal, Unit: "BillingCurrency", Doc: "what is charged"},
	{Name: "BillingAccountId", Kind: String, Doc: "domain of the project, else the project"},
	{Name: "BillingAccountName", Kind: String, Nullable: true, Doc: "name of the billing account"},
	{Name: "BillingCurrency", Kind: String, Doc: "ISO 4217"},
	{Name: "BillingPeriodEnd", Kind: Timestamp, Doc: "end of the month, exclusive"},
	{Name: "BillingPeriodStart", Kind: Timestamp, Doc: "begin of the month"},
	{Name: "ChargeCategory", Kind: String, Doc: "Usage; Credit for a line of negative price; Adjustment for the rounding of an invoice"},
	{Name: "ChargeClass", Kind: String, Nullable: true, Doc: "Correction for a closed month's correction"},
	{Name: "ChargeDescription", Kind: String, Nullable: true, Doc: "metric and resource, or what a discount, minimum or maximum is"},
	{Name: "ChargeFrequency", Kind: String, Doc: "Usage-Based; One-Time for adjustments"},
	{Name: "ChargePeriodEnd", Kind: Timestamp, Doc: "end of the rated period, exclusive"},
	{Name: "ChargePeriodStart", Kind: Timestamp, Doc: "begin of the rated period"},
	{Name: "ConsumedQuantity", Kind: Decimal, Nullable: true, Unit: "ConsumedUnit", Doc: "metered quantity; null unless ChargeCategory is Usage"},
	{Name: "ConsumedUnit", Kind: String, Nullable: true, Doc: "unit of ConsumedQuantity"},
	{Name: "ContractedCost", Kind: Decimal, Unit: "BillingCurrency", Doc: "as BilledCost: the project's own rules are applied already"},
	{Name: "ContractedUnitPrice", Kind: Decimal, Nullable: true, Unit: "BillingCurrency per PricingUnit", Doc: "as ListUnitPrice"},
	{Name: "EffectiveCost", Kind: Decimal, Unit: "BillingCurrency", Doc: "as BilledCost: there are no commitments"},
	{Name: "HostProviderName", Kind: String, Doc: "operator of the cloud"},
	{Name: "InvoiceDetailId", Kind: String, Nullable: true, Doc: "position on the statement; null while the month is open"},
	{Name: "InvoiceId", Kind: String, Nullable: true, Doc: "statement_id of the dataset statement; null while the month is open"},
	{Name: "InvoiceIssuerName", Kind: String, Doc: "operator of the cloud"},
	{Name: "ListCost", Kind: Decimal, Unit: "BillingCurrency", Doc: "as BilledCost"},
	{Name: "ListUnitPrice", Kind: Decimal, Nullable: true, Unit: "BillingCurrency per PricingUnit", Doc: "times PricingQuantity it is the cost to the last digit; null on corrections, credits and adjustments"},
	{Name: "PricingCategory", Kind: String, Nullable: true, Doc: "Standard"},
	{Name: "PricingQuantity", Kind: Decimal, Nullable: true, Unit: "PricingUnit", Doc: "metered quantity, or 1 where the charge is priced as a whole"},
	{Name: "PricingUnit", Kind: String, Nullable: true, Doc: "unit of PricingQuantity; Charges where the charge is priced as a whole"},
	{Name: "ProviderName", Kind: String, Doc: "operator of the cloud; deprecated since 1.3"},
	{Name: "PublisherName", Kind: String, Doc: "operator of the cloud; deprecated since 1.3"},
	{Name: "RegionId", Kind: String, Nullable: true, Doc: "region; null on adjustments"},
	{Name: "RegionName", Kind: String, Nullable: true, Doc: "region"},
	{Name: "ResourceId", Kind: String, Nullable: true, Doc: "instance, port or disk; null on adjustments"},
	{Name: "ResourceName", Kind: String, Nullable: true, Doc: "name at the time of the charge"},
	{Name: "ResourceType", Kind: String, Nullable: true, Doc: "Instance, Disk, Port or Resource"},
	{Name: "ServiceCategory", Kind: String, Doc: "Compute, Storage, Networking or Other"},
	{Name: "ServiceName", Kind: String, Doc: "one per category"},
	{Name: "ServiceProviderName", Kind: String, Doc: "operator of the cloud"},
	{Name: "ServiceSubcategory", Kind: String, Doc: "one per service"},
	{Name: "SkuId", Kind: String, Nullable: true, Doc: "flavor, else metric"},
	{Name: "SkuMeter", Kind: String, Nullable: true, Doc: "metric"},
	{Name: "SkuPriceId", Kind: String, Nullable: true, Doc: "UUIDv5 of SkuId and x_RuleId; null on adjustments"},
	{Name: "SubAccountId", Kind: String, Doc: "project"},
	{Name: "SubAccountName", Kind: String, Nullable: true, Doc: "name of the project"},
	{Name: "SubAccountType", Kind: String, Doc: "Project"},
	{Name: "Tags", Kind: JSON, Nullable: true, Doc: "attributes in force, without those that have a column of their own"},
	{Name: "x_CorrectsLineId", Kind: String, Nullable: true, Doc: "x_LineId that a correction corrects"},
	{Name: "x_LineId", Kind: String, Doc: "UUIDv5 of the line's key", unique: true},
	{Name: "x_RuleId", Kind: String, Doc: "the rule that priced the line"},
}

func focusSchema(version string) Schema {
	return Schema{Dataset: focusDataset, Version: version, Fields: focusFields}
}

// FocusColumn is a column in FOCUS's own metadata.
type FocusColumn struct {
	ColumnName       string
	DataType         string
	NumericPrecision int    `json:",omitempty"`
	NumberScale      int    `json:",omitempty"`
	StringEncoding   string `json:",omitempty"`
	Deprecated       bool   `json:",omitempty"`
}

// FocusMetadata is what FOCUS asks a data generator to say beside the data: the
// schema, and how recent and complete each hour is.
type FocusMetadata struct {
	DataGenerator string
	Schema        struct {
		SchemaId             string //nolint:revive // FOCUS's spelling
		FocusVersion         string
		CreationDate         string
		DataGeneratorVersion string
		ColumnDefinition     []FocusColumn
	}
	DatasetInstance struct {
		DatasetInstanceId   string //nolint:revive // FOCUS's spelling
		DatasetInstanceName string
		FocusDatasetId      string //nolint:revive // FOCUS's spelling
	}
	Recency struct {
		RecencyLastUpdated string
		TimeSectors        []TimeSector
	}
}

// TimeSector says whether an hour is complete: every scope that was rated by
// then has committed it.
type TimeSector struct {
	TimeSectorStart, TimeSectorEnd string
	TimeSectorComplete             bool
	TimeSectorLastUpdated          string `json:",omitempty"` // empty: the month has no commits
}

func focusMetadata(s Schema, m *Manifest, sectors []TimeSector) *FocusMetadata {
	var f FocusMetadata
	created := m.State.CommittedAt.UTC().Format(time.RFC3339)
	f.DataGenerator = "ratebatch"
	f.Schema.SchemaId = s.ID()
	f.Schema.FocusVersion = s.Version
	f.Schema.CreationDate = created
	f.Schema.DataGeneratorVersion = m.Generator.Version
	for _, field := range s.Fields {
		c := FocusColumn{ColumnName: field.Name, DataType: string(field.Kind)}
		switch field.Kind {
		case Decimal:
			c.NumericPrecision, c.NumberScale = Precision, Scale
		case String, JSON:
			c.StringEncoding = "UTF-8"
		case Timestamp, Integer: // nothing more to say of them
		}
		c.Deprecated = s.Version != "1.2" && (field.Name == "ProviderName" || field.Name == "PublisherName")
		f.Schema.ColumnDefinition = append(f.Schema.ColumnDefinition, c)
	}
	f.DatasetInstance.DatasetInstanceId = uuid.NewSHA1(namespace, []byte("focus "+m.Month)).String()
	f.DatasetInstance.DatasetInstanceName = "Cost and Usage " + m.Month
	f.DatasetInstance.FocusDatasetId = "CostAndUsage"
	f.Recency.RecencyLastUpdated = created
	f.Recency.TimeSectors = sectors
	return &f
}

// service says where a metric stands in FOCUS's catalogue. One name has one
// category and one subcategory.
type service struct{ category, name, subcategory, resource string }

func serviceOf(metric string) service {
	first, _, _ := strings.Cut(metric, ".")
	switch {
	case slices.Contains([]string{"instance", "vcpu", "memory", "cpu", "ram"}, first):
		return service{"Compute", "Virtual Machines", "Virtual Machines", "Instance"}
	case slices.Contains([]string{"disk", "volume", "snapshot"}, first):
		return service{"Storage", "Block Storage", "Block Storage", "Disk"}
	case slices.Contains([]string{"network", "port", "floatingip", "ip", "router"}, first):
		return service{"Networking", "Network", "Network Infrastructure", "Port"}
	}
	return service{"Other", "Other Services", "Other (Other)", "Resource"}
}

// focusUnit writes a unit as FOCUS does: its own abbreviations as they are,
// counts capitalised and in the plural.
func focusUnit(unit string) string {
	switch unit {
	case "":
		return "Units"
	case "B":
		return "Bytes"
	case "instance", "vcpu", "request", "byte", "second", "port", "disk", "unit":
		unit += "s"
	case "KB", "MB", "GB", "TB", "PB", "KiB", "MiB", "GiB", "TiB", "PiB":
		return unit
	}
	if unit == "vcpus" {
		return "VCPUs"
	}
	if unit[0] >= utf8.RuneSelf {
		return unit // µs is a symbol, and another letter in capitals
	}
	return strings.ToUpper(unit[:1]) + unit[1:]
}

// ScopeName is what people call a scope.
type ScopeName struct{ Name, Domain string }

// focusSink writes priced lines as rows of FOCUS; lines in a bucket carry no
// charge and are left to the dataset lines.
type focusSink struct {
	out         *output
	table       *table
	operator    string
	names       map[string]ScopeName
	date        time.Time // of the month, as statements are named by
	month, over time.Time
	closed      bool
	attributes  map[string]focusAttributes
	units       map[string]string
	prices      map[[32]byte]unitPrice
	invoices    map[[2]string]string
	skuPrices   map[[2]string]string
}

type focusAttributes struct{ flavor, name, tags string }

type unitPrice struct {
	word [16]byte
	ok   bool
}

func newFocusSink(out *output, e *export) *focusSink {
	return &focusSink{out: out, table: newTable(out.schema), operator: e.Operator, names: e.names, date: e.Month, month: e.month().From, over: e.month().To, closed: e.closed,
		attributes: map[string]focusAttributes{}, units: map[string]string{}, prices: map[[32]byte]unitPrice{}, invoices: map[[2]string]string{}, skuPrices: map[[2]string]string{}}
}

// cacheLimit bounds each of the sink's memories of what it has worked out.
const cacheLimit = 1 << 16

func remember[K comparable, V any](cache map[K]V, key K, make func() V) V {
	v, ok := cache[key]
	if !ok {
		if len(cache) >= cacheLimit {
			clear(cache)
		}
		v = make()
		cache[key] = v
	}
	return v
}

// attributesOf splits attributes into what has a column and the tags.
func attributesOf(text string) focusAttributes {
	var all map[string]string
	if json.Unmarshal([]byte(text), &all) != nil {
		return focusAttributes{tags: text}
	}
	a := focusAttributes{flavor: all["flavor_name"], name: all["instance_name"]}
	delete(all, "flavor_name")
	delete(all, "instance_name")
	if len(all) > 0 {
		tags := []byte{'{'}
		for i, name := range sortedNames(all) {
			if i > 0 {
				tags = append(tags, ',')
			}
			tags = append(appendQuoted(tags, name), ':')
			tags = appendQuoted(tags, all[name])
		}
		a.tags = string(append(tags, '}'))
	}
	return a
}

// SkuPriceID names the price of a SKU by a rule. A rule's name stays when its
// cost changes, and so does the id, as FOCUS demands.
func SkuPriceID(sku, rule string) uuid.UUID {
	name := appendQuoted([]byte("[\"sku-price\","), sku)
	return uuid.NewSHA1(namespace, append(appendQuoted(append(name, ','), rule), ']'))
}

// exactUnitPrice divides price by quantity where the quotient has at most 18
// digits after the point, so that it multiplies back to the price.
func exactUnitPrice(quantity, price []byte) unitPrice {
	q, p := decimalOf(quantity), decimalOf(price)
	if q.Sign() < 0 || q.IsZero() && !p.IsZero() {
		return unitPrice{}
	}
	unit := decimal.Zero
	if !q.IsZero() {
		unit = p.DivRound(q, Scale)
	}
	if !unit.Mul(q).Equal(p) {
		return unitPrice{}
	}
	word, ok := wordOf(unit)
	return unitPrice{word, ok}
}

// one is the PricingQuantity of a charge that is priced as a whole.
var one, _ = wordOf(decimal.New(1, 0))

func (s *focusSink) add(t *table) error {
	for row := range t.rows {
		if bucket, _ := t.cols[outBucket].word(row); len(bucket) > 0 {
			continue
		}
		s.row(t, row)
		if s.table.rows == rowsPerGroup {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *focusSink) flush() error {
	err := s.out.write(s.table)
	s.table.reset()
	return err
}

func (s *focusSink) end() error {
	if err := s.flush(); err != nil {
		return err
	}
	return s.out.end()
}

func (s *focusSink) row(t *table, row int) {
	at := 0
	next := func() *column { at++; return &s.table.cols[at-1] }
	put := func(text string) { next().putWord([]byte(text)) }
	optional := func(text string) { putOptional(next(), text) }
	word := func(out int) []byte { w, _ := t.cols[out].word(row); return w }

	quantity, price := word(outQuantity), word(outPrice)
	scope, metric, currency := text(t, outScope, row), text(t, outMetric, row), text(t, outCurrency, row)
	name := s.names[scope]
	service := serviceOf(metric)
	attributes := remember(s.attributes, text(t, outAttributes, row), func() focusAttributes { return attributesOf(text(t, outAttributes, row)) })
	unit := remember(s.units, text(t, outUnit, row), func() string { return focusUnit(text(t, outUnit, row)) })
	correction := isCorrection(t, row)
	invoice, detail := "", ""
	if s.closed {
		invoice = remember(s.invoices, [2]string{scope, currency}, func() string { return StatementID(s.date, scope, currency).String() })
		detail = metric + "/" + text(t, outRule, row)
	}

	category := "Usage"
	if !correction && price[0] >= 0x80 { // big-endian: the first bit is the sign
		category = "Credit"
	}
	pricingQuantity, pricingUnit := quantity, unit
	var listPrice []byte
	if !correction && category == "Usage" {
		var key [32]byte
		copy(key[:16], quantity)
		copy(key[16:], price)
		if u := remember(s.prices, key, func() unitPrice { return exactUnitPrice(quantity, price) }); u.ok {
			listPrice = u.word[:]
		} else {
			pricingQuantity, pricingUnit, listPrice = one[:], "Charges", price
		}
	}
	putPrice := func() {
		if listPrice == nil {
			next().putNull()
		} else {
			next().putWord(listPrice)
		}
	}

	next().put(price) // BilledCost
	account := name.Domain
	if account == "" {
		account = scope
	}
	put(account)
	next().putNull() // BillingAccountName: domains are known by id only
	put(currency)
	putTime(next(), s.over)
	putTime(next(), s.month)
	put(category)
	if correction {
		put("Correction")
	} else {
		next().putNull()
	}
	if derivedOrder(metric) > 0 { // of no resource
		put(chargeName(metric))
	} else {
		put(metric + " of " + text(t, outResource, row))
	}
	put("Usage-Based")
	next().putWord(word(outEnd))
	next().putWord(word(outBegin))
	if category == "Usage" {
		next().putWord(quantity) // ConsumedQuantity
		put(unit)
	} else {
		next().putNull()
		next().putNull()
	}
	next().put(price) // ContractedCost
	putPrice()
	next().put(price) // EffectiveCost
	put(s.operator)
	optional(detail)
	optional(invoice)
	put(s.operator)
	next().put(price) // ListCost
	putPrice()
	put("Standard")
	next().putWord(pricingQuantity)
	put(pricingUnit)
	put(s.operator)
	put(s.operator)
	next().putWord(word(outRegion))
	next().putWord(word(outRegion))
	next().putWord(word(outResource))
	optional(attributes.name)
	put(service.resource)
	put(service.category)
	put(service.name)
	put(s.operator)
	put(service.subcategory)
	sku := metric
	if attributes.flavor != "" && service.category == "Compute" {
		sku = attributes.flavor
	}
	put(sku)
	put(metric)
	rule := text(t, outRule, row)
	put(remember(s.skuPrices, [2]string{sku, rule}, func() string { return SkuPriceID(sku, rule).String() }))
	next().putWord(word(outScope))
	optional(name.Name)
	put("Project")
	optional(attributes.tags)
	if correction {
		next().putWord(word(outCorrects))
	} else {
		next().putNull()
	}
	next().put(word(outID))
	next().putWord(word(outRule))
	if at != len(s.table.cols) {
		panic(fmt.Sprintf("focus row of %d columns, not %d", at, len(s.table.cols)))
	}
	s.table.rows++
}

// adjust writes the row that makes the charges of an invoice add up to what is
// payable: the statement's total is rounded, its charges are not.
func (s *focusSink) adjust(scope, currency string, amount decimal.Decimal) error {
	word, ok := wordOf(amount)
	if !ok {
		return overflowError{amount}
	}
	name := s.names[scope]
	account := name.Domain
	if account == "" {
		account = scope
	}
	invoice := StatementID(s.date, scope, currency)
	values := map[string]string{"BillingAccountId": account, "BillingCurrency": currency, "ChargeCategory": "Adjustment", "ChargeDescription": "Rounding of the statement",
		"ChargeFrequency": "One-Time", "InvoiceDetailId": "rounding", "InvoiceId": invoice.String(), "PricingCategory": "Standard",
		"ServiceCategory": "Other", "ServiceName": "Rounding", "ServiceSubcategory": "Other (Other)", "SubAccountId": scope, "SubAccountName": name.Name, "SubAccountType": "Project",
		"x_LineId": uuid.NewSHA1(invoice, []byte("rounding")).String(), "x_RuleId": "rounding"}
	for i, f := range s.table.schema.Fields {
		c := &s.table.cols[i]
		switch f.Name {
		case "BilledCost", "ContractedCost", "EffectiveCost", "ListCost":
			c.put(word[:])
		case "BillingPeriodStart", "ChargePeriodStart":
			putTime(c, s.month)
		case "BillingPeriodEnd", "ChargePeriodEnd":
			putTime(c, s.over)
		case "HostProviderName", "InvoiceIssuerName", "ProviderName", "PublisherName", "ServiceProviderName":
			c.putWord([]byte(s.operator))
		default:
			if text, ok := values[f.Name]; ok && text != "" {
				c.put([]byte(text))
			} else {
				c.putNull()
			}
		}
	}
	s.table.rows++
	return nil
}

// writeAdjustments adds the rounding of a closed month's invoices to a FOCUS
// delivery. An open month has no invoices yet.
func (e *export) writeAdjustments(ctx context.Context, m *Manifest) error {
	totals, err := e.Store.ExportScopeTotals(ctx, e.window)
	if err != nil {
		return err
	}
	exact := map[scopeCurrency]decimal.Decimal{}
	for _, t := range totals {
		exact[scopeCurrency{t.Scope, t.Currency}] = t.Total
	}
	for _, c := range e.corrections {
		for _, t := range c.totals {
			key := scopeCurrency{t.Scope, t.Currency}
			exact[key] = exact[key].Add(t.Total)
		}
	}
	keys := slices.SortedFunc(maps.Keys(exact), func(a, b scopeCurrency) int {
		return cmp.Or(cmp.Compare(a.scope, b.scope), cmp.Compare(a.currency, b.currency))
	})
	p := part{path: "rounding." + e.Format}
	if e.Partition == ByDay {
		day := e.Month.Format("2006-01-02")
		p.path, p.partition = "day="+day+"/"+p.path, map[string]string{"day": day}
	}
	parts := map[string]*focusSink{}
	var order []*focusSink
	sums := map[string]decimal.Decimal{}
	for _, key := range keys {
		amount := exact[key].RoundBank(e.RoundTo).Sub(exact[key])
		if amount.IsZero() {
			continue
		}
		of := p
		if e.Partition == ByScope {
			of.path, of.partition = scopeFolder(key.scope)+p.path, map[string]string{"scope": key.scope}
		}
		sink := parts[of.path]
		if sink == nil {
			if len(order) > 0 { // scopes come in order: the file before is finished
				if err := e.endAdjustments(m, order[len(order)-1]); err != nil {
					return err
				}
			}
			out := &output{e: e, ctx: ctx, schema: e.schema(), path: e.prefix + of.path, partition: of.partition}
			defer out.abort()
			sink = newFocusSink(out, e)
			parts[of.path] = sink
			order = append(order, sink)
		}
		if err := sink.adjust(key.scope, key.currency, amount); err != nil {
			return err
		}
		if sink.table.rows == rowsPerGroup {
			if err := sink.flush(); err != nil {
				return err
			}
		}
		sums[key.currency] = sums[key.currency].Add(amount)
	}
	if len(order) > 0 {
		if err := e.endAdjustments(m, order[len(order)-1]); err != nil {
			return err
		}
	}
	for currency, sum := range sums {
		before, err := decimal.NewFromString(m.Totals[currency])
		if err != nil {
			return err
		}
		m.Totals[currency] = before.Add(sum).String()
	}
	return nil
}

func (e *export) endAdjustments(m *Manifest, sink *focusSink) error {
	if err := sink.end(); err != nil {
		return err
	}
	for _, f := range sink.out.files {
		m.Files = append(m.Files, f)
		m.Rows += f.Rows
	}
	return nil
}
