-- Statements about replays that only SQLite understands. Those with question marks are run once per row.

-- keep_copies --
INSERT INTO replay_copies (replay_id, job_id) SELECT :replay_id, value FROM json_each(:ids) WHERE true
ON CONFLICT DO NOTHING RETURNING job_id

-- add_replay_attempts --
INSERT INTO replay_attempts (replay_id, job_id, number, outcome, at_ms, duration_ms, status_code, response, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
