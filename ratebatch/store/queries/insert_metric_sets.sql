-- name:    insert_metric_sets
-- purpose: Stores one immutable version; its number is one more than the highest so far.
-- params:  digest, body, currency, author, note String, valid_from, valid_to DateTime('UTC')
INSERT INTO metric_sets (version, digest, body, currency, author, note, valid_from, valid_to)
SELECT (SELECT max(version) + 1 FROM metric_sets), {digest:String}, {body:String}, {currency:String}, {author:String}, {note:String},
       {valid_from:DateTime('UTC')}, {valid_to:DateTime('UTC')}
