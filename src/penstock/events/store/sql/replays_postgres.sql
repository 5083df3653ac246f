-- Statements about replays that only PostgreSQL understands. Those with %b take one array per column.

-- keep_copies --
INSERT INTO replay_copies (replay_id, job_id) SELECT :replay_id, unnest(:ids::text[])
ON CONFLICT DO NOTHING RETURNING job_id

-- add_replay_attempts --
INSERT INTO replay_attempts (replay_id, job_id, number, outcome, at_ms, duration_ms, status_code, response, error)
SELECT * FROM unnest(
    %b::text[], %b::text[], %b::bigint[], %b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::text[], %b::text[]
)
ON CONFLICT DO NOTHING
