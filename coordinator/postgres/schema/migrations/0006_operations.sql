-- The tables of operations: what is to be done, how jobs went, the resources of servers and what instances have used. They are
-- copies of jobs.md and of the files of a master's state directory; host says of which.
CREATE TABLE task_queue (
    id         TEXT NOT NULL,
    type       TEXT NOT NULL,
    payload    JSONB,
    status     TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'running', 'done', 'failed')),
    attempts   INT NOT NULL DEFAULT 0,
    error      TEXT,
    created_at TIMESTAMPTZ(3) NOT NULL DEFAULT now(),
    updated_at TIMESTAMPTZ(3) NOT NULL DEFAULT now(),
    host       TEXT NOT NULL,
    PRIMARY KEY (host, id)
);

CREATE TABLE job_runs (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_name    TEXT NOT NULL,
    status      TEXT NOT NULL CHECK (status IN ('ok', 'error', 'skipped')),
    duration_ms INT,
    detail      TEXT,
    ran_at      TIMESTAMPTZ(3) NOT NULL DEFAULT now(),
    host        TEXT NOT NULL,
    UNIQUE (host, ran_at, job_name)
);
CREATE INDEX idx_job_ran ON job_runs (job_name, ran_at);

CREATE TABLE server_metrics (
    id            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    server_id     TEXT NOT NULL,
    cpu_pct       REAL,
    mem_used_mb   INT,
    mem_total_mb  INT,
    disk_used_gb  REAL,
    disk_total_gb REAL,
    load_1m       REAL,
    sampled_at    TIMESTAMPTZ(3) NOT NULL DEFAULT now(),
    host          TEXT NOT NULL,
    UNIQUE (host, sampled_at, server_id)
);
CREATE INDEX idx_server_time ON server_metrics (server_id, sampled_at);

CREATE TABLE usage_daily (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance_id TEXT NOT NULL,
    date        DATE NOT NULL,
    requests    INT NOT NULL DEFAULT 0,
    tokens      BIGINT NOT NULL DEFAULT 0,
    cost_usd    DECIMAL(10,6) NOT NULL DEFAULT 0,
    updated_at  TIMESTAMPTZ(3) NOT NULL DEFAULT now(),
    host        TEXT NOT NULL,
    CONSTRAINT uk_inst_date UNIQUE (host, instance_id, date)
);

COMMENT ON TABLE task_queue IS 'Due jobs: pending is queued, done succeeded, and failed also a dead letter. payload says what it is about.';
COMMENT ON TABLE job_runs IS 'How the firings of schedules went.';
COMMENT ON TABLE server_metrics IS 'Samples of the resources of servers: the file system is that of /, sizes are of 2^20 and 2^30 bytes.';
COMMENT ON TABLE usage_daily IS 'What the virtual key of an instance was used for, by days in UTC.';
