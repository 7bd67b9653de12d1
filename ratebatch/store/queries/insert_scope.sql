-- name:    insert_scope
-- purpose: Says something new of a scope.
-- params:  scope String, active Bool, name String, domain String, fetcher String, reason String, author String
INSERT INTO scopes (scope, active, name, domain, fetcher, reason, author)
SELECT {scope:String}, {active:Bool}, {name:String}, {domain:String}, {fetcher:String}, {reason:String}, {author:String}
