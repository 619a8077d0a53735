WITH given AS (
	SELECT * FROM json_to_recordset($1) AS g(id uuid, tool text, model text, account text, "tenantId" text, queue text, "sessionKey" text, label text, priority int, prompt text,
		"outputSpec" jsonb, "verifyCommand" text, extra jsonb, "idempotencyKey" text, "maxAttempts" int, "scheduledAt" timestamptz, files jsonb)
), made AS (
	INSERT INTO tasks (id, tool, model, account, tenant_id, queue, session_key, label, priority, prompt, input_files, output_spec, verify_command, extra, idempotency_key, max_attempts, scheduled_at)
	SELECT id, tool, model, account, "tenantId", queue, "sessionKey", label, priority, prompt,
		CASE WHEN files IS NULL THEN '[]' ELSE (SELECT jsonb_agg(jsonb_build_object('name', f->>'path', 'size', f->'size', 'sha256', f->>'sha256')) FROM jsonb_array_elements(files) f) END,
		coalesce("outputSpec", '[]'), "verifyCommand", coalesce(extra, '{}'), "idempotencyKey", "maxAttempts", greatest("scheduledAt", now())
	FROM given, (SELECT set_config('stint.tells', 'no', TRUE), CASE WHEN $2 THEN pg_notify('stint_queue', '')::text END) told
	ON CONFLICT DO NOTHING RETURNING id, scheduled_at, created_at
) SELECT id::text, scheduled_at, created_at FROM made
