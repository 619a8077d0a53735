-- A session may have had thousands of tasks. Of those a lease looks at the ones that are open, and at the last one that was begun.
DROP INDEX idx_tasks_session;
CREATE INDEX idx_tasks_session ON tasks (session_key, tenant_id, created_at, id) WHERE host IS NULL AND status IN ('queued', 'leased', 'running');
CREATE INDEX idx_tasks_session_home ON tasks (session_key, tenant_id, started_at DESC) WHERE host IS NULL AND worker_host IS NOT NULL;
