package store

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// tierKind is one kind of samples and the two tiers that aggregate it.
type tierKind struct {
	name    string // port, instance or disk; tier_NAME.sql aggregates it
	samples string
	tiers   [2]string // five minutes, hour
	columns string    // of the tiers, in the order in which tier_NAME.sql gives them
}

const (
	attributeColumns = "project_id, user_id, flavor_name, vcpus, image_id, instance_name, host, samples, samples_ended, covered_seconds"
	fiveMinutes      = 300
	hour             = 3600
	day              = 24 * time.Hour
)

var tierWidths = [2]uint32{fiveMinutes, hour}

var tierKinds = []tierKind{
	{
		"instance", "instance_samples", [2]string{"instance_metrics_5min", "instance_metrics_hourly"},
		"bucket, region, instance_uuid, " + attributeColumns + ", cpu_pct_avg, cpu_pct_max, memory_actual_bytes_avg, memory_rss_bytes_avg, memory_usable_bytes_avg, memory_actual_byte_seconds",
	},
	{
		"port", "port_samples", [2]string{"port_volume_5min", "port_volume_hourly"},
		"bucket, region, instance_uuid, port_uuid, network_uuid, " + attributeColumns + ", rx_bytes, tx_bytes",
	},
	{
		"disk", "disk_samples", [2]string{"disk_metrics_5min", "disk_metrics_hourly"},
		"bucket, region, instance_uuid, device, " + attributeColumns + ", read_bytes, write_bytes, read_requests, write_requests, capacity_bytes_avg, allocation_bytes_avg, physical_bytes_avg, capacity_byte_seconds",
	},
}

const (
	// maxChunk is how many samples one statement of a rollup aggregates at most,
	// unless more of them lie in a single hour: what bounds its memory.
	maxChunk = 2_000_000
	// maxChunkDays bounds the partitions that one insert opens; servers allow 100.
	maxChunkDays = 60
)

// RollupOptions say what a rollup recomputes.
type RollupOptions struct {
	From, To time.Time            // buckets that begin in [From, To), widened to whole hours; a zero To: now
	Progress func(RollupProgress) // after each chunk; may be nil
}

// RollupProgress says how far a rollup is.
type RollupProgress struct {
	Tier        string // table that was written
	Begin, End  time.Time
	Done, Total int // chunks
}

// RollupResult says what a rollup did.
type RollupResult struct {
	From   time.Time         `json:"from"`
	To     time.Time         `json:"to"`
	Rows   map[string]uint64 `json:"rows"`            // by tier: what it holds for the window now
	Before time.Time         `json:"before,omitzero"` // buckets before it were left alone, as raw samples of them may have expired; zero: none
	Late   *LateRollup       `json:"late,omitempty"`  // if late samples were asked for
}

// Rollup recomputes both tiers of all three kinds from the distinct raw
// samples, for closed buckets that begin in [from, to).
func (s *Store) Rollup(ctx context.Context, from, to time.Time) (RollupResult, error) {
	return s.RollupWith(ctx, RollupOptions{From: from, To: to})
}

// rollupChunk is one statement of a rollup.
type rollupChunk struct {
	kind       *tierKind
	tier       int // index into tiers and widths
	begin, end time.Time
	reach      uint32
}

// RollupPlan says what a rollup would do; it is made without writing.
type RollupPlan struct {
	From       time.Time         `json:"from"`
	To         time.Time         `json:"to"`
	Before     time.Time         `json:"before,omitzero"` // see RollupResult
	Samples    map[string]uint64 `json:"samples"`         // by kind, repeats included
	Statements int               `json:"statements"`      // each over some days, or hours of a busy day

	chunks []rollupChunk
}

// RollupWith is Rollup with options. It may be repeated and may run beside the
// refreshable views: rows that stand in a tier already are not written again,
// and a row over fewer samples never replaces a fuller one.
func (s *Store) RollupWith(ctx context.Context, o RollupOptions) (RollupResult, error) {
	plan, err := s.PlanRollup(ctx, o)
	if err != nil {
		return RollupResult{}, err
	}
	return s.RunRollup(ctx, plan, o.Progress)
}

// PlanRollup finds the buckets and cuts them into statements; it only reads.
func (s *Store) PlanRollup(ctx context.Context, o RollupOptions) (RollupPlan, error) {
	var now time.Time
	if err := s.Row(ctx, "server_time", nil, &now); err != nil {
		return RollupPlan{}, err
	}
	now = now.UTC().Truncate(time.Second)
	plan := RollupPlan{From: o.From.UTC().Truncate(time.Hour), To: o.To.UTC(), Samples: map[string]uint64{}}
	if o.To.IsZero() || now.Before(o.To) {
		plan.To = now
	} else if up := plan.To.Truncate(time.Hour); !up.Equal(plan.To) {
		plan.To = up.Add(time.Hour)
		if now.Before(plan.To) {
			plan.To = now
		}
	}
	if plan.From.Unix() < 0 {
		plan.From = time.Unix(0, 0).UTC()
	}
	if !plan.From.Before(plan.To) {
		return plan, &ratebatch.ConfigError{Err: fmt.Errorf("rollup from %s to %s: nothing lies between", o.From.UTC().Format(time.RFC3339), plan.To.Format(time.RFC3339)), Hint: "only buckets that have ended are computed"}
	}
	for i := range tierKinds {
		kind := &tierKinds[i]
		of, err := s.rollupChunks(ctx, kind, now, &plan)
		if err != nil {
			return plan, err
		}
		plan.chunks = append(plan.chunks, of...)
	}
	plan.Statements = len(plan.chunks)
	return plan, nil
}

// RunRollup does what a plan says; progress may be nil.
func (s *Store) RunRollup(ctx context.Context, plan RollupPlan, progress func(RollupProgress)) (RollupResult, error) {
	result := RollupResult{From: plan.From, To: plan.To, Before: plan.Before, Rows: map[string]uint64{}}
	for i, c := range plan.chunks {
		tier := c.kind.tiers[c.tier]
		if err := s.rollupChunk(ctx, c); err != nil {
			return result, fmt.Errorf("roll up %s into %s: %w", ratebatch.Period{Begin: c.begin, End: c.end}, tier, err)
		}
		if progress != nil {
			progress(RollupProgress{Tier: tier, Begin: c.begin, End: c.end, Done: i + 1, Total: len(plan.chunks)})
		}
	}
	type tierRows struct {
		tier string
		rows uint64
	}
	counts, err := Collect(ctx, s, "rollup_rows", Params{"from": result.From, "to": result.To}, func(rows driver.Rows) (tierRows, error) {
		var r tierRows
		return r, rows.Scan(&r.tier, &r.rows)
	})
	if err != nil {
		return result, err
	}
	for _, c := range counts {
		result.Rows[c.tier] = c.rows
	}
	return result, nil
}

// rollupChunks cuts the days that samples cover into statements.
func (s *Store) rollupChunks(ctx context.Context, kind *tierKind, now time.Time, plan *RollupPlan) ([]rollupChunk, error) {
	from := plan.From
	kept, err := s.kept(ctx, kind.samples)
	if err != nil {
		return nil, err
	}
	// A bucket that the raw tier does not have whole any more may have lost
	// samples. Its row must stay, and a late sample must not take the place of an
	// expired one in the count.
	if oldest := kept.FirstWholeHour(now); from.Before(oldest) {
		from = oldest
		if plan.Before.IsZero() || oldest.After(plan.Before) {
			plan.Before = oldest
		}
	}
	if !from.Before(plan.To) {
		return nil, nil
	}
	days, err := Collect(ctx, s, "rollup_days", Params{"kind": kind.name, "from": from, "to": plan.To}, func(rows driver.Rows) (dayCount, error) {
		var d dayCount
		return d, rows.Scan(&d.day, &d.samples, &d.reach)
	})
	if err != nil {
		return nil, err
	}
	var reach uint32
	for _, d := range days {
		reach = max(reach, d.reach)
		plan.Samples[kind.name] += d.samples
	}
	var chunks []rollupChunk
	for tier, width := range tierWidths {
		closed := plan.To.Truncate(time.Duration(width) * time.Second)
		for _, span := range cutDays(days) {
			c := rollupChunk{kind, tier, span.Begin, span.End, reach}
			if c.begin.Before(from) {
				c.begin = from
			}
			if c.end.After(closed) {
				c.end = closed
			}
			if c.begin.Before(c.end) {
				chunks = append(chunks, c)
			}
		}
	}
	return chunks, nil
}

// dayCount says how many samples end in a day, and how long the longest of
// those that cover a part of it lasts, in seconds.
type dayCount struct {
	day     time.Time
	samples uint64
	reach   uint32
}

// cutDays joins quiet days and cuts busy ones into equal numbers of hours, so
// that a chunk holds about maxChunk samples and at most maxChunkDays partitions.
func cutDays(days []dayCount) []ratebatch.Period {
	var chunks []ratebatch.Period
	var open ratebatch.Period
	var samples uint64
	flush := func() {
		if !open.Begin.IsZero() {
			chunks = append(chunks, open)
		}
		open, samples = ratebatch.Period{}, 0
	}
	for _, d := range days {
		end := d.day.Add(day)
		if d.samples > maxChunk {
			flush()
			step := chunkLength(d.samples)
			for begin := d.day; begin.Before(end); begin = begin.Add(step) {
				chunks = append(chunks, ratebatch.Period{Begin: begin, End: begin.Add(step)})
			}
			continue
		}
		if !open.Begin.IsZero() && (samples+d.samples > maxChunk || end.Sub(open.Begin) > maxChunkDays*day) {
			flush()
		}
		if open.Begin.IsZero() {
			open.Begin = d.day
		}
		open.End, samples = end, samples+d.samples
	}
	flush()
	return chunks
}

// chunkLength gives the longest divisor of a day, in whole hours, whose share
// of the day's samples is small enough.
func chunkLength(samples uint64) time.Duration {
	for _, n := range []uint64{1, 2, 3, 4, 6, 8, 12} {
		if samples/n <= maxChunk {
			return day / time.Duration(n)
		}
	}
	return time.Hour
}

// rollupChunk writes the rows of one chunk that the tier does not hold yet.
// Like every INSERT … SELECT it is not retried here; repeating it is harmless.
func (s *Store) rollupChunk(ctx context.Context, c rollupChunk) error {
	tier := c.kind.tiers[c.tier]
	ctx = WithParams(ctx, Params{
		"width": tierWidths[c.tier], "from": c.begin, "to": c.end, "reach": c.reach, "all": true, "since": time.Unix(0, 0), "target": tier,
	})
	return describe(s.conn.Exec(ctx, "INSERT INTO "+tier+" ("+c.kind.columns+")\n"+SQL("tier_"+c.kind.name)))
}
