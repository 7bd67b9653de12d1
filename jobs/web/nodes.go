package web

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func (s *Server) nodeSeries(ctx context.Context, c *call) (any, error) {
	x, err := c.span("6h")
	if err != nil {
		return nil, err
	}
	if x.tier == store.TierRaw {
		// Agents poll at moments of their own, so only a bucket that holds samples of
		// all instances has a sum of all. The tier has these sums exact, from a fifth
		// of the rows; its newest bucket is up to ten minutes old.
		x.tier, x.step = store.TierFiveMin, 5*time.Minute
		x.from = x.from.Truncate(x.step)
	}
	f, err := c.hostFilter(x.from, x.to)
	if err != nil {
		return nil, err
	}
	disk, port, err := c.store.NodePoints(ctx, x.tier, f)
	if err != nil {
		return nil, err
	}
	if len(disk)+len(port) == 0 { // else it is known
		if err = c.knownHost(ctx, f); err != nil {
			return nil, err
		}
	}
	return x.answer([]panel{newPanel("disk", x, disk, diskMeasures), newPanel("network", x, port, portMeasures)}), nil
}

// hostFilter is the host of the path in a window.
func (c *call) hostFilter(from, to time.Time) (store.UsageFilter, error) {
	f := store.UsageFilter{Region: c.PathValue("region"), Host: c.PathValue("host"), Project: c.id.Project, From: from, To: to}
	if len(f.Region) > maxText || len(f.Host) > maxText {
		return f, notFound("there is no such host")
	}
	return f, nil
}

// knownHost refuses hosts that are not known, or where the project has nothing.
func (c *call) knownHost(ctx context.Context, f store.UsageFilter) error {
	list, _, err := c.store.Hosts(ctx, f.Host, c.id.Project, f.From.Truncate(time.Hour), maxLimit, 0)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list, func(h store.Host) bool { return h.Region == f.Region && h.Host == f.Host }) {
		return notFound("there is no such host")
	}
	return nil
}

// nodeList is a page of hosts.
type nodeList struct {
	Nodes []store.Host `json:"nodes"`
	Total uint64       `json:"total"`
}

// silentAfter is from when on a host without samples is called silent.
const silentAfter = 15 * time.Minute

func (c *call) hosts(ctx context.Context, text string, limit, offset int) (nodeList, error) {
	list, total, err := c.store.Hosts(ctx, text, c.id.Project, c.now.Add(-24*time.Hour).Truncate(time.Hour), limit, offset)
	for i := range list {
		list[i].Silent = c.now.Sub(list[i].LastSample) > silentAfter
	}
	return nodeList{some(list), total}, err
}

func (s *Server) nodes(ctx context.Context, c *call) (any, error) {
	limit, offset, err := c.page()
	if err != nil {
		return nil, err
	}
	return c.hosts(ctx, "", limit, offset)
}

// nodeInstanceList is a page of a host's instances.
type nodeInstanceList struct {
	Begin     time.Time             `json:"begin"`
	End       time.Time             `json:"end"`
	Instances []store.InstanceUsage `json:"instances"`
	Total     int                   `json:"total"`
}

func (s *Server) nodeInstances(ctx context.Context, c *call) (any, error) {
	x, err := c.span("6h")
	if err != nil {
		return nil, err
	}
	order, err := c.oneOf("order", "cpu", "cpu", "memory", "network", "disk", "name")
	if err != nil {
		return nil, err
	}
	limit, offset, err := c.page()
	if err != nil {
		return nil, err
	}
	f, err := c.hostFilter(x.from.Truncate(time.Hour), x.to)
	if err != nil {
		return nil, err
	}
	list, err := c.store.NodeInstances(ctx, f)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		if err = c.knownHost(ctx, f); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(list, func(a, b store.InstanceUsage) int {
		switch order {
		case "cpu":
			return cmp.Compare(value(b.CPUPercent), value(a.CPUPercent))
		case "memory":
			return cmp.Compare(value(b.MemoryBytes), value(a.MemoryBytes))
		case "network":
			return cmp.Compare(b.NetworkBytes, a.NetworkBytes)
		case "disk":
			return cmp.Compare(b.DiskBytes, a.DiskBytes)
		}
		return 0 // they come by name
	})
	names, err := projectNames(ctx, c.store)
	if err != nil {
		return nil, err
	}
	out := nodeInstanceList{Begin: f.From, End: f.To, Instances: cut(list, limit, offset), Total: len(list)}
	for i := range out.Instances {
		out.Instances[i].Instance.ProjectName = names[out.Instances[i].Instance.ProjectID]
	}
	return out, nil
}
