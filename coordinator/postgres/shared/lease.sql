WITH room AS ( -- the account is locked by the statement before, so nobody else counts now
	SELECT a.id, a.tool, least(@most, a.max_concurrency - (SELECT count(*) FROM tasks l WHERE l.host IS NULL AND l.leased_by = a.id AND l.status IN ('leased', 'running'))) AS free
	FROM accounts a WHERE a.id = @account AND a.host IS NULL AND a.enabled AND NOT a.held AND (a.cool_until IS NULL OR a.cool_until <= now())
), picked AS (
	SELECT t.id FROM tasks t, room WHERE t.host IS NULL AND t.status = 'queued' AND NOT t.held AND (nullif(t.lease_expires_at, 'infinity') < now()) IS NOT FALSE
		AND t.scheduled_at <= now() AND (t.next_attempt_at IS NULL OR t.next_attempt_at <= now())
		AND (t.tool = room.tool OR t.tool IS NULL) AND (t.account IS NULL OR t.account = room.id) AND (@tenant = '' OR t.tenant_id = @tenant) AND (@queue = '' OR t.queue = @queue)
		-- A task that is in a session waits for those before it, and for the host that has its conversation as long as a worker is alive
		-- there that has an account for it.
		AND (t.session_key IS NULL OR NOT EXISTS (SELECT FROM tasks s WHERE s.host IS NULL AND s.tenant_id = t.tenant_id AND s.session_key = t.session_key
			AND s.status IN ('queued', 'leased', 'running') AND (s.status <> 'queued' OR s.scheduled_at <= now() AND (s.created_at, s.id) < (t.created_at, t.id)))
		AND NOT EXISTS (SELECT FROM worker_registry w WHERE w.hostname <> @host AND w.group_name IS NOT NULL AND w.last_heartbeat > now() - 3 * @ttl::interval
			AND w.hostname = (SELECT s.worker_host FROM tasks s WHERE s.host IS NULL AND s.tenant_id = t.tenant_id AND s.session_key = t.session_key AND s.worker_host IS NOT NULL ORDER BY s.started_at DESC LIMIT 1)
			AND EXISTS (SELECT FROM accounts a WHERE a.host IS NULL AND a.enabled AND a.id = ANY(string_to_array(w.group_name, ','))
				AND a.tool = coalesce(t.tool, a.tool) AND a.id = coalesce(t.account, a.id))))
	ORDER BY t.priority DESC, t.created_at, t.id LIMIT (SELECT greatest(free, 0) FROM room) FOR UPDATE OF t SKIP LOCKED
), taken AS (
	-- ARRAY lets the planner expect few rows, however many wait. An attempt that another program set as high as it can be begins again.
	UPDATE tasks t SET status = 'leased', leased_by = @account, tool = coalesce(t.tool, (SELECT tool FROM room)), attempt = t.attempt % 2147483647 + 1, worker_id = @worker,
		worker_host = @host, lease_expires_at = now() + @ttl::interval, next_attempt_at = NULL, reason = NULL, error_message = NULL, started_at = now(), updated_at = now(),
		note = 'the conversation of session ' || t.session_key || ' is on '
			|| nullif((SELECT s.worker_host FROM tasks s WHERE s.host IS NULL AND s.tenant_id = t.tenant_id AND s.session_key = t.session_key AND s.worker_host IS NOT NULL ORDER BY s.started_at DESC LIMIT 1), @host)
			|| ', which has no worker for it any more; a new one was begun'
	WHERE t.id = ANY(ARRAY(SELECT id FROM picked)) RETURNING t.*
)
