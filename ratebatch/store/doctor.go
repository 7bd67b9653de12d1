package store

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Disk is one of the server's disks, in bytes.
type Disk struct {
	Name, Path  string
	Free, Total uint64
}

// Disks lists the server's disks that have a size.
func (s *Store) Disks(ctx context.Context) ([]Disk, error) {
	return Collect(ctx, s, "doctor_disks", nil, func(rows driver.Rows) (Disk, error) {
		var d Disk
		err := rows.Scan(&d.Name, &d.Path, &d.Free, &d.Total)
		return d, err
	})
}

// SettingsInForce gives the settings that money rests on.
func (s *Store) SettingsInForce(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	_, err := Collect(ctx, s, "doctor_settings", nil, func(rows driver.Rows) (bool, error) {
		var name, value string
		err := rows.Scan(&name, &value)
		out[name] = value
		return true, err
	})
	return out, err
}

// SilentLease is a claimed lease whose holder does not beat.
type SilentLease struct {
	Name, Holder string
	Silent       time.Duration
}

// SilentLeases lists leases that were claimed, not given back, and not kept
// alive for longer than a time.
func (s *Store) SilentLeases(ctx context.Context, silent time.Duration) ([]SilentLease, error) {
	return Collect(ctx, s, "doctor_leases", Params{"silent": int(silent.Seconds())}, func(rows driver.Rows) (SilentLease, error) {
		var l SilentLease
		var seconds uint64
		err := rows.Scan(&l.Name, &l.Holder, &seconds)
		l.Silent = time.Duration(seconds) * time.Second
		return l, err
	})
}

// OpenRun is a run without an end.
type OpenRun struct {
	Job, RunID, Host string
	Began            time.Time
}

// OpenRuns lists runs that began in [after, before) and never ended.
func (s *Store) OpenRuns(ctx context.Context, after, before time.Time) ([]OpenRun, error) {
	return Collect(ctx, s, "doctor_runs", Params{"after": after, "before": before}, func(rows driver.Rows) (OpenRun, error) {
		var r OpenRun
		err := rows.Scan(&r.Job, &r.RunID, &r.Host, &r.Began)
		return r, err
	})
}

// OffGrid are a scope's commits whose begins are not on the grid of their
// length.
type OffGrid struct {
	Scope       string
	Periods     uint64
	First, Last time.Time // begins of the first and the last period that one of them lies in
}

// OffGridCommits lists the scopes with commits that count and are off the grid
// of their length, as long as the periods that they lie in were not rated after
// them; at most 1000.
func (s *Store) OffGridCommits(ctx context.Context) ([]OffGrid, error) {
	return Collect(ctx, s, "doctor_off_grid", nil, func(rows driver.Rows) (OffGrid, error) {
		var o OffGrid
		err := rows.Scan(&o.Scope, &o.Periods, &o.First, &o.Last)
		o.First, o.Last = o.First.UTC(), o.Last.UTC()
		return o, err
	})
}

// CrowdedPartition has more parts than merges should leave.
type CrowdedPartition struct {
	Table, Partition string
	Parts, Bytes     uint64
}

// CrowdedPartitions lists partitions with more than most parts.
func (s *Store) CrowdedPartitions(ctx context.Context, most uint32) ([]CrowdedPartition, error) {
	return Collect(ctx, s, "doctor_parts", Params{"most": most}, func(rows driver.Rows) (CrowdedPartition, error) {
		var p CrowdedPartition
		err := rows.Scan(&p.Table, &p.Partition, &p.Parts, &p.Bytes)
		return p, err
	})
}

// ServerTooOld says whether a server of this version cannot hold the schema.
func ServerTooOld(version string) bool { return versionLess(version, MinVersion) }
