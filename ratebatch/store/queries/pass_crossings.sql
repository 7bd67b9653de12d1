-- name:    pass_crossings
-- purpose: How many accounts cross an edge in a period of the attempt: whether there are rows to be cut at all.
-- params:  run_id UUID, metric String
-- reads:   pass_carries of the attempt
SELECT count() FROM pass_carries WHERE run_id = {run_id:UUID} AND metric = {metric:String} AND crosses
