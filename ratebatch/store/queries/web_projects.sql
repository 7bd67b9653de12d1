-- name:    web_projects
-- purpose: Projects that have usage or commits.
-- reads:   instances and the scopes of period_commits
SELECT DISTINCT project FROM (
    SELECT toString(project_id) AS project FROM instances
    UNION ALL SELECT toString(scope) FROM period_commits)
WHERE project != '' ORDER BY project
