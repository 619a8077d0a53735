-- Which tasks needed most tries?
-- attempt counts what was tried, retries our own interruptions, limit_waits the waits for a
-- rate limit, runs all turns and verify commands.
SELECT coalesce(t.ref, t.id::text) AS task,
       t.host,
       t.status,
       t.attempt,
       t.retries,
       t.limit_waits,
       count(r.id) AS runs,
       round(t.cost_usd::numeric, 2) AS cost_usd,
       left(split_part(t.prompt, E'\n', 1), 60) AS prompt
FROM tasks t
LEFT JOIN task_runs r ON r.task_id = t.id
GROUP BY t.id
HAVING t.attempt + t.retries + t.limit_waits > 1
ORDER BY t.attempt + t.retries + t.limit_waits DESC, runs DESC, task
LIMIT 20;
