package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// Note is something that an import changed or left out.
type Note struct {
	What string `json:"what"` // the rule or list it is about; empty: the whole import
	Text string `json:"text"`
	Lost bool   `json:"lost"` // it is not in the plan
}

// String is the note on one line.
func (n Note) String() string {
	text := n.Text
	if n.What != "" {
		text = n.What + ": " + text
	}
	if n.Lost {
		text = "not carried over: " + text
	}
	return text
}

// FromCloudKitty makes a plan of CloudKitty's hashmap rules, as its API or its
// command-line client print them in JSON: {"services": [...]} and so on, one
// object with all lists, or the client's lists, in any number of documents
// and in any order. What was changed on the way or could not be carried over
// is in the notes, one each; nothing is dropped silently.
//
// Costs that were typed into CloudKitty's client have a binary tail (0.42 is
// stored as 0.4199999999999999844568776552); it is rounded away, and noted.
func FromCloudKitty(docs ...[]byte) (*Plan, []Note, error) {
	im := &importer{services: map[string]int{}, fields: map[string][2]int{}, groups: map[string]string{}, seen: map[string]string{}, ignored: map[string]int{}}
	for i, doc := range docs {
		if err := im.read(doc); err != nil {
			return nil, nil, fmt.Errorf("document %d: %w", i+1, err)
		}
	}
	if len(im.lists["service"])+len(im.lists["mapping"])+len(im.lists["threshold"]) == 0 {
		return nil, nil, errors.New("no services, mappings or thresholds in it")
	}
	im.plan.Version = 1
	im.parents()
	im.rules()
	im.replaceOverlapped()
	im.summary()
	im.plan.assignIDs()
	return &im.plan, im.notes, nil
}

type importer struct {
	plan     Plan
	notes    []Note
	lists    map[string][]object // by kind
	services map[string]int      // id -> index
	fields   map[string][2]int   // id -> indices of service and field
	groups   map[string]string   // id -> name
	seen     map[string]string   // id -> content, to notice repeated listings
	ignored  map[string]int      // keys that a plan has no place for
	client   bool                // the client's lists, which have no dates
	dated    bool
}

// object is one rule or parent; the client's "Service ID" is service_id here.
type object map[string]any

func (im *importer) note(what, format string, args ...any) {
	im.notes = append(im.notes, Note{What: what, Text: fmt.Sprintf(format, args...)})
}

func (im *importer) lost(what, format string, args ...any) {
	im.notes = append(im.notes, Note{What: what, Text: fmt.Sprintf(format, args...), Lost: true})
}

// read takes a document apart, which may be several JSON values in a row.
func (im *importer) read(doc []byte) error {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	for {
		var v any
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("at byte %d: %w", d.InputOffset(), err)
		}
		switch v := v.(type) {
		case []any:
			err = im.list("", v)
		case map[string]any:
			err = im.answer(v)
		default:
			err = fmt.Errorf("expected an object or a list, found %v", v)
		}
		if err != nil {
			return err
		}
	}
}

// answer reads an object: lists by name, or a single rule.
func (im *importer) answer(v map[string]any) error {
	if kindOf(normalKeys(v)) != "" {
		return im.list("", []any{v})
	}
	for _, key := range slices.Sorted(maps.Keys(v)) {
		items, ok := v[key].([]any)
		kind, known := map[string]string{"services": "service", "groups": "group", "fields": "field", "mappings": "mapping", "thresholds": "threshold"}[key]
		switch {
		case key == "scripts" && ok:
			for range items {
				im.lost("Python script", "write it as an expression rule")
			}
		case !known || !ok:
			im.lost("key "+ratebatch.Quote(key), "no list of hashmap rules")
		default:
			if err := im.list(kind, items); err != nil {
				return err
			}
		}
	}
	return nil
}

func normalKeys(v map[string]any) object {
	o := make(object, len(v))
	for k, x := range v {
		o[strings.ReplaceAll(strings.ToLower(k), " ", "_")] = x
	}
	return o
}

// kindOf tells what an object is by the id it carries.
func kindOf(o object) string {
	for _, kind := range []string{"mapping", "threshold", "field", "service", "group"} {
		if _, ok := o[kind+"_id"]; ok {
			return kind
		}
	}
	return ""
}

func (im *importer) list(kind string, items []any) error {
	for i, item := range items {
		v, ok := item.(map[string]any)
		if !ok {
			return fmt.Errorf("item %d of a list is no object", i+1)
		}
		for k := range v {
			im.client = im.client || k == "Mapping ID"
		}
		o := normalKeys(v)
		k := kindOf(o)
		if k == "" || kind != "" && k != kind {
			return fmt.Errorf("item %d of a list is no %s: it has %s", i+1, cmpOr(kind, "hashmap object"), strings.Join(slices.Sorted(maps.Keys(v)), ", "))
		}
		if im.repeated(k, o) {
			continue
		}
		if im.lists == nil {
			im.lists = map[string][]object{}
		}
		im.lists[k] = append(im.lists[k], o)
	}
	return nil
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// repeated says whether the object was listed before, as happens when rules
// are listed by parent and by group.
func (im *importer) repeated(kind string, o object) bool {
	id := kind + " " + o.text(kind+"_id")
	content := fmt.Sprint(map[string]any(o)) // fmt sorts the keys
	before, ok := im.seen[id]
	if !ok {
		im.seen[id] = content
		return false
	}
	if before != content {
		im.lost(id, "it is listed twice, differently; the first is kept")
	}
	return true
}

func (o object) text(key string) string {
	switch v := o[key].(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return ""
}

// unused counts the keys that hold something and are not used.
func (im *importer) unused(kind string, o object, used ...string) {
	for k, v := range o {
		if v == nil || v == "" || v == false || slices.Contains(used, k) {
			continue
		}
		im.ignored[kind+" "+k]++
	}
}

func (im *importer) parents() {
	for _, o := range im.lists["group"] {
		name := o.text("name")
		if name == "" {
			name = cmpOr(o.text("group_id"), "unnamed")
			im.note("group "+name, "it has no name, so its id serves as one")
		}
		im.groups[o.text("group_id")] = name
		if !slices.Contains(im.plan.Groups, name) {
			im.plan.Groups = append(im.plan.Groups, name)
		}
		im.unused("group", o, "group_id", "name")
	}
	for _, o := range im.lists["service"] {
		if o.text("name") == "" {
			im.lost("service "+o.text("service_id"), "it has no name")
			continue
		}
		im.services[o.text("service_id")] = len(im.plan.Services)
		im.plan.Services = append(im.plan.Services, Service{Name: o.text("name")})
		im.unused("service", o, "service_id", "name")
	}
	for _, o := range im.lists["field"] {
		id, name := o.text("field_id"), o.text("name")
		s, ok := im.services[o.text("service_id")]
		if name == "" {
			im.lost("field "+id, "it has no name")
			continue
		}
		if !ok {
			im.lost("field "+name, "its service %s is not listed", ratebatch.Quote(o.text("service_id")))
			continue
		}
		fields := &im.plan.Services[s].Fields
		im.fields[id] = [2]int{s, len(*fields)}
		*fields = append(*fields, Field{Name: name})
		im.unused("field", o, "field_id", "service_id", "name")
	}
}

var ruleKeys = []string{
	"mapping_id", "threshold_id", "field_id", "service_id", "group_id", "tenant_id", "project_id",
	"value", "level", "cost", "type", "start", "end", "description", "name", "deleted", "created_at",
}

func (im *importer) rules() {
	for _, kind := range []string{"mapping", "threshold"} {
		for _, o := range im.lists[kind] {
			im.rule(kind, o)
			im.unused(kind, o, ruleKeys...)
		}
	}
}

func (im *importer) rule(kind string, o object) {
	id := o.text(kind + "_id")
	what := kind + " " + id
	r := Rule{Scope: cmpOr(o.text("tenant_id"), o.text("project_id")), Type: Flat}
	if idPattern.MatchString(id) {
		r.ID = id
	} else {
		im.note(what, "its id is not carried over")
	}
	if v := o["deleted"]; v != nil && v != false && v != "" {
		im.lost(what, "it is deleted in CloudKitty, which forgets deleted rules for the past as well")
		return
	}
	switch t := o.text("type"); t {
	case "", "flat":
	case "rate":
		r.Type = Rate
	default:
		im.lost(what, "unknown type %s", ratebatch.Quote(t))
		return
	}
	var err error
	if r.Cost, err = im.cost(what, o.text("cost")); err != nil {
		im.lost(what, "cost: %s", err)
		return
	}
	if group := o.text("group_id"); group != "" {
		name, ok := im.groups[group]
		if !ok {
			name = group
			im.groups[group] = name
			im.plan.Groups = append(im.plan.Groups, name)
			im.note("group "+group, "it is not listed, so its id serves as its name")
		}
		r.Group = name
	}
	if r.Start, err = im.moment(o.text("start")); err != nil {
		im.lost(what, "start: %s", err)
		return
	}
	if r.End, err = im.moment(o.text("end")); err != nil {
		im.lost(what, "end: %s", err)
		return
	}
	r.Description = strings.Join(slices.DeleteFunc([]string{ownName(o.text("name")), o.text("description")}, func(s string) bool { return s == "" }), ": ")

	var mappings *[]Mapping
	var thresholds *[]Threshold
	if f, ok := im.fields[o.text("field_id")]; ok {
		field := &im.plan.Services[f[0]].Fields[f[1]]
		mappings, thresholds = &field.Mappings, &field.Thresholds
	} else if s, ok := im.services[o.text("service_id")]; ok && o.text("field_id") == "" {
		mappings, thresholds = &im.plan.Services[s].Mappings, &im.plan.Services[s].Thresholds
	} else {
		im.lost(what, "its field %s or service %s is not listed", ratebatch.Quote(o.text("field_id")), ratebatch.Quote(o.text("service_id")))
		return
	}
	if kind == "threshold" {
		if r.Level, err = ParseLevel(o.text("level")); err != nil {
			im.lost(what, "level: %s", err)
			return
		}
		*thresholds = append(*thresholds, Threshold{
			ID: r.ID, Level: r.Level, Cost: r.Cost, Type: r.Type, Group: r.Group, Scope: r.Scope, Start: r.Start, End: r.End, Description: r.Description,
		})
		return
	}
	value := o.text("value")
	if (value != "") != (o.text("field_id") != "") {
		im.lost(what, "a mapping of a field needs a value, one of a service has none")
		return
	}
	*mappings = append(*mappings, Mapping{
		ID: r.ID, Value: value, Cost: r.Cost, Type: r.Type, Group: r.Group, Scope: r.Scope, Start: r.Start, End: r.End, Description: r.Description,
	})
}

func (im *importer) moment(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	im.dated = true
	return ParseTime(strings.TrimSuffix(text, ".000000"))
}

// ownName is a mapping's name, unless it is the random one that CloudKitty
// gives.
func ownName(name string) string {
	if len(name) >= 32 && strings.Trim(name, "0123456789abcdefABCDEF-") == "" {
		return ""
	}
	return name
}

func (im *importer) cost(what, text string) (decimal.Decimal, error) {
	typed, ok := withoutBinaryTail(text)
	if !ok {
		return ParseCost(text)
	}
	d, err := ParseCost(typed)
	if err == nil {
		im.note(what, "cost %s is %s as a binary float: rounded to %s", text, typed, typed)
	}
	return d, err
}

// withoutBinaryTail finds the number that was typed, if the text is that
// number's binary float written out. A float of 53 bits tells 15 digits apart,
// so a number of more digits was not typed into anything that made a float.
func withoutBinaryTail(text string) (string, bool) {
	d, err := ParseNumber(text, CostIntegerDigits, 60)
	if err != nil || d.NumDigits() <= 17 {
		return "", false
	}
	f, _, err := big.ParseFloat(d.String(), 10, 53, big.ToNearestEven)
	if err != nil {
		return "", false
	}
	scale := -d.Exponent()
	written, err := decimal.NewFromString(f.Text('f', int(scale)))
	if err != nil || written.Sub(d).Abs().GreaterThan(decimal.New(1, -scale)) {
		return "", false
	}
	short, err := decimal.NewFromString(f.Text('g', -1))
	if err != nil || Normal(short).NumDigits() > 15 || written.Equal(short) { // 0.999… is not 1 with a tail
		return "", false
	}
	return Normal(short).String(), !short.Equal(d)
}

// replaceOverlapped does what CloudKitty does with two rules in one place: the
// one listed last takes over where it holds. A plan says it outright.
func (im *importer) replaceOverlapped() {
	for i := range im.plan.Services {
		s := &im.plan.Services[i]
		s.Mappings = cutMappings(im, s.Name, "", s.Mappings)
		s.Thresholds = cutThresholds(im, s.Name, "", s.Thresholds)
		for j := range s.Fields {
			f := &s.Fields[j]
			f.Mappings = cutMappings(im, s.Name, f.Name, f.Mappings)
			f.Thresholds = cutThresholds(im, s.Name, f.Name, f.Thresholds)
		}
	}
}

func cutMappings(im *importer, service, field string, in []Mapping) []Mapping {
	var rules []*Rule
	yieldRules(service, field, in, nil, func(r *Rule) bool { rules = append(rules, r); return true })
	var out []Mapping
	im.cut(rules, func(i int, start, end time.Time, part int) {
		m := in[i]
		m.Start, m.End, m.ID = start, end, partID(m.ID, part)
		out = append(out, m)
	})
	return out
}

func cutThresholds(im *importer, service, field string, in []Threshold) []Threshold {
	var rules []*Rule
	yieldRules(service, field, nil, in, func(r *Rule) bool { rules = append(rules, r); return true })
	var out []Threshold
	im.cut(rules, func(i int, start, end time.Time, part int) {
		t := in[i]
		t.Start, t.End, t.ID = start, end, partID(t.ID, part)
		out = append(out, t)
	})
	return out
}

func partID(id string, part int) string {
	if part == 0 || id == "" {
		return id
	}
	return fmt.Sprintf("%s.%d", id, part+1)
}

// cut keeps of each rule the stretches of time in which no later rule of its
// place holds.
func (im *importer) cut(rules []*Rule, keep func(i int, start, end time.Time, part int)) {
	later := map[place][]*Rule{}
	kept := make([][]*Rule, len(rules))
	for i := len(rules) - 1; i >= 0; i-- {
		r := rules[i]
		pl := placeOf(r)
		parts := []*Rule{r}
		for _, l := range later[pl] {
			var next []*Rule
			for _, p := range parts {
				next = append(next, minus(p, l)...)
			}
			parts = next
		}
		kept[i] = parts
		later[pl] = append(later[pl], r)
	}
	for i, parts := range kept {
		r := rules[i]
		whole := len(parts) == 1 && parts[0].Start.Equal(r.Start) && parts[0].End.Equal(r.End)
		switch {
		case len(parts) == 0:
			im.lost(r.String(), "a rule listed later is in the same place and takes over")
		case !whole:
			im.note(r.String(), "cut to the time in which no rule listed later takes over")
		}
		for n, p := range parts {
			keep(i, p.Start, p.End, n)
		}
	}
}

// minus is what is left of a's validity outside b's.
func minus(a, b *Rule) []*Rule {
	if !overlap(a, b) {
		return []*Rule{a}
	}
	var out []*Rule
	if a.Start.Before(b.Start) {
		before := *a
		before.End = b.Start
		out = append(out, &before)
	}
	if !b.End.IsZero() && (a.End.IsZero() || b.End.Before(a.End)) {
		after := *a
		after.Start = b.End
		out = append(out, &after)
	}
	return out
}

func (im *importer) summary() {
	if im.client {
		im.note("", "the client's lists have no start, end and description: rules that are bounded in time, or not yet in force, look like plain ones; import the API's answers to carry them over")
	}
	if im.dated {
		im.note("", "start and end are taken as UTC; CloudKitty compares them with the local time of its processor")
	}
	im.note("", "CloudKitty does not know the currency: write it into the plan")
	for _, k := range slices.Sorted(maps.Keys(im.ignored)) {
		im.lost(k, "%d times; a plan has no place for it", im.ignored[k])
	}
}
