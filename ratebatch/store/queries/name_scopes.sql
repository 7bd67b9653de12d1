-- name:    name_scopes
-- purpose: Stores the names and domains of scopes that a fetcher listed.
-- params:  scopes, names, domains Array(String) (of one length), fetcher String, author String
-- reads:   scopes, small
-- why:     whether a scope is active, and why, stays as it is at this moment: a fetch must not undo a disable.
INSERT INTO scopes (scope, active, name, domain, fetcher, reason, author)
SELECT f.1, if(s.known, s.active, true), f.2, f.3, {fetcher:String}, s.reason, {author:String}
FROM (SELECT arrayJoin(arrayZip({scopes:Array(String)}, {names:Array(String)}, {domains:Array(String)})) AS f) AS l
LEFT JOIN (
    SELECT toString(x.scope) AS scope, argMax(x.active, x.changed_at) AS active, argMax(x.reason, x.changed_at) AS reason, true AS known
    FROM scopes AS x GROUP BY x.scope) AS s ON f.1 = s.scope
