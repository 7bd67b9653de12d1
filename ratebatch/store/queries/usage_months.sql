-- name:    usage_months
-- purpose: The state of each month (UTC) of the tiers that are kept here, and where it was noted for this state, who has usage in it.
-- params:  tables Array(String)   the tiers that are read
--          source String          what usage_months calls them and how they are read
-- reads:   system.parts, no data; one row a month of usage_months
-- why:     a cluster's tables of these names have no parts of their own: there every month is read.
SELECT p.month AS month, p.state AS state, toBool(notEmpty(h.source)) AS known, h.scopes AS scopes, h.regions AS regions, h.firsts AS firsts
FROM (
    SELECT toDate(toStartOfMonth(toDate(s.partition))) AS month, groupBitXor(sipHash64(s.table, s.partition, s.name, s.hash_of_all_files)) AS state
    FROM system.parts AS s
    WHERE s.active AND s.database = currentDatabase() AND s.table IN {tables:Array(String)}
    GROUP BY month) AS p
ANY LEFT JOIN (SELECT * FROM usage_months WHERE source = {source:String}) AS h ON h.month = p.month AND h.state = p.state
ORDER BY month
