-- name:    count_sequences
-- purpose: Notes which sequences of each agent have arrived, for what arrived since the last count; of the original producer,
--          whose records have epoch 0 and no sequence, which seconds.
-- params:  since DateTime('UTC')          the last count, less some minutes; 1970: everything
-- reads:   the raw samples that arrived since; repeats change nothing
INSERT INTO ingest_sequences (region, host, epoch, hour, first, last)
SELECT region, host, epoch, toDateTime(intDiv(toUnixTimestamp64Milli(ts) - 1, 3600000) * 3600, 'UTC') AS hour, min(mark), max(mark)
FROM (SELECT region, host, epoch, if(epoch = 0, toUInt64(toUnixTimestamp(ts)), sequence) AS mark, ts FROM port_samples WHERE ingested_at >= {since:DateTime('UTC')}
      UNION ALL SELECT region, host, epoch, if(epoch = 0, toUInt64(toUnixTimestamp(ts)), sequence) AS mark, ts FROM instance_samples WHERE ingested_at >= {since:DateTime('UTC')}
      UNION ALL SELECT region, host, epoch, if(epoch = 0, toUInt64(toUnixTimestamp(ts)), sequence) AS mark, ts FROM disk_samples WHERE ingested_at >= {since:DateTime('UTC')})
GROUP BY region, host, epoch, hour
