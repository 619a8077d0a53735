-- Which files came with a task, and which did its runs give?
--   psql -v task=019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11 -f files_of_task.sql
-- The id may be a piece of it. Large files are not in the database: place says where they
-- lay when they were collected, sha256 which they were. The content of a small one, to a file:
--   psql -Atc "SELECT encode(content, 'hex') FROM task_files WHERE id = '...'" | xxd -r -p > FILE
SELECT f.id,
       CASE WHEN f.is_input THEN 'in' ELSE 'out' END AS direction,
       f.path,
       f.size_bytes,
       CASE WHEN f.content IS NOT NULL THEN 'here' ELSE f.storage_url END AS place,
       left(f.sha256, 12) AS sha256,
       r.attempt
FROM task_files f
JOIN tasks t ON t.id = f.task_id
LEFT JOIN task_runs r ON r.id = f.run_id
WHERE strpos(coalesce(t.ref, t.id::text), :'task') > 0
ORDER BY t.created_at, f.is_input DESC, r.number, f.path;
