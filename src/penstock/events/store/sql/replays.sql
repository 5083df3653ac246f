-- Statements about replays that both databases understand, in the words of shared.sql.

-- add_replay --
INSERT INTO replays (id, definition, total, requested_at_ms, run, stop_asked)
VALUES (:id, :definition, :total, :requested_at_ms, 1, false)

-- forget_replay_attempts --
DELETE FROM replay_attempts WHERE replay_id IN (SELECT id FROM replays WHERE requested_at_ms < :before_ms)

-- forget_replay_copies --
DELETE FROM replay_copies WHERE replay_id IN (SELECT id FROM replays WHERE requested_at_ms < :before_ms)

-- forget_replay_parts --
DELETE FROM replay_parts WHERE replay_id IN (SELECT id FROM replays WHERE requested_at_ms < :before_ms)

-- forget_replays --
DELETE FROM replays WHERE requested_at_ms < :before_ms

-- replay --
SELECT id, definition, total, requested_at_ms, run, stop_asked, finished_at_ms FROM replays WHERE id = :id

-- size_replay --
UPDATE replays SET total = :total WHERE id = :id AND run = :run

-- newest_replays --
SELECT id, definition, total, requested_at_ms, run, stop_asked, finished_at_ms FROM replays
ORDER BY requested_at_ms DESC, id DESC LIMIT :most

-- go_on_with_replay --
UPDATE replays SET run = run + 1, stop_asked = false, finished_at_ms = NULL WHERE id = :id
RETURNING id, definition, total, requested_at_ms, run, stop_asked, finished_at_ms

-- disown_replay_parts --
UPDATE replay_parts SET owner = NULL, failed = 0, held_back = 0 WHERE replay_id = :id

-- stop_replay --
UPDATE replays SET stop_asked = true WHERE id = :id AND finished_at_ms IS NULL

-- end_replay --
UPDATE replays SET finished_at_ms = :now_ms WHERE id = :id AND run = :run RETURNING id

-- own_replay_part --
INSERT INTO replay_parts AS kept (replay_id, part, owner, done, failed, held_back)
VALUES (:replay_id, :part, :owner, 0, 0, 0)
ON CONFLICT (replay_id, part) DO UPDATE SET owner = excluded.owner, failed = 0, held_back = 0

-- running_replay --
SELECT stop_asked FROM replays WHERE id = :id AND run = :run {for share}

-- advance_replay_part --
UPDATE replay_parts SET done = done + :done, failed = failed + :failed, held_back = held_back + :held_back
WHERE replay_id = :replay_id AND part = :part AND owner = :owner
RETURNING (SELECT stop_asked FROM replays WHERE id = :replay_id)

-- replay_progress --
SELECT CAST(coalesce(sum(done), 0) AS bigint), CAST(coalesce(sum(failed), 0) AS bigint),
    CAST(coalesce(sum(held_back), 0) AS bigint)
FROM replay_parts WHERE replay_id = :id

-- replayed_jobs --
SELECT job_id, max(number), max(CASE WHEN outcome = 'DELIVERED' THEN 1 ELSE 0 END)
FROM replay_attempts WHERE replay_id = :replay_id AND job_id {among ids} GROUP BY job_id

-- attempts_of_replay --
SELECT job_id, number, outcome, at_ms, duration_ms, status_code, response, error
FROM replay_attempts WHERE replay_id = :replay_id ORDER BY job_id, number, at_ms

-- jobs_to_replay --
SELECT {job columns} FROM jobs WHERE id {among ids}
UNION ALL
SELECT {job columns} FROM archived_jobs WHERE id {among ids}

-- events_to_replay --
SELECT id, tenant, source, external_id, type, subject, time_ms, data, content_type, group_name, attributes, received_ms
FROM events WHERE id {among ids}

-- kept_events --
SELECT id FROM events WHERE id {among ids}

-- kept_subscriptions --
SELECT id FROM subscriptions WHERE id {among ids}

-- copied_jobs --
SELECT job_id FROM replay_copies WHERE replay_id = :replay_id AND job_id {among ids}
