-- name:    gap
-- purpose: How long each resource was observed in each period in which it was seen, and the rest: bucket gap.
-- params:  from DateTime('UTC'), to DateTime('UTC')    [from, to), both on a period's boundary
-- reads:   the metric's table by time
-- why:     a gap belongs to a resource, not to a project: where the resource changed hands within the period, the gap is
--          shown under the scope it was seen in last, of equals under the one with more time.
SELECT * FROM (
  SELECT region, argMax(owner, (newest, milliseconds, owner)) AS scope, begin, resource,
         reinterpret(least(sum(milliseconds), {{.PeriodMillis}}) AS observed_, 'Decimal(18, 3)') AS covered,
         reinterpret({{.PeriodMillis}} - observed_, 'Decimal(18, 3)') AS gap
  FROM (SELECT region, scope AS owner, begin, {{.Resource}} AS resource, max({{.RowTime}}) AS newest, sum(toInt64({{.Covered}}){{if .Guards}} + {{.Guards}}{{end}}) AS milliseconds
        FROM ({{template "capped" .}})
        GROUP BY region, owner, begin, resource)
  GROUP BY region, begin, resource)
{{- if .Filter}}
WHERE {{.Filter}}{{end}}
