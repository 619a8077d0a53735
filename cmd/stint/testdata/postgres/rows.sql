-- Two hosts with a few tasks, for the queries of examples/postgres. All times are relative
-- to the transaction's, or in January 2024.
INSERT INTO mirrors (host, state_dir, generation, seq, settings, version, updated_at, worker_id) VALUES
    ('ana', '/home/ana/.local/state/stint', 2, 412, '', '1.4', now() - interval '3 seconds', '00000000-0000-0000-0000-00000000000a'),
    ('build', '/var/lib/stint', 1, 0, '', '1.3', now() - interval '2 days', NULL);
INSERT INTO worker_registry (worker_id, hostname, pid, last_heartbeat) VALUES
    ('00000000-0000-0000-0000-00000000000a', 'ana', 4711, now() - interval '5 seconds');

INSERT INTO tasks (id, ref, host, generation, tenant_id, queue, status, prompt, attempt, retries, limit_waits, reason, error_message,
    verify_command, triggered_by, trigger, scheduled_at, next_attempt_at, held, finished_at, created_at, cost_usd) VALUES
    ('019ab3f0-0000-7000-8000-000000000001', NULL, 'ana', 2, 'shop', 'default', 'deadletter', E'Mend the login\nand keep it small', 3, 1, 0, 'verify',
        'it never passed', 'go test ./...', NULL, NULL, now(), NULL, FALSE, now() - interval '1 day', now() - interval '9 days', 1.5),
    ('019ab3f0-0000-7000-8000-000000000002', NULL, 'ana', 2, 'shop', 'default', 'succeeded', 'Say why it failed', 1, 0, 0, NULL,
        NULL, 'make check', '019ab3f0-0000-7000-8000-000000000001', 'failure', now(), NULL, FALSE, now() - interval '1 hour', now() - interval '8 days', 0.25),
    ('019ab3f0-0000-7000-8000-000000000003', 'docs', 'ana', 2, 'shop', 'default', 'failed', 'Translate the docs', 1, 0, 4, 'auth',
        'not logged in', NULL, '019ab3f0-0000-7000-8000-000000000002', 'agent', now(), NULL, FALSE, now() - interval '2 hours', now() - interval '7 days', 0),
    ('019ab3f0-0000-7000-8000-000000000004', NULL, 'ana', 2, 'shop', 'default', 'queued', 'Next', 0, 0, 0, NULL,
        NULL, NULL, NULL, NULL, now() - interval '90 minutes', NULL, FALSE, NULL, now() - interval '90 minutes', 0),
    ('019ab3f0-0000-7000-8000-000000000005', NULL, 'ana', 2, 'shop', 'default', 'queued', 'Held', 0, 0, 0, NULL,
        NULL, NULL, NULL, NULL, now() - interval '3 days', NULL, TRUE, NULL, now() - interval '3 days', 0),
    ('019ab3f0-0000-7000-8000-000000000006', NULL, 'ana', 2, 'default', 'night', 'queued', 'Later', 1, 0, 0, 'network',
        NULL, NULL, NULL, NULL, now() - interval '3 days', now() + interval '1 hour', FALSE, NULL, now() - interval '3 days', 0),
    ('019ab3f0-0000-7000-8000-000000000007', NULL, 'build', 1, 'default', 'default', 'running', 'Build', 1, 0, 0, NULL,
        NULL, NULL, NULL, NULL, now(), NULL, FALSE, NULL, now(), 0),
    ('019ab3f0-0000-7000-8000-000000000008', 'docs', 'build', 0, 'default', 'default', 'failed', 'Of a ledger that was there before', 1, 0, 0, 'exit',
        'long ago', NULL, NULL, NULL, '2024-01-01', NULL, FALSE, '2024-01-02', '2024-01-01', 0);

INSERT INTO task_runs (id, task_id, host, number, attempt, phase, status, reason, exit_code, agent, model, account, started_at, finished_at,
    latency_ms, tokens_used, input_tokens, cached_input_tokens, output_tokens, cost_usd) VALUES
    -- in the week of Monday, 1 January 2024; on its last evening one more, and that night another one
    ('00000000-0000-0000-0000-000000000011', '019ab3f0-0000-7000-8000-000000000008', 'build', 1, 1, NULL, 'failed', 'exit', 1, 'codex', 'big', 'codex',
        '2024-01-01 00:00', '2024-01-01 00:01', 60000, 110, 100, 60, 10, 1.25),
    ('00000000-0000-0000-0000-000000000012', '019ab3f0-0000-7000-8000-000000000008', 'build', 2, 1, 'evaluate', 'succeeded', NULL, NULL, 'claude', 'small', 'claude',
        '2024-01-02 00:00', '2024-01-02 00:01', 60000, 22, 20, 0, 2, 0.125),
    ('00000000-0000-0000-0000-000000000013', '019ab3f0-0000-7000-8000-000000000008', 'build', 3, 1, NULL, 'succeeded', NULL, NULL, 'codex', 'big', 'codex',
        '2024-01-07 23:00', '2024-01-07 23:59', 60000, 11, 10, 0, 1, 2),
    ('00000000-0000-0000-0000-000000000014', '019ab3f0-0000-7000-8000-000000000008', 'build', 4, 1, NULL, 'succeeded', NULL, NULL, 'codex', 'big', 'codex',
        '2024-01-07 23:00', '2024-01-08 00:01', 60000, 5, 4, 0, 1, 4),
    -- yesterday
    ('00000000-0000-0000-0000-000000000021', '019ab3f0-0000-7000-8000-000000000001', 'ana', 1, 1, NULL, 'succeeded', NULL, NULL, 'codex', 'big', 'team',
        current_date - interval '14 hours', current_date - interval '12 hours', 7200000, 1000, 900, 0, 100, 1),
    ('00000000-0000-0000-0000-000000000022', '019ab3f0-0000-7000-8000-000000000001', 'ana', 2, 1, 'verify', 'failed', 'verify', 1, NULL, NULL, NULL,
        current_date - interval '12 hours', current_date - interval '12 hours', 61000, 0, 0, 0, 0, 0),
    ('00000000-0000-0000-0000-000000000023', '019ab3f0-0000-7000-8000-000000000001', 'ana', 3, 2, 'verify', 'failed', 'verify', 1, NULL, NULL, NULL,
        current_date - interval '12 hours', current_date - interval '12 hours', 63000, 0, 0, 0, 0, 0),
    ('00000000-0000-0000-0000-000000000024', '019ab3f0-0000-7000-8000-000000000001', 'ana', 4, 3, 'verify', 'succeeded', NULL, 0, NULL, NULL, NULL,
        current_date - interval '12 hours', current_date - interval '12 hours', 3000, 0, 0, 0, 0, 0),
    ('00000000-0000-0000-0000-000000000025', '019ab3f0-0000-7000-8000-000000000002', 'ana', 1, 1, 'verify', 'succeeded', NULL, 0, NULL, NULL, NULL,
        current_date - interval '12 hours', current_date - interval '12 hours', 90000, 0, 0, 0, 0, 0),
    ('00000000-0000-0000-0000-000000000026', '019ab3f0-0000-7000-8000-000000000003', 'ana', 1, 1, NULL, 'failed', 'rate-limited', NULL, 'codex', 'big', 'team',
        current_date - interval '12 hours', current_date - interval '11 hours', 1800000, 50, 50, 0, 0, 0.5);

INSERT INTO task_files (id, task_id, run_id, host, path, is_input, content, size_bytes, storage_url, sha256) VALUES
    ('00000000-0000-0000-0000-000000000031', '019ab3f0-0000-7000-8000-000000000003', NULL, 'ana', 'words.txt', TRUE, 'hello', 5, NULL,
        '2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824'),
    ('00000000-0000-0000-0000-000000000032', '019ab3f0-0000-7000-8000-000000000003', '00000000-0000-0000-0000-000000000026', 'ana', 'a/big.bin', FALSE,
        NULL, 5000000, 'file://ana/runs/26/files/a/big.bin', 'ffffffffffffffff'),
    ('00000000-0000-0000-0000-000000000033', '019ab3f0-0000-7000-8000-000000000001', NULL, 'ana', 'other.txt', TRUE, 'no', 2, NULL, NULL);
