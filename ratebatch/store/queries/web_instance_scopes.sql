-- name:    web_instance_scopes
-- purpose: The scopes that have lines of one instance by some metrics.
-- params:  instance String, metrics Array(String), from, to DateTime('UTC')
-- reads:   rated_lines of the window by these metrics, every attempt's
-- why:     whoever asks reads the lines of each of these scopes through its commits, so a scope too many does no harm.
SELECT DISTINCT toString(l.scope) AS of_scope
FROM rated_lines AS l
WHERE l.begin >= {from:DateTime('UTC')} AND l.begin < {to:DateTime('UTC')} AND l.metric IN {metrics:Array(String)}
  AND (l.resource = {instance:String} OR startsWith(l.resource, concat({instance:String}, '/')) OR l.attributes['instance_uuid'] = {instance:String})
ORDER BY of_scope
