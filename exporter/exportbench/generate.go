package exportbench

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Cloud is the size of a generated month.
type Cloud struct {
	Month     string // 2026-03
	Scopes    int
	Resources int // per scope
	Hours     int
}

// Lines is the number of lines that Generate makes.
func (c Cloud) Lines() uint64 { return uint64(c.Scopes) * uint64(c.Resources) * 2 * uint64(c.Hours) }

func (c Cloud) begin() (time.Time, error) { return time.Parse("2006-01", c.Month) }

// Generate rates and commits a cloud inside ClickHouse: two metrics per
// resource and hour, one with a quantity that differs from line to line.
func Generate(ctx context.Context, s *store.Store, c Cloud) error {
	month, err := c.begin()
	if err != nil {
		return err
	}
	run := uuid.NewSHA1(uuid.NameSpaceURL, []byte("exportbench:"+c.Month))
	params := clickhouse.Parameters{"run_id": run.String(), "scopes": fmt.Sprint(c.Scopes), "resources": fmt.Sprint(c.Resources), "hours": fmt.Sprint(c.Hours),
		"from": month.Format(time.DateTime)}
	ctx = clickhouse.Context(ctx, clickhouse.WithParameters(params))
	for _, text := range []string{`
INSERT INTO rated_lines (run_id, region, scope, begin, end, metric, resource, attributes, unit, qty, price, rule, bucket, part, revision)
WITH intDiv(number, {hours:UInt32} * 2 * {resources:UInt32}) AS s,
     intDiv(number, 2 * {resources:UInt32}) % {hours:UInt32} AS h,
     intDiv(number, {resources:UInt32}) % 2 AS m,
     number % {resources:UInt32} AS r
SELECT {run_id:UUID}, 'RegionOne', 'project-' || leftPad(toString(s), 5, '0'), {from:DateTime('UTC')} + h * 3600, {from:DateTime('UTC')} + (h + 1) * 3600,
       ['instance', 'network.outgoing'][1 + m], toString(reinterpretAsUUID(reverse(sipHash128(s, r)))),
       map('flavor_name', 'm1.' || toString(r % 40), 'image_id', 'debian-12', 'instance_name', 'vm-' || toString(r), 'user_id', 'user-' || toString(s % 97), 'vcpus', toString(1 + r % 16)),
       ['instance', 'MiB'][1 + m],
       if(m = 0, toDecimal128(1, 18), toDecimal128(cityHash64(number) % 10000000, 18) / 1024),
       CAST(toDecimal256(0.0125, 18) * (1 + cityHash64(number) % if(m = 0, 40, 100000)) AS Decimal(38, 18)),
       ['plan:instance', 'plan:traffic'][1 + m], '', 0, 1
FROM numbers_mt(toUInt64({scopes:UInt32}) * {resources:UInt32} * 2 * {hours:UInt32})`, `
INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, plan_digest, metrics_digest, currency, usage_rows, usage_fingerprint, lines, line_digest, total)
SELECT scope, begin, begin + 3600, 1, 'rated', {run_id:UUID}, 'plan-1', 'metrics-1', 'EUR', count(), 0, count(),
       sum(cityHash64(region, metric, resource, attributes, part, end, unit, qty, price, rule, bucket)), sum(toDecimal256(price, 18))
FROM rated_lines WHERE run_id = {run_id:UUID} GROUP BY scope, begin`} {
		if err := s.Conn().Exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}
