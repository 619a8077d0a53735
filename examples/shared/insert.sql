-- Queues a shared task from any program that speaks to PostgreSQL: psql -f examples/shared/insert.sql cli_worker
-- With an idempotency key, it is queued once however often it is sent. The trigger of the table copies output_files to output_spec.
INSERT INTO tasks (tool, prompt, input_files, output_files, idempotency_key)
VALUES ('codex', 'Translate notes.md into French, as notes.fr.md.',
        '[{"name": "notes.md", "content": "Good morning."}]', '["notes.fr.md"]', 'notes-fr')
ON CONFLICT DO NOTHING;
