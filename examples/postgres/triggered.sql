-- Which tasks were queued by other tasks, and why?
-- trigger: failure (that task failed), issue (its answer has findings), agent (its agent
-- asked for it).
WITH RECURSIVE named AS (
    SELECT *, coalesce(ref, id::text) AS name FROM tasks
), chain AS (
    SELECT host, name, NULL::text AS trigger, status, prompt, 0 AS depth, ARRAY[name] AS path
    FROM named
    WHERE triggered_by IS NULL
    UNION ALL
    SELECT n.host, n.name, n.trigger, n.status, n.prompt, c.depth + 1, c.path || n.name
    FROM named n
    JOIN chain c ON n.triggered_by = c.name AND n.host IS NOT DISTINCT FROM c.host
    WHERE NOT n.name = ANY (c.path)
)
SELECT host,
       repeat('  ', depth) || name AS task,
       trigger,
       status,
       left(split_part(prompt, E'\n', 1), 60) AS prompt
FROM chain c
WHERE depth > 0 OR EXISTS (SELECT FROM tasks t WHERE t.triggered_by = c.name AND t.host IS NOT DISTINCT FROM c.host)
ORDER BY host, path;
