-- name:    export_correction_totals
-- purpose: By how much the commits of a closed month differ from those that were billed, per scope and currency.
-- params:  from, to DateTime('UTC'), month Date, closed UInt32, base_as_of, as_of DateTime64(6, 'UTC')
-- reads:   period_commits of the month
-- why:     base is what was billed: the frozen commits if closed is not 0, else those that there were at base_as_of, when
--          another month was closed and took the corrections up to then with it. Commits that are on both sides cancel.
--          digest tells corrections of the same total apart; like that of export_commit_set it leaves out run_id.
SELECT scope, currency, sum(difference) AS total, toUInt64(count()) AS commits, sum(hash) AS digest
FROM (
    SELECT scope, begin, currency, sum(if(side = 'now', total, -total)) AS difference, uniqExact(of_key) AS keys, uniqExact(side) AS sides,
           sum(reinterpretAsUInt128(sipHash128(side, scope, begin, of_revision, of_lines, of_digest, total))) AS hash
    FROM (
        SELECT 'now' AS side, scope, begin, argMax(if(kind = 'rated', key, 0), rank) AS of_key, argMax(toString(currency), rank) AS currency,
               argMax(if(kind = 'rated', total, 0), rank) AS total, argMax(revision, rank) AS of_revision,
               argMax(if(kind = 'rated', lines, 0), rank) AS of_lines, argMax(if(kind = 'rated', line_digest, 0), rank) AS of_digest
        FROM period_commits
        WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND committed_at <= {as_of:DateTime64(6, 'UTC')}
          AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {as_of:DateTime64(6, 'UTC')})
        GROUP BY scope, begin
        UNION ALL
        SELECT 'base' AS side, scope, begin, argMax(if(kind = 'rated', key, 0), rank) AS of_key, argMax(toString(currency), rank) AS currency,
               argMax(if(kind = 'rated', total, 0), rank) AS total, argMax(revision, rank) AS of_revision,
               argMax(if(kind = 'rated', lines, 0), rank) AS of_lines, argMax(if(kind = 'rated', line_digest, 0), rank) AS of_digest
        FROM period_commits
        WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND committed_at <= {base_as_of:DateTime64(6, 'UTC')}
          AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {base_as_of:DateTime64(6, 'UTC')})
          AND ({closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {closed:UInt32} AND kind = 'commit'))
        GROUP BY scope, begin)
    GROUP BY scope, begin, currency
    HAVING keys > 1 OR sides = 1)
GROUP BY scope, currency ORDER BY scope, currency
