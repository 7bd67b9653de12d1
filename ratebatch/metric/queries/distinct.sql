-- name:    distinct
-- purpose: The combinations of class, window and field values that occur in one metric's usage.
-- params:  from DateTime('UTC'), to DateTime('UTC')    [from, to)
-- reads:   the metric's table by time; no other columns than those of the fields
-- why:     rows are not deduplicated: a row that no longer counts may add a combination that is not needed, and costs
--          less than FINAL.
SELECT {{.Class}} AS class, {{.Window}} AS window_no{{range $i, $field := .Fields}}, f_{{$i}}{{end}}
FROM (SELECT region, scope, begin{{range $i, $field := .Fields}}, {{$field}} AS f_{{$i}}{{end}}
      FROM ({{template "chosen" .}}))
GROUP BY class, window_no{{range $i, $field := .Fields}}, f_{{$i}}{{end}}
