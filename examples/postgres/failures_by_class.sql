-- How did runs and tasks fail in the last 30 days, and what was said last?
-- A run that failed may have been tried again: failed_tasks are those that were given up.
WITH runs AS (
    SELECT coalesce(reason, 'not known') AS class, count(*) AS n
    FROM task_runs
    WHERE status = 'failed' AND finished_at > now() - interval '30 days'
    GROUP BY class
), given_up AS (
    SELECT coalesce(reason, 'not known') AS class,
           count(*) AS n,
           count(*) FILTER (WHERE status = 'deadletter') AS dead,
           (array_agg(error_message ORDER BY finished_at DESC))[1] AS last_error
    FROM tasks
    WHERE status IN ('failed', 'deadletter') AND finished_at > now() - interval '30 days'
    GROUP BY class
)
SELECT class,
       coalesce(runs.n, 0) AS failed_runs,
       coalesce(given_up.n, 0) AS failed_tasks,
       coalesce(given_up.dead, 0) AS of_these_dead,
       given_up.last_error
FROM runs
FULL JOIN given_up USING (class)
ORDER BY failed_tasks DESC, failed_runs DESC, class;
