-- What a copy of ledgers needs: whose row it is, how far the copy goes, and what a
-- ledger knows of a task beyond the tables of 0001.

-- A mirror is the copy of one ledger.
CREATE TABLE mirrors (
    host       TEXT PRIMARY KEY,          -- name of the machine, or what is configured
    state_dir  TEXT NOT NULL,             -- whose ledger it is a copy of
    generation BIGINT NOT NULL DEFAULT 0, -- counts up with each rebuild: rows of another one are not its own any more
    seq        BIGINT NOT NULL DEFAULT 0, -- all records up to this one are in the copy; 0: it is being built
    digest     BYTEA,                     -- SHA-256 of that record: another ledger has another one there
    settings   TEXT NOT NULL,             -- what rows depend on beside the ledger
    version    TEXT NOT NULL,             -- of the stint that wrote last
    rebuilt_at TIMESTAMPTZ,
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now()
);

ALTER TABLE accounts
    ADD COLUMN host TEXT, -- of a mirror: id and group_name begin with it
    ADD COLUMN reason TEXT, -- why it is not enabled, or cools down
    ADD COLUMN cool_until TIMESTAMPTZ;

ALTER TABLE tasks
    ADD COLUMN host TEXT,         -- whose ledger has the task
    ADD COLUMN ref TEXT,          -- its id there, if that is no UUID
    ADD COLUMN generation BIGINT, -- see mirrors
    ADD COLUMN session_key TEXT,
    ADD COLUMN workspace TEXT,
    ADD COLUMN account TEXT,
    ADD COLUMN agent TEXT, -- as the ledger has it
    ADD COLUMN resume TEXT,
    ADD COLUMN agent_session TEXT,
    ADD COLUMN label TEXT,
    ADD COLUMN after JSONB NOT NULL DEFAULT '[]',
    ADD COLUMN held BOOLEAN NOT NULL DEFAULT FALSE,
    ADD COLUMN reason TEXT, -- class of its failure
    ADD COLUMN note TEXT,
    ADD COLUMN run_id TEXT,
    ADD COLUMN retries INT NOT NULL DEFAULT 0,
    ADD COLUMN limit_waits INT NOT NULL DEFAULT 0,
    ADD COLUMN iteration INT NOT NULL DEFAULT 0,
    ADD COLUMN verify_command TEXT,
    ADD COLUMN verify_exit_code INT,
    ADD COLUMN verify_ms BIGINT, -- how long its last verify command took
    ADD COLUMN triggered_by TEXT,
    ADD COLUMN trigger TEXT,
    ADD COLUMN answer TEXT, -- as the ledger has it: head and tail of a long one
    ADD COLUMN findings JSONB NOT NULL DEFAULT '[]',
    ADD COLUMN extra JSONB NOT NULL DEFAULT '{}', -- further fields, by their names in the ledger
    ADD COLUMN input_tokens BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN cached_input_tokens BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN output_tokens BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN reasoning_tokens BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN cost_usd DOUBLE PRECISION NOT NULL DEFAULT 0;

ALTER TABLE task_runs
    ADD COLUMN host TEXT,
    ADD COLUMN ref TEXT,     -- its id in the ledger, if that is no UUID
    ADD COLUMN number INT,   -- place among the runs of its task, from 1
    ADD COLUMN phase TEXT,   -- verify or evaluate; NULL: an agent's turn
    ADD COLUMN iteration INT,
    ADD COLUMN agent TEXT,
    ADD COLUMN model TEXT,
    ADD COLUMN account TEXT,
    ADD COLUMN reason TEXT,  -- class of its failure
    ADD COLUMN run_dir TEXT, -- on its host
    ADD COLUMN stdout_bytes BIGINT,
    ADD COLUMN stderr_bytes BIGINT,
    ADD COLUMN input_tokens BIGINT,
    ADD COLUMN cached_input_tokens BIGINT,
    ADD COLUMN output_tokens BIGINT,
    ADD COLUMN reasoning_tokens BIGINT,
    ADD COLUMN cost_usd DOUBLE PRECISION;

ALTER TABLE task_files
    ADD COLUMN host TEXT,
    ADD COLUMN run_id UUID REFERENCES task_runs (id) ON DELETE CASCADE, -- NULL: it came with the task
    ADD COLUMN sha256 TEXT;

-- Each ledger has keys of its own. Tasks without a key do not get into each other's way.
CREATE UNIQUE INDEX idx_tasks_idempotency_key ON tasks (host, idempotency_key);
CREATE INDEX idx_tasks_generation ON tasks (host, generation);
CREATE INDEX idx_tasks_leased_by ON tasks (leased_by) WHERE leased_by IS NOT NULL;
CREATE INDEX idx_task_runs_finished ON task_runs (finished_at);
CREATE INDEX idx_task_files_run ON task_files (run_id);
