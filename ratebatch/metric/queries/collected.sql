-- name:    collected
-- purpose: Part of usage.sql: deduplicated rows of the metric's table, summed up if usage is coarser than rows.
-- params:  from DateTime('UTC'), to DateTime('UTC')    [from, to)
-- reads:   see usage.sql
-- why:     a condition on scope and begin comes after a resource's time was capped to its bucket, because the cap must
--          not depend on which scopes a pass looks at. The guard in HAVING fails the query where FINAL left a repeat, as
--          it would on shards that split a key.
{{- define "rows"}}
{{- if .GroupKey}}
    SELECT {{join .KeyColumns}}{{range .OtherColumns}}, {{.}}{{end}}
    FROM {{.Table}} AS t
    WHERE {{.TimeRange}}
    GROUP BY {{join .GroupKey}}
{{- else}}
    SELECT {{join .Columns}}
    FROM {{.Table}} AS t{{if .Final}} FINAL{{end}}
    WHERE {{.TimeRange}}
{{- end}}
{{- end}}
{{- define "scoped"}}
  SELECT {{.Region}} AS region, {{.Scope}} AS scope, {{.Begin}} AS begin{{range .Names}}, {{.}}{{end}}{{range .Derived}}, {{.}}{{end}}
  FROM ({{template "rows" .}})
{{- end}}
{{- define "capped"}}
{{- if .CapWindow}}
  SELECT * EXCEPT (s_, u_), greatest(toInt64(0), least(u_, {{.Cap}}) - (u_ - s_)) AS s_
  FROM (SELECT *, sum(s_) OVER ({{.CapWindow}}) AS u_
        FROM (SELECT *, {{.RowCovered}} AS s_
              FROM ({{template "scoped" .}})))
{{- else}}{{template "scoped" .}}{{end}}
{{- end}}
{{- define "chosen"}}
{{- if .Filter}}
  SELECT * FROM ({{template "capped" .}})
  WHERE {{.Filter}}
{{- else}}{{template "capped" .}}{{end}}
{{- end}}
{{- define "collected"}}
{{- if .GroupBy}}
  SELECT {{join .GroupBy}}{{range .Aggregates}}, {{.}}{{end}}
  FROM ({{template "chosen" .}})
  GROUP BY {{join .GroupBy}}
{{- if .GroupGuard}}
  HAVING {{.GroupGuard}}{{end}}
{{- else}}{{template "chosen" .}}{{end}}
{{- end}}
