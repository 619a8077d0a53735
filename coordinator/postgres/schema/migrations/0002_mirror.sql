-- What a copy of ledgers needs: whose row it is, how far the copy goes, and what a
-- ledger knows of a task beyond the tables of 0001.

CREATE TABLE mirrors (
    host       TEXT PRIMARY KEY,
    state_dir  TEXT NOT NULL,
    generation BIGINT NOT NULL DEFAULT 0,
    seq        BIGINT NOT NULL DEFAULT 0,
    digest     BYTEA,
    settings   TEXT NOT NULL,
    version    TEXT NOT NULL,
    worker_id  UUID,
    rebuilt_at TIMESTAMPTZ,
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now()
);

ALTER TABLE accounts
    ADD COLUMN host TEXT, ADD COLUMN reason TEXT, ADD COLUMN cool_until TIMESTAMPTZ;

ALTER TABLE tasks
    ADD COLUMN host TEXT, ADD COLUMN ref TEXT, ADD COLUMN generation BIGINT,
    ADD COLUMN session_key TEXT, ADD COLUMN workspace TEXT, ADD COLUMN account TEXT,
    ADD COLUMN agent TEXT, ADD COLUMN resume TEXT, ADD COLUMN agent_session TEXT,
    ADD COLUMN label TEXT, ADD COLUMN after JSONB NOT NULL DEFAULT '[]', ADD COLUMN held BOOLEAN NOT NULL DEFAULT FALSE,
    ADD COLUMN reason TEXT, ADD COLUMN note TEXT, ADD COLUMN run_id TEXT,
    ADD COLUMN retries INT NOT NULL DEFAULT 0, ADD COLUMN limit_waits INT NOT NULL DEFAULT 0, ADD COLUMN iteration INT NOT NULL DEFAULT 0,
    ADD COLUMN verify_command TEXT, ADD COLUMN verify_exit_code INT, ADD COLUMN verify_ms BIGINT,
    ADD COLUMN triggered_by TEXT, ADD COLUMN trigger TEXT, ADD COLUMN answer TEXT,
    ADD COLUMN findings JSONB NOT NULL DEFAULT '[]', ADD COLUMN extra JSONB NOT NULL DEFAULT '{}',
    ADD COLUMN input_tokens BIGINT NOT NULL DEFAULT 0, ADD COLUMN cached_input_tokens BIGINT NOT NULL DEFAULT 0, ADD COLUMN output_tokens BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN reasoning_tokens BIGINT NOT NULL DEFAULT 0, ADD COLUMN cost_usd DOUBLE PRECISION NOT NULL DEFAULT 0;

ALTER TABLE task_runs
    ADD COLUMN host TEXT, ADD COLUMN ref TEXT, ADD COLUMN number INT,
    ADD COLUMN phase TEXT, ADD COLUMN iteration INT,
    ADD COLUMN agent TEXT, ADD COLUMN model TEXT, ADD COLUMN account TEXT,
    ADD COLUMN reason TEXT, ADD COLUMN run_dir TEXT,
    ADD COLUMN stdout_bytes BIGINT, ADD COLUMN stderr_bytes BIGINT,
    ADD COLUMN input_tokens BIGINT, ADD COLUMN cached_input_tokens BIGINT, ADD COLUMN output_tokens BIGINT,
    ADD COLUMN reasoning_tokens BIGINT, ADD COLUMN cost_usd DOUBLE PRECISION;

ALTER TABLE task_files
    ADD COLUMN host TEXT,
    ADD COLUMN run_id UUID REFERENCES task_runs (id) ON DELETE CASCADE,
    ADD COLUMN sha256 TEXT;

-- Each ledger has keys of its own, and so have the tasks that are in none.
DROP INDEX idx_tasks_idempotency_key;
CREATE UNIQUE INDEX idx_tasks_idempotency_key ON tasks (idempotency_key) WHERE host IS NULL;
CREATE UNIQUE INDEX idx_tasks_host_idempotency_key ON tasks (host, idempotency_key);

CREATE INDEX idx_tasks_leased_by ON tasks (leased_by) WHERE leased_by IS NOT NULL;
CREATE INDEX idx_task_runs_finished ON task_runs (finished_at);
CREATE INDEX idx_task_files_run ON task_files (run_id);

COMMENT ON TABLE mirrors IS 'The copy of one ledger.';
COMMENT ON COLUMN mirrors.host IS 'Name of the machine, or what is configured.';
COMMENT ON COLUMN mirrors.state_dir IS 'Whose ledger it is a copy of.';
COMMENT ON COLUMN mirrors.generation IS 'Counts up with each rebuild: rows of another one are not its own any more.';
COMMENT ON COLUMN mirrors.seq IS 'All records up to this one are in the copy; 0: it is being built.';
COMMENT ON COLUMN mirrors.digest IS 'SHA-256 of that record: another ledger has another one there.';
COMMENT ON COLUMN mirrors.settings IS 'What rows depend on beside the ledger.';
COMMENT ON COLUMN mirrors.version IS 'Of the stint that wrote last.';
COMMENT ON COLUMN mirrors.worker_id IS 'The process that rebuilt it last.';
COMMENT ON COLUMN mirrors.updated_at IS 'When it was last known to be as far as seq says.';
COMMENT ON COLUMN accounts.host IS 'Whose account it is: id and group_name begin with it.';
COMMENT ON COLUMN accounts.reason IS 'Why it is not enabled, or cools down.';
COMMENT ON COLUMN tasks.host IS 'Whose ledger has the task.';
COMMENT ON COLUMN tasks.ref IS 'Its id there, if that is no UUID.';
COMMENT ON COLUMN tasks.generation IS 'The generation of its mirror that wrote the row.';
COMMENT ON COLUMN tasks.agent IS 'As the ledger has it.';
COMMENT ON COLUMN tasks.after IS 'Ids, as the ledger has them, of the tasks that it waits for.';
COMMENT ON COLUMN tasks.held IS 'A person, or a crash, has stopped it from being started.';
COMMENT ON COLUMN tasks.reason IS 'Class of its failure, or of the last one if it waits for another try.';
COMMENT ON COLUMN tasks.run_id IS 'Its last run, by the id that the ledger has.';
COMMENT ON COLUMN tasks.retries IS 'How often it was interrupted by us; that is no attempt.';
COMMENT ON COLUMN tasks.limit_waits IS 'How often a provider asked to come back later; that is no attempt.';
COMMENT ON COLUMN tasks.triggered_by IS 'The task that queued it, by the id that the ledger has.';
COMMENT ON COLUMN tasks.trigger IS 'Why that task did: failure, issue or agent.';
COMMENT ON COLUMN tasks.verify_ms IS 'How long its last verify command took.';
COMMENT ON COLUMN tasks.answer IS 'As the ledger has it: head and tail of a long one.';
COMMENT ON COLUMN tasks.extra IS 'Further fields, by their names in the ledger.';
COMMENT ON COLUMN task_runs.ref IS 'Its id in the ledger, if that is no UUID.';
COMMENT ON COLUMN task_runs.number IS 'Place among the runs of its task, from 1.';
COMMENT ON COLUMN task_runs.phase IS 'verify or evaluate; NULL: an agent''s turn.';
COMMENT ON COLUMN task_runs.reason IS 'Class of its failure.';
COMMENT ON COLUMN task_runs.run_dir IS 'On its host.';
COMMENT ON COLUMN task_runs.stdout_bytes IS 'The length of all of it.';
COMMENT ON COLUMN task_runs.stderr_bytes IS 'The length of all of it.';
COMMENT ON COLUMN task_files.run_id IS 'The run that made it. NULL: it came with the task.';
