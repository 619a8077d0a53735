-- Which verify commands take longest, and how often do they pass?
SELECT t.verify_command,
       count(*) AS runs,
       round(100.0 * count(*) FILTER (WHERE r.exit_code = 0) / count(*)) AS passed_percent,
       round((percentile_cont(0.5) WITHIN GROUP (ORDER BY r.latency_ms) / 1000)::numeric, 1) AS median_seconds,
       round((max(r.latency_ms) / 1000.0), 1) AS longest_seconds,
       round((sum(r.latency_ms) / 60000.0), 1) AS minutes_in_all
FROM task_runs r
JOIN tasks t ON t.id = r.task_id
WHERE r.phase = 'verify' AND r.latency_ms IS NOT NULL
GROUP BY t.verify_command
ORDER BY median_seconds DESC, t.verify_command
LIMIT 20;
