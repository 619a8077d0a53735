-- What has each account used, day by day, in the last 30 days?
SELECT coalesce(finished_at, started_at)::date AS day,
       host,
       account,
       count(*) AS runs,
       count(*) FILTER (WHERE reason = 'rate-limited') AS rate_limited,
       round(sum(latency_ms) / 3600000.0, 1) AS hours,
       sum(tokens_used) AS tokens,
       round(sum(cost_usd)::numeric, 2) AS cost_usd
FROM task_runs
WHERE phase IS DISTINCT FROM 'verify' AND coalesce(finished_at, started_at) > now() - interval '30 days'
GROUP BY day, host, account
ORDER BY day DESC, tokens DESC, host, account;
