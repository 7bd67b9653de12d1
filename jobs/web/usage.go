package web

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// span is a range of charts.
type span struct {
	name     string
	tier     string
	step     time.Duration // of the tier; 0: samples come as they come
	from, to time.Time
}

var spans = map[string]struct {
	length time.Duration
	tier   string
	step   time.Duration
}{
	"6h":  {6 * time.Hour, store.TierRaw, 0},
	"12h": {12 * time.Hour, store.TierFiveMin, 5 * time.Minute},
	"24h": {24 * time.Hour, store.TierFiveMin, 5 * time.Minute},
	"7d":  {7 * 24 * time.Hour, store.TierHourly, time.Hour},
}

// span reads range and end. Without end it is now, to the minute: then answers
// of one minute have one ETag.
func (c *call) span(fallback string) (span, error) {
	name, err := c.oneOf("range", fallback, "6h", "12h", "24h", "7d")
	if err != nil {
		return span{}, err
	}
	end, err := c.moment("end")
	if err != nil {
		return span{}, err
	}
	if end.IsZero() {
		end = c.now.Truncate(time.Minute)
	}
	x := spans[name]
	out := span{name: name, tier: x.tier, step: x.step, from: end.Add(-x.length), to: end}
	if x.step > 0 {
		out.from = out.from.Truncate(x.step)
	}
	return out, nil
}

// seriesAnswer is what charts are drawn from.
type seriesAnswer struct {
	Range  string    `json:"range"`
	Tier   string    `json:"tier"`
	Begin  time.Time `json:"begin"`
	End    time.Time `json:"end"`
	Step   int       `json:"step_seconds"`
	Panels []panel   `json:"panels"`
}

type panel struct {
	Panel  string      `json:"panel"`
	Times  []time.Time `json:"times"`
	Series []series    `json:"series"`
}

type series struct {
	Metric   string     `json:"metric"`
	Resource string     `json:"resource"`
	Unit     string     `json:"unit"`
	Values   []*float64 `json:"values"`
}

// measure is one value of a point.
type measure struct {
	index        int
	metric, unit string
}

var (
	cpuMeasures    = []measure{{0, "cpu_avg", "percent"}, {1, "cpu_max", "percent"}}
	memoryMeasures = []measure{{2, "memory_actual", "bytes"}, {3, "memory_rss", "bytes"}, {4, "memory_usable", "bytes"}}
	diskMeasures   = []measure{{0, "read_bytes", "bytes/s"}, {1, "write_bytes", "bytes/s"}, {2, "read_requests", "requests/s"}, {3, "write_requests", "requests/s"}}
	portMeasures   = []measure{{0, "rx_bytes", "bytes/s"}, {1, "tx_bytes", "bytes/s"}}
)

// newPanel lays points on one axis of times. What nobody observed is nil: a gap
// in the line and no zero.
func newPanel(name string, x span, points []store.Point, measures []measure) panel {
	p := panel{Panel: name, Times: axis(x, points), Series: []series{}}
	at := make(map[int64]int, len(p.Times))
	for i, t := range p.Times {
		at[t.Unix()] = i
	}
	found := map[string]int{} // resource -> its first series
	var names []string
	for _, pt := range points {
		if _, ok := found[pt.Resource]; !ok {
			found[pt.Resource] = 0
			names = append(names, pt.Resource)
		}
	}
	slices.Sort(names)
	for _, resource := range names {
		found[resource] = len(p.Series)
		for _, m := range measures {
			p.Series = append(p.Series, series{m.metric, resource, m.unit, make([]*float64, len(p.Times))})
		}
	}
	for _, pt := range points {
		i, ok := at[pt.At.Unix()]
		if !ok {
			continue
		}
		for n, m := range measures {
			p.Series[found[pt.Resource]+n].Values[i] = pt.Values[m.index]
		}
	}
	return p
}

// axis is every bucket of a tier's span, or the moments of raw samples with one
// more in each gap, so that a line breaks there.
func axis(x span, points []store.Point) []time.Time {
	times := []time.Time{}
	if len(points) == 0 {
		return times
	}
	if x.step > 0 {
		for at := x.from; at.Before(x.to); at = at.Add(x.step) {
			times = append(times, at)
		}
		return times
	}
	seen := map[int64]bool{}
	var all []time.Time
	for _, p := range points {
		if !seen[p.At.Unix()] {
			seen[p.At.Unix()] = true
			all = append(all, p.At)
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	step := usualStep(all)
	for i, t := range all {
		if i > 0 && step > 0 && t.Sub(all[i-1]) > step*5/2 {
			times = append(times, all[i-1].Add(step))
		}
		times = append(times, t)
	}
	return times
}

// usualStep is the median distance of moments.
func usualStep(times []time.Time) time.Duration {
	var steps []time.Duration
	for i := 1; i < len(times); i++ {
		steps = append(steps, times[i].Sub(times[i-1]))
	}
	if len(steps) == 0 {
		return 0
	}
	slices.Sort(steps)
	return steps[len(steps)/2]
}

func (x span) answer(panels []panel) seriesAnswer {
	out := seriesAnswer{Range: x.name, Tier: x.tier, Begin: x.from, End: x.to, Step: int(x.step / time.Second), Panels: panels}
	if x.step == 0 {
		for _, p := range panels {
			out.Step = max(out.Step, int(usualStep(p.Times)/time.Second))
		}
	}
	return out
}

// findInstance is the instance of the path as it was seen last.
func (c *call) findInstance(ctx context.Context) (store.Instance, error) {
	id, err := c.uuid("instance", c.PathValue("instance"))
	if err != nil {
		return store.Instance{}, err
	}
	list, err := c.store.InstancesByID(ctx, []uuid.UUID{id}, c.id.Project)
	if err != nil {
		return store.Instance{}, err
	}
	if len(list) == 0 {
		return store.Instance{}, notFound("there is no such instance")
	}
	// In two regions by chance of a copied cloud: the one seen last.
	return slices.MaxFunc(list, func(a, b store.Instance) int { return a.LastSeen.Compare(b.LastSeen) }), nil
}

// detail is an instance and what it was.
type detail struct {
	Instance store.Instance   `json:"instance"`
	History  []store.Instance `json:"history"`
}

func (s *Server) instance(ctx context.Context, c *call) (any, error) {
	found, err := c.findInstance(ctx)
	if err != nil {
		return nil, err
	}
	out := detail{Instance: found}
	if out.History, err = c.store.InstanceHistory(ctx, found.ID, c.id.Project); err != nil {
		return nil, err
	}
	if out.Instance.Host, err = c.store.InstanceHost(ctx, found.Region, found.ID, c.id.Project, c.now.Add(-7*24*time.Hour).Truncate(time.Hour)); err != nil {
		return nil, err
	}
	names, err := projectNames(ctx, c.store)
	if err != nil {
		return nil, err
	}
	out.Instance.ProjectName = names[found.ProjectID]
	for i := range out.History {
		out.History[i].ProjectName = names[out.History[i].ProjectID]
	}
	return out, nil
}

func (s *Server) instanceSeries(ctx context.Context, c *call) (any, error) {
	x, err := c.span("6h")
	if err != nil {
		return nil, err
	}
	found, err := c.findInstance(ctx)
	if err != nil {
		return nil, err
	}
	f := store.UsageFilter{Region: found.Region, Instance: found.ID, Project: c.id.Project, From: x.from, To: x.to}
	var cpu, disk, port []store.Point
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) { cpu, err = c.store.CPUPoints(ctx, x.tier, f); return err })
	group.Go(func() (err error) { disk, err = c.store.DiskPoints(ctx, x.tier, f); return err })
	group.Go(func() (err error) { port, err = c.store.PortPoints(ctx, x.tier, f); return err })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return x.answer([]panel{newPanel("cpu", x, cpu, cpuMeasures), newPanel("memory", x, cpu, memoryMeasures), newPanel("disk", x, disk, diskMeasures), newPanel("network", x, port, portMeasures)}), nil
}

func value(v *float64) float64 {
	if v == nil {
		return -1
	}
	return *v
}

// some is a list that JSON writes as [] when it is empty.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// cut is one page of a list.
func cut[T any](list []T, limit, offset int) []T {
	offset = min(offset, len(list))
	return some(slices.Clone(list[offset:min(offset+limit, len(list))]))
}

// projectNames are what projects are called, as far as it is known.
func projectNames(ctx context.Context, s *store.Store) (map[string]string, error) {
	states, err := s.ScopeStates(ctx)
	out := make(map[string]string, len(states))
	for id, x := range states {
		out[id] = x.Name
	}
	return out, err
}

// project is a project with its name.
type project struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Domain string `json:"domain"`
	Active bool   `json:"active"`
}

// visible are the projects that the caller sees, by id.
func (c *call) visible(ctx context.Context) ([]project, error) {
	states, err := c.store.ScopeStates(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := c.store.Projects(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string]project{}
	for _, id := range ids {
		known[id] = project{ID: id, Active: true}
	}
	for id, x := range states {
		known[id] = project{id, x.Name, x.Domain, x.Active}
	}
	var out []project
	for id, p := range known {
		if c.id.Project == "" || c.id.Project == id {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b project) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// projectList is a page of projects.
type projectList struct {
	Projects []project `json:"projects"`
	Total    int       `json:"total"`
}

func (s *Server) projects(ctx context.Context, c *call) (any, error) {
	limit, offset, err := c.page()
	if err != nil {
		return nil, err
	}
	list, err := c.visible(ctx)
	return projectList{cut(list, limit, offset), len(list)}, err
}

// found is what a search finds.
type found struct {
	Query     string           `json:"query"`
	Instances []store.Instance `json:"instances"`
	Projects  []project        `json:"projects"`
	Hosts     []store.Host     `json:"hosts"`
}

func (s *Server) search(ctx context.Context, c *call) (any, error) {
	limit, err := c.number("limit", 10, 1, 50)
	if err != nil {
		return nil, err
	}
	q := strings.TrimSpace(c.get("q"))
	if q == "" {
		return nil, badRequest("q is empty", "search for a part of a name or an id")
	}
	text := strings.ToLower(q)
	out := found{Query: q, Projects: []project{}}
	if out.Instances, err = c.store.SearchInstances(ctx, text, c.id.Project, limit); err != nil {
		return nil, err
	}
	out.Instances = some(out.Instances)
	projects, err := c.visible(ctx)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, p := range projects {
		names[p.ID] = p.Name
		if len(out.Projects) < limit && (strings.Contains(strings.ToLower(p.ID), text) || strings.Contains(strings.ToLower(p.Name), text)) {
			out.Projects = append(out.Projects, p)
		}
	}
	for i := range out.Instances {
		out.Instances[i].ProjectName = names[out.Instances[i].ProjectID]
	}
	hosts, err := c.hosts(ctx, text, limit, 0)
	out.Hosts = hosts.Nodes
	return out, err
}

// topList are the instances that use or cost most.
type topList struct {
	By    string    `json:"by"`
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
	Items []topItem `json:"items"`
	// Beside prices: what these hours cost that is of no known instance.
	Others []money `json:"others,omitzero"`
}

type topItem struct {
	Rank     int            `json:"rank"`
	Instance store.Instance `json:"instance"`
	Value    *float64       `json:"value,omitempty"`
	Price    string         `json:"price,omitempty"`
	Unit     string         `json:"unit"`
}

func (s *Server) top(ctx context.Context, c *call) (any, error) {
	by, err := c.oneOf("by", "", "cpu", "memory", "network", "disk", "price")
	if err != nil {
		return nil, err
	}
	limit, err := c.number("limit", 10, 1, maxTop)
	if err != nil {
		return nil, err
	}
	end, err := c.moment("end")
	if err != nil {
		return nil, err
	}
	latest := end.IsZero()
	if latest {
		end = c.now
	}
	out := topList{By: by, Items: []topItem{}}
	var ids []uuid.UUID
	scopes := []string{}
	if by == "price" {
		b, err := readBilling(ctx, c.store)
		if err != nil {
			return nil, err
		}
		prices, err := s.topPrices(ctx, c, b, end, latest)
		if err != nil {
			return nil, err
		}
		out.Begin, out.End, out.Others = prices.from, prices.to, []money{}
		for _, x := range prices.list[:min(limit, len(prices.list))] {
			out.Items = append(out.Items, topItem{Price: x.Price.String(), Unit: x.Currency})
			ids, scopes = append(ids, x.ID), append(scopes, x.Scope)
		}
		for _, currency := range slices.Sorted(maps.Keys(prices.others)) {
			if amount := prices.others[currency]; !amount.IsZero() {
				out.Others = append(out.Others, money{currency, amount})
			}
		}
	} else {
		list, err := s.topUsed(ctx, c, by, end, latest, limit)
		if err != nil {
			return nil, err
		}
		out.Begin, out.End = list.from, list.to
		unit := "bytes"
		if by == "cpu" {
			unit = "percent"
		}
		for _, x := range list.list {
			out.Items = append(out.Items, topItem{Value: &x.Value, Unit: unit})
			ids, scopes = append(ids, x.ID), append(scopes, "")
		}
	}
	instances, err := c.store.InstancesByID(ctx, ids, c.id.Project)
	if err != nil {
		return nil, err
	}
	names, err := projectNames(ctx, c.store)
	if err != nil {
		return nil, err
	}
	known := map[uuid.UUID]store.Instance{}
	for _, x := range instances {
		known[x.ID] = x
	}
	for i := range out.Items {
		x, ok := known[ids[i]]
		if !ok { // its samples came without attributes
			x = store.Instance{ID: ids[i], ProjectID: scopes[i], FirstSeen: out.Begin, LastSeen: out.End}
		}
		if scopes[i] != "" {
			x.ProjectID = scopes[i] // who paid, which may be the one before
		}
		x.ProjectName = names[x.ProjectID]
		out.Items[i].Rank, out.Items[i].Instance = i+1, x
	}
	return out, nil
}
