-- name:    append_known
-- purpose: The periods that an append delivery before this one holds; export_commits and export_lines leave them out.
-- params:  from, to DateTime('UTC'), first_scope, last_scope String, then_as_of DateTime64(6, 'UTC'), month Date, then_closed UInt32
-- reads:   period_commits by (scope, begin)
SELECT known.scope, known.begin FROM period_commits AS known
WHERE known.begin >= {from:DateTime('UTC')} AND known.begin < {to:DateTime('UTC')}
  AND known.scope >= {first_scope:String} AND known.scope <= {last_scope:String} AND known.committed_at <= {then_as_of:DateTime64(6, 'UTC')}
  AND known.run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {then_as_of:DateTime64(6, 'UTC')})
  AND ({then_closed:UInt32} = 0 OR known.key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {then_closed:UInt32} AND kind = 'commit'))
