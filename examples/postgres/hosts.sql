-- Which hosts have a copy here, how far is it, and is anybody there?
-- copied: how long ago the copy was last known to be complete up to seq; heard: when a
-- master of that host last said that it is alive, if that is not long ago.
SELECT m.host,
       m.version AS stint,
       m.seq,
       m.seq = 0 AS is_being_built,
       date_trunc('second', now() - m.updated_at) AS copied,
       date_trunc('second', now() - w.last_heartbeat) AS heard,
       t.tasks,
       t.waiting,
       t.running
FROM mirrors m
LEFT JOIN worker_registry w ON w.worker_id = m.worker_id
LEFT JOIN LATERAL (
    SELECT count(*) AS tasks,
           count(*) FILTER (WHERE status = 'queued') AS waiting,
           count(*) FILTER (WHERE status = 'running') AS running
    FROM tasks
    WHERE tasks.host = m.host AND tasks.generation = m.generation
) t ON TRUE
ORDER BY copied DESC, m.host;
