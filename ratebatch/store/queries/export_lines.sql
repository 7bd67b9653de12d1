-- name:    export_lines
-- purpose: The rated lines that count in a window and a range of scopes, each with the hash its commit's digest sums.
-- params:  from, to DateTime('UTC'), first_scope, last_scope String, as_of DateTime64(6, 'UTC'), month Date, closed UInt32
-- reads:   rated_lines and period_commits by (scope, begin)
-- why:     the order is total over line keys, so the same state gives the same files. It starts with the table's sort
--          key, so sorting needs no memory that grows with the window. The filters stand inside the commits as well:
--          they do not reach them by themselves. as_of leaves out what is committed while an export reads. closed is the number of the month's
--          close, whose frozen commits alone are then looked at; 0 for an open month.
--          A resource is long and comes again each hour: a dictionary carries each once a block.
--          NEW ONLY stands for what an append delivery leaves out (append_known).
SELECT region, scope, begin, end, metric, toLowCardinality(resource), attributes, unit, qty, price, rule, bucket, part, revision,
       cityHash64(region, metric, resource, attributes, part, end, unit, qty, price, rule, bucket) AS line_hash
FROM rated_lines
WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')}
  AND scope >= {first_scope:String} AND scope <= {last_scope:String}
  AND key IN (
    SELECT argMax(if(kind = 'rated', key, toUInt128(0)), rank)
    FROM period_commits
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')}
      AND scope >= {first_scope:String} AND scope <= {last_scope:String} AND committed_at <= {as_of:DateTime64(6, 'UTC')}
      AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {as_of:DateTime64(6, 'UTC')})
      AND ({closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {closed:UInt32} AND kind = 'commit'))
      /* NEW ONLY */
    GROUP BY scope, begin)
ORDER BY scope, begin, metric, resource, region, attributes, part
