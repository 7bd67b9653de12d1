-- name:    insert_rate_plans
-- purpose: Stores one immutable version; its number is one more than the highest so far.
-- params:  digest, body, currency, author, note String, valid_from, valid_to DateTime('UTC')
INSERT INTO rate_plans (version, digest, body, currency, author, note, valid_from, valid_to)
SELECT (SELECT max(version) + 1 FROM rate_plans), {digest:String}, {body:String}, {currency:String}, {author:String}, {note:String},
       {valid_from:DateTime('UTC')}, {valid_to:DateTime('UTC')}
