-- Removes all rows of a host that is gone: its copy, and nothing of the host itself.
--   psql -v host=old -f forget_host.sql cli_worker
-- A master there that is still to copy writes all of it anew.
BEGIN;
DELETE FROM tasks WHERE host = :'host'; -- with their runs and files
DELETE FROM accounts WHERE host = :'host';
DELETE FROM worker_registry WHERE worker_id IN (SELECT worker_id FROM mirrors WHERE host = :'host');
DELETE FROM task_queue WHERE host = :'host';
DELETE FROM job_runs WHERE host = :'host';
DELETE FROM server_metrics WHERE host = :'host';
DELETE FROM usage_daily WHERE host = :'host';
DELETE FROM mirrors WHERE host = :'host';
COMMIT;
