-- What waits, and for how long, in each queue and for each tenant?
-- later: not before a time that is still to come. waiting_longest: since the oldest of the
-- others was to be started.
SELECT tenant_id AS tenant,
       queue,
       count(*) AS waiting,
       count(*) FILTER (WHERE held) AS held,
       count(*) FILTER (WHERE NOT held AND due > now()) AS later,
       date_trunc('second', now() - min(due) FILTER (WHERE NOT held AND due <= now())) AS waiting_longest
FROM (
    SELECT *, coalesce(next_attempt_at, scheduled_at) AS due
    FROM tasks
    WHERE status = 'queued'
) q
GROUP BY tenant_id, queue
ORDER BY waiting_longest DESC NULLS LAST, waiting DESC, tenant, queue;
