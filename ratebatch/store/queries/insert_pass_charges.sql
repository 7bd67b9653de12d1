-- name:    insert_pass_charges
-- purpose: What the month came to before its last period, and in it, for each scope with usage in the month whose last period of it an
--          attempt rates.
-- params:  run_id UUID, month_from, last DateTime('UTC') (begin of the month's last period), currency String,
--          boundaries Array(DateTime('UTC')), currencies Array(String) (one more than boundaries, of the attempt's plans),
--          priced Bool (scopes are priced at all), others Array(String) (scopes of which the contrary holds)
-- reads:   rated_lines and pass_periods of the attempt, the month's commits of its scopes
-- why:     a minimum and a cap are about the month; their line is one of its last period, so that it is rated, committed and
--          exported like any other, and due for a revision when the sum before it changes. A month without a usage row has
--          neither: which periods a scope that is gone still has depends on when months are closed, and what it pays must not.
INSERT INTO pass_carries (run_id, metric, scope, begin, account, tariff, carry_in, used, first_tier, last_tier, crosses, region)
SELECT {run_id:UUID}, '', scope, {last:DateTime('UTC')}, '(charged)', 0, toDecimal128(sumIf(amount, at < {last:DateTime('UTC')}), 18),
       toDecimal128(sumIf(amount, at = {last:DateTime('UTC')}), 18), 0, 0, false, ''
FROM (
    SELECT scope, begin AS at, sum(toDecimal256(price, 18)) AS amount, toUInt64(0) AS usages FROM rated_lines
    WHERE run_id = {run_id:UUID} AND begin >= {month_from:DateTime('UTC')} AND begin <= {last:DateTime('UTC')}
      AND {currencies:Array(String)}[1 + arrayCount(t -> begin >= t, {boundaries:Array(DateTime('UTC'))})] = {currency:String}
    GROUP BY scope, at
    UNION ALL
    SELECT scope, at, if(of_currency = {currency:String}, toDecimal256(of_total, 18), toDecimal256(0, 18)) AS amount, toUInt64(of_usages) AS usages FROM (
        SELECT p.scope AS scope, p.begin AS at, argMax(p.total, p.rank) AS of_total, argMax(p.kind, p.rank) AS of_kind, argMax(toString(p.currency), p.rank) AS of_currency,
               argMax(p.usage_rows, p.rank) AS of_usages
        FROM period_commits AS p
        WHERE p.begin >= {month_from:DateTime('UTC')} AND p.begin <= {last:DateTime('UTC')} AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
          AND (p.scope, p.begin) NOT IN (SELECT q.scope, q.begin FROM pass_periods AS q WHERE q.run_id = {run_id:UUID} AND NOT q.lost)
        GROUP BY p.scope, p.begin)
    WHERE of_kind = 'rated'
    UNION ALL
    SELECT scope, begin AS at, toDecimal256(0, 18) AS amount, toUInt64(usage_rows) AS usages FROM pass_periods
    WHERE run_id = {run_id:UUID} AND begin >= {month_from:DateTime('UTC')} AND begin <= {last:DateTime('UTC')} AND NOT lost)
WHERE scope IN (SELECT scope FROM pass_periods WHERE run_id = {run_id:UUID} AND begin = {last:DateTime('UTC')} AND NOT lost)
  AND (scope IN {others:Array(String)}) != {priced:Bool}
GROUP BY scope
HAVING sum(usages) > 0
