-- The tables of a scheduler of coding agents: tasks, their runs and files, and the
-- accounts that they run with.

-- An account is what an agent logs in with. Its secrets are never here: env_vars names
-- variables and files, cred_ref a path.
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
    tool             TEXT CHECK (tool IN ('codex', 'claude', 'gemini', 'demo')), -- NULL: not decided yet
    model            TEXT,
    status           TEXT NOT NULL DEFAULT 'queued'
                     CHECK (status IN ('draft', 'queued', 'leased', 'running', 'succeeded', 'failed', 'canceled', 'deadletter')),
    priority         INT NOT NULL DEFAULT 5 CHECK (priority BETWEEN 1 AND 9), -- 9 first
    prompt           TEXT,
    input_files      JSONB NOT NULL DEFAULT '[]',
    output_spec      JSONB NOT NULL DEFAULT '[]', -- paths to collect after a run
    idempotency_key  TEXT,
    attempt          INT NOT NULL DEFAULT 0,
    max_attempts     INT NOT NULL DEFAULT 3,
    leased_by        TEXT REFERENCES accounts (id),
    lease_expires_at TIMESTAMPTZ,
    scheduled_at     TIMESTAMPTZ NOT NULL DEFAULT now(),
    next_attempt_at  TIMESTAMPTZ,
    result           JSONB, -- {"files": [...], "exit_code": 0}
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
    stdout       TEXT, -- head and tail, if it is long
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
    content     BYTEA, -- NULL: a large one, see storage_url
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
