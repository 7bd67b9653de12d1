-- name:    count_ranges
-- purpose: Notes which sequences of each agent are stored, as ranges without a hole, for the hours of a window.
-- params:  from, to DateTime('UTC')       hours that begin in [from, to)
-- reads:   sequences of the raw samples that ended in the window; repeats change nothing
-- why:     of all samples of an hour and not of new arrivals only, so that what came in several batches is one range.
INSERT INTO ingest_ranges (region, host, epoch, hour, first, last)
SELECT region, host, epoch, hour, range[1], range[-1]
FROM (SELECT region, host, epoch, hour, arraySort(groupArray(sequence)) AS stored, arraySplit((x, step) -> step > 1, stored, arrayDifference(stored)) AS ranges
      FROM (SELECT region, host, epoch, toDateTime(intDiv(toUnixTimestamp64Milli(ts) - 1, 3600000) * 3600, 'UTC') AS hour, sequence
            FROM (SELECT region, host, epoch, ts, sequence FROM port_samples WHERE epoch != 0 AND ts > {from:DateTime('UTC')} AND ts <= {to:DateTime('UTC')}
      UNION ALL SELECT region, host, epoch, ts, sequence FROM instance_samples WHERE epoch != 0 AND ts > {from:DateTime('UTC')} AND ts <= {to:DateTime('UTC')}
      UNION ALL SELECT region, host, epoch, ts, sequence FROM disk_samples WHERE epoch != 0 AND ts > {from:DateTime('UTC')} AND ts <= {to:DateTime('UTC')}))
      GROUP BY region, host, epoch, hour)
ARRAY JOIN ranges AS range
