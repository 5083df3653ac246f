-- Statements that only SQLite understands. Those with question marks are run once per row.

-- insert_jobs --
INSERT INTO jobs (
    id, tenant, type, event_id, subscription_id, group_name, group_key, sequence, mode, state, target, pool, payload,
    content_type, headers, idempotency_key, scheduled_for_ms, due_at_ms, expires_at_ms, created_at_ms, updated_at_ms,
    attempt_count, delivery_count, publish_round
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0)
ON CONFLICT DO NOTHING

-- insert_events --
INSERT INTO events (
    id, tenant, source, external_id, type, subject, time_ms, data, content_type, group_name, attributes, received_ms,
    fanned_out
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- wake_lanes --
INSERT INTO lanes (group_key, ordered, subscription_id, turn, awake, in_flight) VALUES (?, ?, ?, ?, true, 0)
ON CONFLICT (group_key, ordered) DO UPDATE SET awake = (in_flight = 0)

-- take_turns --
UPDATE lane_turns SET last = last + :count RETURNING last

-- drop_empty_lanes --
DELETE FROM lanes WHERE group_key = ?1 AND ordered = ?2 AND NOT EXISTS (
    SELECT 1 FROM jobs {by jobs_ready} WHERE state = {READY} AND jobs.group_key = ?1 AND (mode > 0) = ?2
)

-- park_lanes --
UPDATE lanes SET awake = false WHERE group_key = ? AND ordered = ?

-- claim_lane --
UPDATE lanes SET in_flight = 1, awake = false, claimed_by = :owner, claimed_until_ms = :until_ms
WHERE group_key = :group_key AND ordered = :ordered AND turn = :turn AND (in_flight = 0 OR claimed_by = :owner)
RETURNING group_key, ordered, subscription_id

-- queue_published --
UPDATE jobs SET state = {QUEUED}, lease_until_ms = ?3, updated_at_ms = ?4
WHERE id = ?1 AND publish_round = ?2 AND state + 0 = {READY}

-- drop_landed_lanes --
DELETE FROM lanes WHERE group_key = ?1 AND ordered = ?2 AND claimed_by = ?3 AND NOT EXISTS (
    SELECT 1 FROM jobs {by jobs_ready} WHERE state = {READY} AND jobs.group_key = ?1 AND (mode > 0) = ?2
)

-- land_claimed_lanes --
UPDATE lanes SET in_flight = 0, awake = true, turn = ?4, claimed_by = NULL, claimed_until_ms = NULL
WHERE group_key = ?1 AND ordered = ?2 AND claimed_by = ?3

-- hold_lanes --
UPDATE lanes SET claimed_until_ms = ?4 WHERE group_key = ?1 AND ordered = ?2 AND claimed_by = ?3

-- unclaim_lanes --
UPDATE lanes SET in_flight = 0, awake = true, claimed_by = NULL, claimed_until_ms = NULL
WHERE group_key = ?1 AND ordered = ?2 AND claimed_until_ms <= ?3

-- first_blocker --
SELECT {position jobs} FROM jobs {by jobs_blocking} WHERE {blocking jobs} AND group_key = :group_key
ORDER BY {position jobs} LIMIT 1

-- first_jobs --
SELECT {lane job jobs} FROM jobs {by jobs_ready}
WHERE {candidate jobs} AND group_key = :group_key AND mode = :mode
ORDER BY {position jobs} LIMIT :share

-- lanes_in_turns --
SELECT group_key, ordered, turn, EXISTS (SELECT 1 FROM subscriptions AS s WHERE s.id = subscription_id AND s.paused)
FROM lanes WHERE turn BETWEEN :first AND :last AND (awake OR claimed_by = :owner) ORDER BY turn

-- deliveries_under_way --
SELECT id, delivery_count FROM jobs WHERE id {among ids} AND state + 0 = {PROCESSING}

-- finish_jobs --
-- The columns are those of EndedDelivery in repository/deliveries.py.
UPDATE jobs SET state = ?3, attempt_count = attempt_count + ?4, publish_round = publish_round + ?5,
    due_at_ms = coalesce(?6, due_at_ms), owner = NULL, lease_until_ms = ?7, updated_at_ms = ?8, finished_at_ms = ?9,
    last_error = ?15
WHERE id = ?1 AND state + 0 = {PROCESSING} AND delivery_count = ?2

-- add_attempts --
INSERT INTO attempts (job_id, number, outcome, at_ms, duration_ms, status_code, response, error)
VALUES (?1, ?2, ?10, ?11, ?12, ?13, ?14, ?15)

-- delete_old_archive --
DELETE FROM archived_jobs WHERE finished_at_ms < :before_ms

-- delete_old_attempts --
DELETE FROM attempts WHERE at_ms < :before_ms

-- put_minutes --
INSERT OR REPLACE INTO statistics_minutes (
    minute_ms, dimension, name, delivered, failed, refused, deferred, busy_ms, latency, waits, waited_ms,
    longest_wait_ms
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- put_leaders --
INSERT OR REPLACE INTO statistics_leaders (minute_ms, leaders) VALUES (?, ?)

-- attempts_to_count --
SELECT job_id, number, outcome, at_ms, duration_ms, status_code, error, position FROM attempts
WHERE position > :position ORDER BY position LIMIT :most
