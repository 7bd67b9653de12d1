package cloudkitty

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/jobs/web"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func (s *Server) v2(ctx context.Context, q *request, path string) (answer, error) {
	type way = func(context.Context, *request) (answer, error)
	ways := map[string]way{
		"GET summary": s.summary, "GET dataframes": s.dataframes,
		"GET scope": s.scopes, "PUT scope": s.reset, "POST scope": s.createScope, "PATCH scope": s.patchScope,
		"GET task/reprocesses": s.reprocesses, "POST task/reprocesses": s.reprocess, "POST task/reprocess": s.reprocess, "GET task/reprocess": s.reprocesses,
		"GET rating/modules": s.modules,
	}
	if f := ways[q.Method+" "+path]; f != nil {
		return f(ctx, q)
	}
	if scope, ok := strings.CutPrefix(path, "task/reprocesses/"); ok && q.Method == http.MethodGet && scope != "" {
		q.query["scope_ids"] = []string{scope}
		return s.reprocesses(ctx, q)
	}
	if id, ok := strings.CutPrefix(path, "rating/modules/"); ok && id != "" {
		return s.module(ctx, q, id)
	}
	if path == "dataframes" && q.Method == http.MethodPost {
		return answer{}, &failure{http.StatusMethodNotAllowed, "usage comes from the metering tables: 'ratebatch ingest' or a table that metrics.yaml names"}
	}
	return answer{}, missing("There is nothing at this address.")
}

// number writes an exact decimal as a JSON number.
func number(d decimal.Decimal) json.Number { return json.Number(d.String()) }

// filters reads key:value items; several of one key are an OR.
func (q *request) filters(once bool) (keys, values []string, err error) {
	for _, item := range q.list("filters") {
		key, value, ok := strings.Cut(item, ":")
		if !ok || strings.Contains(value, ":") {
			return nil, nil, bad("filters: %.64q is not key:value", item)
		}
		if once && slices.Contains(keys, key) {
			return nil, nil, bad("filters: %.64s is given twice", key)
		}
		if q.id.Project != "" && isScopeKey(key) {
			continue // a project's own filter is set below
		}
		keys, values = append(keys, key), append(values, value)
	}
	return keys, values, nil
}

func isScopeKey(key string) bool {
	return key == "project_id" || key == "tenant_id" || key == "scope_id"
}

// timeGroups are the parts of the year one can group by, in the billing time zone:
// a month's group is what the month's bill says.
var timeGroups = map[string]string{"time-d": "day_of_the_year", "time-w": "week_of_the_year", "time-m": "month", "time-y": "year"}

func (s *Server) summary(ctx context.Context, q *request) (answer, error) {
	if err := q.known([]string{"begin", "end", "response_format", "custom_fields", "offset", "limit"}, "groupby", "filters"); err != nil {
		return answer{}, err
	}
	form := q.get("response_format")
	if form == "" {
		form = "table"
	}
	if form != "table" && form != "object" {
		return answer{}, bad("response_format: use table or object")
	}
	limit, offset, err := q.page()
	if err != nil {
		return answer{}, err
	}
	from, to, err := q.window(ctx)
	if err != nil {
		return answer{}, err
	}
	groups := q.list("groupby")
	columns := []string{"begin", "end", "qty", "rate"}
	byTime := -1
	for i, g := range groups {
		if long, ok := timeGroups[g]; ok {
			groups[i] = long
		} else if g == "time" {
			byTime = i
			continue
		} else if strings.HasPrefix(g, "time-") {
			return answer{}, bad("Invalid groupby time option. There is no groupby processing for %.64s; use time, time-d, time-w, time-m or time-y", g)
		}
		columns = append(columns, groups[i])
	}
	keys, values, err := q.filters(false)
	if err != nil {
		return answer{}, err
	}
	rows, err := s.sums(ctx, q, from, to, groups, keys, values)
	if err != nil {
		return answer{}, err
	}
	total := len(rows)
	rows = rows[min(offset, total):min(offset+limit, total)]
	table, objects := [][]any{}, []map[string]any{}
	for _, x := range rows {
		begin, end := from, to
		if byTime >= 0 {
			begin, end = x.First, x.Last
		}
		row := []any{iso(begin), iso(end), number(x.Qty), number(x.Price)}
		for i, label := range x.Labels {
			if i != byTime {
				row = append(row, label)
			}
		}
		table = append(table, row)
		object := map[string]any{}
		for i, name := range columns {
			object[name] = row[i]
		}
		objects = append(objects, object)
	}
	if form == "object" {
		return ok(map[string]any{"total": total, "results": objects, "format": "object"})
	}
	if len(rows) == 0 {
		columns = []string{}
	}
	return ok(map[string]any{"total": total, "columns": columns, "results": table, "format": "table"})
}

// sums adds up lines by groups. By project and metric alone the kept sums of
// days are enough.
func (s *Server) sums(ctx context.Context, q *request, from, to time.Time, groups, keys, values []string) ([]store.KittySum, error) {
	simple := func(list []string) bool {
		return !slices.ContainsFunc(list, func(k string) bool { return k != "type" && !isScopeKey(k) })
	}
	if !from.Before(to) {
		return nil, nil
	}
	var parts []store.KittySum
	if simple(groups) && simple(keys) {
		list, err := s.Web.Sums(ctx, q.store, from, to)
		if err != nil {
			return nil, err
		}
		value := func(x web.Sum, key string) string {
			if key == "type" {
				return x.Metric
			}
			return x.Scope
		}
		var currencies []string
		for _, x := range list {
			if q.id.Project != "" && x.Scope != q.id.Project || !matches(keys, values, func(key string) string { return value(x, key) }) {
				continue
			}
			y := store.KittySum{First: from, Last: to, Qty: x.Qty, Price: x.Price, Labels: []string{}}
			for _, g := range groups {
				y.Labels = append(y.Labels, value(x, g))
			}
			parts = append(parts, y)
			if !slices.Contains(currencies, x.Currency) {
				currencies = append(currencies, x.Currency)
			}
		}
		if err := oneCurrency(currencies); err != nil {
			return nil, err
		}
	} else {
		windows, err := q.windows(ctx, from, to, q.id.Project, keys, values)
		if err != nil {
			return nil, err
		}
		zone, err := web.Zone(ctx, q.store)
		if err != nil {
			return nil, err
		}
		for _, w := range windows {
			list, err := q.store.KittySummary(ctx, store.KittyFilter{CostWindow: w, Scope: q.id.Project, Zone: zone, Keys: keys, Values: values}, groups)
			if err != nil {
				return nil, err
			}
			parts = append(parts, list...)
		}
	}
	at := map[string]int{}
	var out []store.KittySum
	for _, x := range parts {
		key := strings.Join(x.Labels, "\x00")
		i, found := at[key]
		if !found {
			at[key] = len(out)
			out = append(out, x)
			continue
		}
		out[i].Qty, out[i].Price = out[i].Qty.Add(x.Qty), out[i].Price.Add(x.Price)
		if x.Last.After(out[i].Last) {
			out[i].Last = x.Last
		}
	}
	slices.SortFunc(out, func(a, b store.KittySum) int { return slices.Compare(a.Labels, b.Labels) })
	return out, nil
}

// windows are the parts of a window whose lines may be shown: they are those of
// their commits and all of one currency. project narrows it, empty: it does not.
func (q *request) windows(ctx context.Context, from, to time.Time, project string, keys, values []string) ([]store.CostWindow, error) {
	windows, err := web.Windows(ctx, q.store, from, to)
	if err != nil {
		return nil, err
	}
	var scopeKeys, scopes []string
	for i, key := range keys {
		if isScopeKey(key) {
			scopeKeys, scopes = append(scopeKeys, key), append(scopes, values[i])
		}
	}
	currencies, err := web.Currencies(ctx, q.store, windows, func(scope string) bool {
		return (project == "" || scope == project) && matches(scopeKeys, scopes, func(string) string { return scope })
	})
	if err != nil {
		return nil, err
	}
	if err := oneCurrency(currencies); err != nil {
		return nil, err
	}
	return windows, web.Agree(ctx, q.store, windows, project)
}

// oneCurrency refuses prices of several currencies: CloudKitty has none, so its
// clients add up whatever an answer holds.
func oneCurrency(currencies []string) error {
	if len(currencies) < 2 {
		return nil
	}
	slices.Sort(currencies)
	return bad("The prices from begin to end are in %s, and an answer cannot say which is which: ask for a window of one currency.", strings.Join(currencies, " and "))
}

// matches says whether every key has one of its values.
func matches(keys, values []string, of func(string) string) bool {
	for _, key := range keys {
		found := false
		for i := range keys {
			found = found || keys[i] == key && values[i] == of(key)
		}
		if !found {
			return false
		}
	}
	return true
}

// point is a line as CloudKitty has it.
type point struct {
	store.KittyFrame
	groupby, metadata map[string]string
}

// maxPoints bounds an answer without paging.
const maxPoints = 100_000

// points reads lines, split into groupby and metadata as the metrics in force
// say.
func (s *Server) points(ctx context.Context, q *request, from, to time.Time, project string, keys, values []string, limit, offset int) ([]point, uint64, error) {
	if !from.Before(to) {
		return nil, 0, nil
	}
	set, err := web.MetricsInForce(ctx, q.store, q.now)
	if err != nil {
		return nil, 0, err
	}
	windows, err := q.windows(ctx, from, to, project, keys, values)
	if err != nil {
		return nil, 0, err
	}
	zone, err := web.Zone(ctx, q.store)
	if err != nil {
		return nil, 0, err
	}
	var out []point
	var total uint64
	for _, w := range windows {
		f := store.KittyFilter{CostWindow: w, Scope: project, Zone: zone, Keys: keys, Values: values}
		take := min(limit-len(out), maxPoints)
		list, n, err := q.store.KittyFrames(ctx, f, max(take, 1), offset)
		if err == nil && n == 0 && offset > 0 { // past its end: the number of rows comes with rows only
			list = nil
			_, n, err = q.store.KittyFrames(ctx, f, 1, 0)
		}
		if err != nil {
			return nil, 0, err
		}
		total += n
		offset = max(0, offset-int(n))
		if take <= 0 {
			list = nil
		}
		for _, x := range list {
			p := point{x, map[string]string{"project_id": x.Scope, "id": x.Resource}, map[string]string{}}
			m, known := set.Get(x.Metric)
			for name, value := range x.Attributes {
				into := p.groupby
				if known && slices.ContainsFunc(m.Metadata, func(a metric.Attribute) bool { return a.Name == name }) {
					into = p.metadata
				}
				into[name] = value
			}
			out = append(out, p)
		}
	}
	return out, total, nil
}

func (s *Server) dataframes(ctx context.Context, q *request) (answer, error) {
	if err := q.known([]string{"begin", "end", "offset", "limit"}, "filters"); err != nil {
		return answer{}, err
	}
	limit, offset, err := q.page()
	if err != nil {
		return answer{}, err
	}
	from, to, err := q.window(ctx)
	if err != nil {
		return answer{}, err
	}
	keys, values, err := q.filters(true)
	if err != nil {
		return answer{}, err
	}
	list, total, err := s.points(ctx, q, from, to, q.id.Project, keys, values, min(limit, maxPoints), offset)
	if err != nil {
		return answer{}, err
	}
	if total == 0 {
		return answer{}, missing("No resource found for provided filters.")
	}
	frames := []any{}
	for i := 0; i < len(list); {
		begin, end, usage := list[i].Begin, list[i].End, map[string][]any{}
		for ; i < len(list) && list[i].Begin.Equal(begin) && list[i].End.Equal(end); i++ {
			x := list[i]
			usage[x.Metric] = append(usage[x.Metric], map[string]any{"vol": map[string]any{"unit": x.Unit, "qty": number(x.Qty)}, "rating": map[string]any{"price": number(x.Price)}, "groupby": x.groupby, "metadata": x.metadata})
		}
		frames = append(frames, map[string]any{"period": map[string]any{"begin": iso(begin), "end": iso(end)}, "usage": usage})
	}
	return ok(map[string]any{"total": total, "dataframes": frames})
}
