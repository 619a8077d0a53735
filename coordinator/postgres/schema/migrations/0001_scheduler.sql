-- The tables of a scheduler of coding agents: tasks, their runs and files, and the
-- accounts that they run with.

CREATE TABLE accounts (
    id              TEXT PRIMARY KEY,
    group_name      TEXT NOT NULL UNIQUE,
    tool            TEXT NOT NULL CHECK (tool IN ('codex', 'claude', 'gemini', 'demo')),
    name            TEXT,
    env_vars        JSONB NOT NULL DEFAULT '{}',
    cred_ref        TEXT,
    enabled         BOOLEAN NOT NULL DEFAULT TRUE,
    max_concurrency INT NOT NULL,
    dangerous       BOOLEAN NOT NULL DEFAULT FALSE
);

CREATE TABLE tasks (
    id               UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant_id        TEXT NOT NULL DEFAULT 'default',
    queue            TEXT NOT NULL DEFAULT 'default',
    tool             TEXT CHECK (tool IN ('codex', 'claude', 'gemini', 'demo')),
    model            TEXT,
    status           TEXT NOT NULL DEFAULT 'queued'
                     CHECK (status IN ('draft', 'queued', 'leased', 'running', 'succeeded', 'failed', 'canceled', 'deadletter')),
    priority         INT NOT NULL DEFAULT 5 CHECK (priority BETWEEN 1 AND 9),
    prompt           TEXT,
    input_files      JSONB NOT NULL DEFAULT '[]',
    output_spec      JSONB NOT NULL DEFAULT '[]',
    idempotency_key  TEXT,
    attempt          INT NOT NULL DEFAULT 0,
    max_attempts     INT NOT NULL DEFAULT 3,
    leased_by        TEXT REFERENCES accounts (id),
    lease_expires_at TIMESTAMPTZ,
    scheduled_at     TIMESTAMPTZ NOT NULL DEFAULT now(),
    next_attempt_at  TIMESTAMPTZ,
    result           JSONB,
    error_message    TEXT,
    started_at       TIMESTAMPTZ,
    finished_at      TIMESTAMPTZ,
    created_at       TIMESTAMPTZ NOT NULL DEFAULT now(),
    updated_at       TIMESTAMPTZ NOT NULL DEFAULT now()
);

CREATE TABLE task_runs (
    id           UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    task_id      UUID NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    attempt      INT NOT NULL,
    status       TEXT NOT NULL,
    started_at   TIMESTAMPTZ,
    finished_at  TIMESTAMPTZ,
    exit_code    INT,
    stdout       TEXT,
    stderr       TEXT,
    output_files JSONB,
    tokens_used  BIGINT,
    latency_ms   BIGINT
);

CREATE TABLE task_files (
    id          UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    task_id     UUID NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    path        TEXT NOT NULL,
    is_input    BOOLEAN NOT NULL,
    content     BYTEA,
    size_bytes  BIGINT,
    storage_url TEXT
);

CREATE TABLE worker_registry (
    worker_id      UUID PRIMARY KEY,
    group_name     TEXT,
    hostname       TEXT NOT NULL,
    pid            INT NOT NULL,
    last_heartbeat TIMESTAMPTZ NOT NULL DEFAULT now()
);

CREATE INDEX idx_tasks_fetch ON tasks (status, priority DESC, scheduled_at ASC, created_at ASC) WHERE status IN ('queued', 'leased');
CREATE INDEX idx_tasks_lease ON tasks (lease_expires_at) WHERE status = 'leased';
CREATE INDEX idx_tasks_tenant ON tasks (tenant_id, status);
CREATE INDEX idx_task_runs_task ON task_runs (task_id, attempt);
CREATE INDEX idx_task_files_task ON task_files (task_id, is_input);

-- A plain unique index: any number of tasks may have no key.
CREATE UNIQUE INDEX idx_tasks_idempotency_key ON tasks (idempotency_key);

-- How many runs an account has is counted: a stored counter errs after a crash.
CREATE VIEW concurrency_limits AS
SELECT 'account:' || a.id AS scope,
       a.max_concurrency AS max_concurrent,
       (SELECT count(*)::int FROM tasks t WHERE t.leased_by = a.id AND t.status IN ('leased', 'running')) AS current_concurrent
FROM accounts a;

CREATE VIEW worker_groups AS
SELECT a.group_name,
       a.tool,
       a.name AS account_name,
       a.max_concurrency AS max_concurrent,
       c.current_concurrent,
       a.env_vars
FROM accounts a
JOIN concurrency_limits c ON c.scope = 'account:' || a.id;

COMMENT ON TABLE accounts IS 'What an agent logs in with. Secrets are never here: env_vars names variables and files, cred_ref a path.';
COMMENT ON TABLE tasks IS 'One prompt to be carried out.';
COMMENT ON COLUMN tasks.tool IS 'The agent. NULL: not decided yet, or none of those that the check names.';
COMMENT ON COLUMN tasks.priority IS '1 to 9, 9 first.';
COMMENT ON COLUMN tasks.output_spec IS 'Paths of files to collect after a run.';
COMMENT ON COLUMN tasks.attempt IS 'The tries so far. Waiting for a slot or for a rate limit is none.';
COMMENT ON COLUMN tasks.leased_by IS 'The account that a run of it has now.';
COMMENT ON COLUMN tasks.scheduled_at IS 'When it is to be started at the earliest.';
COMMENT ON COLUMN tasks.next_attempt_at IS 'When it is tried again.';
COMMENT ON COLUMN tasks.result IS '{"files": [...], "exit_code": 0}';
COMMENT ON TABLE task_runs IS 'One execution of an agent or of a verify command for a task.';
COMMENT ON COLUMN task_runs.stdout IS 'Head and tail, if it is long.';
COMMENT ON COLUMN task_runs.stderr IS 'Head and tail, if it is long.';
COMMENT ON COLUMN task_runs.output_files IS 'What was collected after the run, without content.';
COMMENT ON TABLE task_files IS 'Files that came with a task or were collected after a run.';
COMMENT ON COLUMN task_files.content IS 'NULL: a large one, see storage_url.';
COMMENT ON COLUMN task_files.storage_url IS 'Where a large file is.';
COMMENT ON TABLE worker_registry IS 'Processes that write here; a master of this host that was killed stays until the next one begins, with its last heartbeat.';
COMMENT ON VIEW concurrency_limits IS 'How many runs each account may have, and has.';
COMMENT ON VIEW worker_groups IS 'The accounts by the names that workers use.';
