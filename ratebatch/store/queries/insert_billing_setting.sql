-- name:    insert_billing_setting
-- purpose: Sets what bills rest on from now.
-- params:  name String, value String, reason String, author String
INSERT INTO billing_settings (name, value, reason, author)
SELECT {name:String}, {value:String}, {reason:String}, {author:String}
