package store

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// Instance is an instance as it was seen last, or one stretch of its history.
// The JSON is that of the web API.
type Instance struct {
	ID          uuid.UUID `json:"id"`
	Name        string    `json:"name"`
	Region      string    `json:"region"`
	ProjectID   string    `json:"project_id"`
	ProjectName string    `json:"project_name"` // filled in by the caller
	UserID      string    `json:"user_id"`
	FlavorName  string    `json:"flavor_name"`
	VCPUs       uint16    `json:"vcpus"`
	ImageID     string    `json:"image_id"`
	Host        string    `json:"host"`
	FirstSeen   time.Time `json:"first_seen"`
	LastSeen    time.Time `json:"last_seen"`
}

func scanInstance(rows driver.Rows) (Instance, error) {
	var x Instance
	err := rows.Scan(&x.Region, &x.ID, &x.Name, &x.ProjectID, &x.UserID, &x.FlavorName, &x.VCPUs, &x.ImageID, &x.FirstSeen, &x.LastSeen)
	x.FirstSeen, x.LastSeen = x.FirstSeen.UTC(), x.LastSeen.UTC()
	return x, err
}

// InstancesByID gives the instances that are known, of one project if it is
// named.
func (s *Store) InstancesByID(ctx context.Context, ids []uuid.UUID, project string) ([]Instance, error) {
	return Collect(ctx, s, "web_instances_by_id", Params{"ids": ids, "project": project}, scanInstance)
}

// SearchInstances finds instances by a part of their name or id, lower case.
func (s *Store) SearchInstances(ctx context.Context, text, project string, limit int) ([]Instance, error) {
	return Collect(ctx, s, "web_search_instances", Params{"text": text, "project": project, "limit": limit}, scanInstance)
}

// InstanceHistory says what an instance was by time, the newest first.
func (s *Store) InstanceHistory(ctx context.Context, id uuid.UUID, project string) ([]Instance, error) {
	return Collect(ctx, s, "web_instance_history", Params{"instance": id, "project": project}, scanInstance)
}

// InstanceHost is the host an instance was on last, while it was a project's if
// one is named; empty if none is known since a moment.
func (s *Store) InstanceHost(ctx context.Context, region string, id uuid.UUID, project string, since time.Time) (string, error) {
	var host string
	err := s.Row(ctx, "web_instance_host", Params{"region": region, "instance": id, "project": project, "from": since.Truncate(time.Second)}, &host)
	return host, err
}

// UsageFilter says whose usage is read, and of which time.
type UsageFilter struct {
	Region   string
	Instance uuid.UUID // or
	Host     string
	Project  string // empty: any
	From, To time.Time

	on []uuid.UUID // the instances of Host
}

func (f UsageFilter) params() Params {
	return Params{"ids": f.on, "region": f.Region, "instance": f.Instance, "host": f.Host, "project": f.Project, "from": f.From, "to": f.To}
}

// Tiers that charts are read from.
const (
	TierRaw     = "raw"
	TierFiveMin = "5min"
	TierHourly  = "hourly"
)

// Point holds the values of one moment: the begin of a bucket, the end of a raw
// sample. A value that nobody observed is nil.
type Point struct {
	Resource string // device or port
	At       time.Time
	Values   []*float64
}

// CPUPoints are CPU (percent, average and greatest) and memory (bytes: actual,
// rss, usable) of an instance.
func (s *Store) CPUPoints(ctx context.Context, tier string, f UsageFilter) ([]Point, error) {
	return s.points(ctx, "web_cpu_"+tier, f, 5, false)
}

// DiskPoints are, per device, bytes read and written and requests read and
// written, a second.
func (s *Store) DiskPoints(ctx context.Context, tier string, f UsageFilter) ([]Point, error) {
	return s.points(ctx, "web_disk_"+tier, f, 4, true)
}

// PortPoints are, per port, bytes received and sent a second.
func (s *Store) PortPoints(ctx context.Context, tier string, f UsageFilter) ([]Point, error) {
	return s.points(ctx, "web_port_"+tier, f, 2, true)
}

// NodePoints are DiskPoints and PortPoints of all instances of a host together,
// of a tier other than raw.
func (s *Store) NodePoints(ctx context.Context, tier string, f UsageFilter) (disk, port []Point, err error) {
	if f.on, err = s.instancesOn(ctx, f); err != nil || len(f.on) == 0 {
		return nil, nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) { disk, err = s.points(ctx, "web_node_disk_"+tier, f, 4, false); return err })
	group.Go(func() (err error) { port, err = s.points(ctx, "web_node_port_"+tier, f, 2, false); return err })
	err = group.Wait()
	return disk, port, err
}

// instancesOn are the instances that were on the host of a filter.
func (s *Store) instancesOn(ctx context.Context, f UsageFilter) ([]uuid.UUID, error) {
	return Collect(ctx, s, "web_node_seen", Params{"region": f.Region, "host": f.Host, "project": f.Project, "from": f.From, "to": f.To}, func(rows driver.Rows) (id uuid.UUID, err error) {
		err = rows.Scan(&id)
		return id, err
	})
}

func (s *Store) points(ctx context.Context, query string, f UsageFilter, values int, resource bool) ([]Point, error) {
	return Collect(ctx, s, query, f.params(), func(rows driver.Rows) (Point, error) {
		p := Point{Values: make([]*float64, values)}
		var dest []any
		if resource {
			dest = append(dest, &p.Resource)
		}
		dest = append(dest, &p.At)
		for i := range p.Values {
			dest = append(dest, &p.Values[i])
		}
		err := rows.Scan(dest...)
		p.At = p.At.UTC()
		return p, err
	})
}

// InstanceUsage is an instance with what it used in a window.
type InstanceUsage struct {
	Instance     Instance `json:"instance"`
	CPUPercent   *float64 `json:"cpu_percent"`
	MemoryBytes  *float64 `json:"memory_bytes"`
	NetworkBytes uint64   `json:"network_bytes"`
	DiskBytes    uint64   `json:"disk_bytes"`
}

// NodeInstances are the instances of a host with their usage of a window of
// whole hours.
func (s *Store) NodeInstances(ctx context.Context, f UsageFilter) ([]InstanceUsage, error) {
	var err error
	if f.on, err = s.instancesOn(ctx, f); err != nil || len(f.on) == 0 {
		return nil, err
	}
	return Collect(ctx, s, "web_node_instances", f.params(), func(rows driver.Rows) (InstanceUsage, error) {
		u := InstanceUsage{Instance: Instance{Region: f.Region, Host: f.Host}}
		x := &u.Instance
		err := rows.Scan(&x.ID, &x.Name, &x.ProjectID, &x.UserID, &x.FlavorName, &x.VCPUs, &x.ImageID, &x.FirstSeen, &x.LastSeen, &u.CPUPercent, &u.MemoryBytes, &u.NetworkBytes, &u.DiskBytes)
		x.FirstSeen, x.LastSeen = x.FirstSeen.UTC(), x.LastSeen.UTC()
		return u, err
	})
}

// TopInstance is one of the instances that use most of something.
type TopInstance struct {
	Region string
	ID     uuid.UUID
	Value  float64 // percent or bytes
}

// TopInstances are the instances that use most of cpu, memory, network or disk
// in a window.
func (s *Store) TopInstances(ctx context.Context, by, project string, from, to time.Time, limit int) ([]TopInstance, error) {
	return Collect(ctx, s, "web_top_"+by, Params{"project": project, "from": from, "to": to, "limit": limit}, func(rows driver.Rows) (TopInstance, error) {
		var x TopInstance
		err := rows.Scan(&x.Region, &x.ID, &x.Value)
		return x, err
	})
}

// Host is a compute node and when it was heard of.
type Host struct {
	Region      string    `json:"region"`
	Host        string    `json:"host"`
	FirstSample time.Time `json:"first_sample"`
	LastSample  time.Time `json:"last_sample"`
	Silent      bool      `json:"silent"` // filled in by the caller
}

// Hosts lists hosts with a text in their name, and how many there are. With a
// project only those that its instances were on since a moment.
func (s *Store) Hosts(ctx context.Context, text, project string, since time.Time, limit, offset int) ([]Host, uint64, error) {
	query, params := "web_hosts", Params{"text": text, "limit": limit, "skip": offset}
	if project != "" {
		query, params["project"], params["from"] = "web_hosts_of_project", project, since
	}
	var total uint64
	list, err := Collect(ctx, s, query, params, func(rows driver.Rows) (Host, error) {
		var x Host
		err := rows.Scan(&x.Region, &x.Host, &x.FirstSample, &x.LastSample, &total)
		x.FirstSample, x.LastSample = x.FirstSample.UTC(), x.LastSample.UTC()
		return x, err
	})
	return list, total, err
}

// Projects are those with usage or commits.
func (s *Store) Projects(ctx context.Context) ([]string, error) {
	return Collect(ctx, s, "web_projects", nil, func(rows driver.Rows) (string, error) {
		var project string
		err := rows.Scan(&project)
		return project, err
	})
}

// NewestSample is when the newest sample of any host ended; 1970 if there is
// none.
func (s *Store) NewestSample(ctx context.Context) (time.Time, error) {
	var at time.Time
	err := s.Row(ctx, "web_newest_sample", nil, &at)
	return at.UTC(), err
}

// HasUsage says whether there is anything to show.
func (s *Store) HasUsage(ctx context.Context) (bool, error) {
	var usage bool
	err := s.Row(ctx, "web_has_usage", nil, &usage)
	return usage, err
}
