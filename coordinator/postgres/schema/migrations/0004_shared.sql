-- The shared queue: tasks that are no host's (host IS NULL), which workers on any machine lease and run.

ALTER TABLE tasks
    ADD COLUMN output_files JSONB,
    ADD COLUMN worker_id UUID, ADD COLUMN worker_host TEXT,
    ADD COLUMN cancel_requested BOOLEAN NOT NULL DEFAULT FALSE;

-- Tasks of one statement have an order.
ALTER TABLE tasks ALTER COLUMN created_at SET DEFAULT clock_timestamp();

ALTER TABLE worker_registry
    ADD COLUMN state_dir TEXT, ADD COLUMN processes INT, ADD COLUMN draining BOOLEAN NOT NULL DEFAULT FALSE,
    ADD COLUMN version TEXT, ADD COLUMN started_at TIMESTAMPTZ NOT NULL DEFAULT now();

-- So far all are masters that keep a mirror.
UPDATE worker_registry SET group_name = NULL;

-- A mirror has many tasks that are queued or running; no worker looks at them.
DROP INDEX idx_tasks_fetch;
DROP INDEX idx_tasks_lease;
CREATE INDEX idx_tasks_fetch ON tasks (priority DESC, created_at, id) WHERE host IS NULL AND status = 'queued';
CREATE INDEX idx_tasks_lease ON tasks (lease_expires_at) WHERE host IS NULL AND status IN ('leased', 'running');
CREATE INDEX idx_tasks_session ON tasks (session_key, tenant_id, created_at) WHERE host IS NULL AND session_key IS NOT NULL;

-- What is not there needs no place in an index, each time that a row is written.
DROP INDEX idx_tasks_idempotency_key;
DROP INDEX idx_tasks_host_idempotency_key;
CREATE UNIQUE INDEX idx_tasks_idempotency_key ON tasks (idempotency_key) WHERE host IS NULL AND idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX idx_tasks_host_idempotency_key ON tasks (host, idempotency_key) WHERE host IS NOT NULL;

-- One at a time in a session, whatever workers and people do at the same moment. So far no worker of ours has one.
UPDATE tasks SET status = 'queued' WHERE host IS NULL AND session_key IS NOT NULL AND status IN ('leased', 'running');
CREATE UNIQUE INDEX idx_tasks_session_lease ON tasks (session_key, tenant_id) WHERE host IS NULL AND status IN ('leased', 'running');

-- Producers say what is to be done, and nothing of leases, nor when it was queued. Those of another kind name the files that they
-- want as output_files.
CREATE OR REPLACE FUNCTION stint_queue_task() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.output_spec = '[]' AND NEW.output_files IS NOT NULL THEN
        NEW.output_spec := NEW.output_files;
    END IF;
    NEW.output_files := NULL;
    IF NEW.status IN ('leased', 'running') THEN
        NEW.status := 'queued';
    END IF;
    NEW.leased_by := NULL;
    NEW.lease_expires_at := NULL;
    NEW.worker_id := NULL;
    NEW.worker_host := NULL;
    NEW.started_at := NULL;
    NEW.attempt := 0;
    NEW.retries := 0;
    NEW.created_at := clock_timestamp();
    RETURN NEW;
END $$;
CREATE TRIGGER queue_task BEFORE INSERT ON tasks FOR EACH ROW
    WHEN (NEW.host IS NULL AND (NEW.output_files IS NOT NULL OR NEW.status NOT IN ('draft', 'queued') OR NEW.leased_by IS NOT NULL OR NEW.lease_expires_at IS NOT NULL
        OR NEW.worker_id IS NOT NULL OR NEW.worker_host IS NOT NULL OR NEW.started_at IS NOT NULL OR NEW.attempt <> 0 OR NEW.retries <> 0
        OR NEW.created_at NOT BETWEEN now() AND clock_timestamp()))
    EXECUTE FUNCTION stint_queue_task();

-- What a worker reads at once is bounded; it says itself what is too long for it.
ALTER TABLE tasks ADD CONSTRAINT tasks_size_check CHECK (host IS NOT NULL OR octet_length(coalesce(prompt, '')) + octet_length(coalesce(verify_command, ''))
    + octet_length(input_files::text) + octet_length(output_spec::text) + octet_length(extra::text) <= 8 << 20) NOT VALID;

-- Workers wake up when something was queued, however it came to be. Who sets stint.tells to no notifies them himself.
CREATE OR REPLACE FUNCTION stint_notify_queue() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM new_tasks WHERE host IS NULL AND status = 'queued') THEN
        PERFORM pg_notify('stint_queue', '');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER notify_queue AFTER INSERT ON tasks REFERENCING NEW TABLE AS new_tasks
    FOR EACH STATEMENT WHEN (current_setting('stint.tells', TRUE) IS DISTINCT FROM 'no') EXECUTE FUNCTION stint_notify_queue();

COMMENT ON COLUMN tasks.host IS 'Whose ledger has the task. NULL: it is in the shared queue.';
COMMENT ON COLUMN tasks.output_files IS 'Taken for output_spec when a task is queued; NULL afterwards.';
COMMENT ON COLUMN tasks.worker_id IS 'The worker that leased it last.';
COMMENT ON COLUMN tasks.worker_host IS 'The host of that worker, which has the conversation of its session.';
COMMENT ON COLUMN tasks.cancel_requested IS 'Its worker is to end it.';
COMMENT ON COLUMN tasks.attempt IS 'The tries so far; in the shared queue, the leases so far: only the newest one may write. Waiting for a slot or for a rate limit is none.';
COMMENT ON COLUMN accounts.host IS 'Whose account it is: id begins with it. NULL: of the shared queue.';
COMMENT ON COLUMN worker_registry.group_name IS 'Accounts of a worker, with commas. NULL: a master that keeps a mirror.';
COMMENT ON COLUMN mirrors.worker_id IS 'The process that keeps it, or rebuilds it.';
COMMENT ON TABLE worker_registry IS 'Workers of the shared queue, and masters that keep a mirror. One that was killed stays until its last heartbeat is three leases old.';
COMMENT ON COLUMN worker_registry.processes IS 'Tasks that it runs at the same time.';
COMMENT ON COLUMN worker_registry.draining IS 'It leases nothing more, and ends.';
