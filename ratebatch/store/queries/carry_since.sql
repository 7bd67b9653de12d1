-- name:    carry_since
-- purpose: From when on commits have to be looked at for what they change behind them in their month, and the server's time now.
-- reads:   carry_looks and billing_settings, small
-- why:     ten minutes more, because a commit is seen later than the time it bears. Months of another time zone are other
--          months: all have to be looked at once more.
WITH (SELECT max(looked_at) FROM carry_looks) AS looked,
     (SELECT max(s.changed_at) FROM billing_settings AS s WHERE s.name = 'billing_timezone') AS zoned
SELECT if(zoned >= looked, toDateTime64(3600, 6, 'UTC'), looked) - INTERVAL 10 MINUTE AS since, now64(6) AS now
