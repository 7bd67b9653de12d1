-- name:    carry_since
-- purpose: From when on commits have to be looked at for what they change behind them in their month, and the server's time now.
-- reads:   carry_looks
-- why:     ten minutes more, because a commit is seen later than the time it bears.
SELECT greatest((SELECT max(looked_at) FROM carry_looks), toDateTime64(3600, 6, 'UTC')) - INTERVAL 10 MINUTE AS since, now64(6) AS now
