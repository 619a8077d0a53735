-- What did each agent and model cost, week by week?
-- A cost is 0 where the agent's CLI does not tell one; the tokens are there all the same.
SELECT date_trunc('week', coalesce(finished_at, started_at))::date AS week,
       agent,
       model,
       count(*) AS runs,
       sum(input_tokens) AS input_tokens,
       sum(cached_input_tokens) AS of_these_cached,
       sum(output_tokens) AS output_tokens,
       round(sum(cost_usd)::numeric, 2) AS cost_usd
FROM task_runs
WHERE phase IS DISTINCT FROM 'verify'
GROUP BY week, agent, model
ORDER BY week DESC, cost_usd DESC, agent, model;
