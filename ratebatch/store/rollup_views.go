package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// Tier is the statement of a refreshable view: tier_KIND.sql, the same text
// that a rollup by hand runs, with its parameters filled in by expressions over
// the server's clock and the view's own history. Schema files call it.
func (o MigrateOptions) Tier(kind string, width int) (string, error) {
	for i := range tierKinds {
		k := &tierKinds[i]
		for tier, w := range tierWidths {
			if k.name == kind && int(w) == width {
				return k.viewText(tier, o), nil
			}
		}
	}
	return "", fmt.Errorf("no tier of %s is %d seconds wide", kind, width)
}

// viewName names the refreshable view of a tier.
func viewName(tier string) string { return tier + "_refresh" }

func (k *tierKind) viewText(tier int, o MigrateOptions) string {
	suffix := ""
	if o.Cluster != "" {
		suffix = "_local" // each shard aggregates its own instances
	}
	width := strconv.Itoa(int(tierWidths[tier]))
	samples, target := k.samples+suffix, k.tiers[tier]+suffix

	// Each moment is worked out once, before everything that asks for it: written out in
	// every place, the statement would hold each of its subqueries dozens of times, and the
	// server would take half a second to read it, for each view, whenever it refreshes.
	//
	// A block is stamped when it arrives and visible when it is written; five
	// minutes lie safely between.
	since := "(SELECT toDateTime(ifNull(toUnixTimestamp(max(last_success_time)) - 300, 0), 'UTC') FROM system.view_refreshes" +
		" WHERE database = currentDatabase() AND view = " + sqltext.String(viewName(k.tiers[tier])) + ")"
	// With a known last refresh, reading starts at the earliest bucket touched since.
	earliest := "(SELECT toDateTime(ifNull(minOrNull(intDiv(least(toUnixTimestamp64Milli(begin), toUnixTimestamp64Milli(ts) - 1), 1000 * " + width + ")), intDiv(toUnixTimestamp(now()), " + width + ")) * " + width + ", 'UTC')" +
		" FROM " + samples + " WHERE view_since > toDateTime(0, 'UTC') AND (ingested_at >= view_since OR ts > view_since - " + width + "))"
	moments := "WITH\n    " + since + " AS view_since,\n    " +
		firstWholeHourText(k.samples, 0) + " AS view_oldest,\n    " +
		earliest + " AS view_earliest,\n    " +
		"greatest(view_oldest, if(view_since = toDateTime(0, 'UTC'), toDateTime(0, 'UTC'), view_earliest)) AS view_from,\n    " +
		"toDateTime(intDiv(toUnixTimestamp(now()), " + width + ") * " + width + ", 'UTC') AS view_to,\n"
	return strings.NewReplacer(
		"\nWITH\n", "\n"+moments,
		"{width:UInt32}", width,
		"{all:Bool}", "false",
		"{since:DateTime('UTC')}", "view_since",
		"{from:DateTime('UTC')}", "view_from",
		"{to:DateTime('UTC')}", "view_to",
		"{reach:UInt32}", "100000000", // nothing ends after now by much; this only has to be long enough
		"{target:Identifier}", target,
		"FROM "+k.samples, "FROM "+samples,
	).Replace("\n" + SQL("tier_"+k.name))
}

// firstWholeHourText is Kept.FirstWholeHour of a table of raw samples as an
// expression over the server's clock, Unix seconds as a DateTime: a view follows
// a retention that is changed. With an hour more, of what expires, it is
// Kept.LateBefore.
func firstWholeHourText(samples string, more int) string {
	literal := strings.NewReplacer("{table:String}", sqltext.String(samples))
	return "(SELECT toDateTime(toUInt32(greatest(if(keep = 0, 0, intDiv(clock - least(keep, clock - 3600), 3600) * 3600 + " + strconv.Itoa(hour+more) + ")," +
		" intDiv(toInt64(ifNull((" + literal.Replace(SQL("kept_since")) + "), toDateTime(0, 'UTC'))) + 3599, 3600) * 3600)), 'UTC')" +
		" FROM (SELECT toInt64(toUnixTimestamp(now())) AS clock, toInt64(keep + throwIf(keep < 0, 'the TTL of " + samples + " does not say how long samples stay: set it with ratebatch migrate --retention')) AS keep" +
		" FROM (" + literal.Replace(SQL("tier_retention")) + ")))"
}

// RefreshTiers brings both tiers of all kinds up to date now, through their
// refreshable views, and waits for it. Each view is waited for first: a refresh
// under way may have begun before the newest sample arrived. A kind without any
// raw samples has nothing that its tiers could take up; its views are left alone,
// for one that does not know its last refresh looks at every row of its tier. So
// are views that somebody has stopped: their tiers stay as they are.
func (s *Store) RefreshTiers(ctx context.Context) error {
	sampled, err := Collect(ctx, s, "sampled_kinds", nil, func(rows driver.Rows) (kind string, err error) {
		err = rows.Scan(&kind)
		return kind, err
	})
	if err != nil {
		return err
	}
	views, err := s.TierViews(ctx)
	if err != nil {
		return err
	}
	stopped := map[string]bool{}
	for _, v := range views {
		stopped[v.Table()] = v.Stopped()
	}
	for _, step := range []string{"SYSTEM WAIT VIEW ", "SYSTEM REFRESH VIEW ", "SYSTEM WAIT VIEW "} {
		for i := range tierKinds {
			if !slices.Contains(sampled, tierKinds[i].name) {
				continue
			}
			for _, tier := range tierKinds[i].tiers {
				if stopped[tier] {
					continue
				}
				if err := s.conn.Exec(ctx, step+viewName(tier)); err != nil {
					return fmt.Errorf("refresh %s: %w", tier, describe(err))
				}
			}
		}
	}
	return nil
}

// TierView is a refreshable view of a tier.
type TierView struct {
	View, Status string
	LastSuccess  time.Time // 1970: not since the server started
	Exception    string    // of the last refresh; empty: none
}

// Stopped says whether somebody has stopped the view.
func (v TierView) Stopped() bool { return v.Status == "Disabled" }

// Table is the tier that the view fills.
func (v TierView) Table() string { return strings.TrimSuffix(v.View, viewName("")) }

// TierViews lists the views that fill the tiers.
func (s *Store) TierViews(ctx context.Context) ([]TierView, error) {
	return Collect(ctx, s, "tier_views", nil, func(rows driver.Rows) (TierView, error) {
		var v TierView
		err := rows.Scan(&v.View, &v.Status, &v.LastSuccess, &v.Exception)
		return v, err
	})
}
