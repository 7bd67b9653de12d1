-- name:    rollup_days
-- purpose: The days that samples of a kind cover within a window, and how many end in each: what a rollup is cut by.
-- params:  kind String                    port, instance or disk
--          from, to DateTime('UTC')       samples that cover any part of [from, to)
-- reads:   two time columns of the kind's samples from `from` on; repeats only make a chunk smaller
-- why:     a day that no sample ends in may still lie within a long one. The longest interval bounds how far after its
--          last bucket a chunk has to look for samples that began in it.
SELECT day, sum(ended) AS samples, max(reach) AS reach
FROM (
    SELECT toUInt32(intDiv(toUnixTimestamp64Milli(ts) - 1, 86400000)) AS last_day,
           arrayJoin(range(least(toUInt32(intDiv(toUnixTimestamp64Milli(begin), 86400000)), last_day), last_day + 1)) AS day_number,
           toDateTime(day_number * 86400, 'UTC') AS day, day_number = last_day AS ended,
           toUInt32(greatest(0, intDiv(toUnixTimestamp64Milli(ts) - toUnixTimestamp64Milli(begin), 1000) + 1)) AS reach
    FROM (
        SELECT begin, ts FROM port_samples WHERE {kind:String} = 'port' AND ts > {from:DateTime('UTC')}
        UNION ALL SELECT begin, ts FROM instance_samples WHERE {kind:String} = 'instance' AND ts > {from:DateTime('UTC')}
        UNION ALL SELECT begin, ts FROM disk_samples WHERE {kind:String} = 'disk' AND ts > {from:DateTime('UTC')})
    WHERE begin < {to:DateTime('UTC')} OR ts <= {to:DateTime('UTC')})
GROUP BY day ORDER BY day
