-- name:    insert_month_close
-- purpose: Makes a close or a reopen of a month count; one row per currency of the month.
-- params:  month Date, first, until DateTime('UTC') (the instants it consists of), closed UInt32, kind String, currencies Array(String), periods Array(UInt64), lines Array(UInt64),
--          line_digests Array(UInt64), totals Array(String), reason, author String
INSERT INTO month_commits (month, closed, kind, scope, begin, until, key, periods, lines, line_digest, total, currency, reason, author)
SELECT {month:Date}, {closed:UInt32}, {kind:String}, '', {first:DateTime('UTC')}, {until:DateTime('UTC')}, toUInt128(0), row.2, row.3, row.4, toDecimal256(row.5, 18), row.1, {reason:String}, {author:String}
FROM (SELECT arrayJoin(arrayZip({currencies:Array(String)}, {periods:Array(UInt64)}, {lines:Array(UInt64)}, {line_digests:Array(UInt64)}, {totals:Array(String)})) AS row)
