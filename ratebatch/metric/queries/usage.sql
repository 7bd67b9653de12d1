-- name:    usage
-- purpose: Usage of one metric: one row per region, scope, period, resource and attributes in force.
-- params:  from DateTime('UTC'), to DateTime('UTC')    [from, to), both on a period's boundary
-- reads:   the metric's table by time, so that partitions and granules outside [from, to) are skipped
-- why:     the innermost SELECT drops repeats of a row, exactly: by FINAL or by GROUP BY of the row's key. Where usage is
--          told apart by all columns of that key there is no second GROUP BY, which would be most of the cost.
--          Columns are renamed to c_0, c_1 … in the innermost SELECT, so that no name of an operator's table can be
--          taken for one of ours.
SELECT region, scope, begin, {{.Resource}} AS resource{{if .ShowAttributes}}, {{.Attributes}} AS attributes{{end}}, {{.Quantity}} AS qty
{{- range $i, $field := .Fields}}, {{$field}} AS f_{{$i}}{{end}}
FROM ({{template "collected" .}})
