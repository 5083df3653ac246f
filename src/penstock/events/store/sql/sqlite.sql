-- Statements that only SQLite understands. Those with question marks are run once per row, or, if the row is a list of
-- VALUES, with a number of rows at a time.

-- insert_jobs --
INSERT INTO jobs (
    id, tenant, type, event_id, subscription_id, group_name, group_key, sequence, mode, state, target, pool, payload,
    content_type, headers, idempotency_key, scheduled_for_ms, due_at_ms, expires_at_ms, created_at_ms, updated_at_ms,
    key_sequence, attempt_count, delivery_count, publish_round
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0)
ON CONFLICT DO NOTHING

-- take_key_numbers --
INSERT INTO key_sequences (subscription_id, group_name, tenant, last, used_day)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'),
    :day
FROM json_each(:keys) WHERE true
ON CONFLICT (subscription_id, group_name) DO UPDATE
SET last = key_sequences.last + excluded.last, used_day = excluded.used_day
RETURNING subscription_id, group_name, last

-- insert_events --
INSERT INTO events (
    id, tenant, source, external_id, type, subject, time_ms, data, content_type, group_name, attributes, received_ms,
    fanned_out
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- call_lanes --
INSERT INTO lanes (group_key, ordered, subscription_id, pool, turn, awake, in_flight) VALUES (?, ?, ?, ?, ?, true, 0)
ON CONFLICT (group_key, ordered) DO UPDATE SET awake = true WHERE NOT awake AND in_flight = 0 AND waits_for IS NULL

-- wake_lanes --
INSERT INTO lanes (group_key, ordered, subscription_id, pool, turn, awake, in_flight) VALUES (?, ?, ?, ?, ?, true, 0)
ON CONFLICT (group_key, ordered) DO UPDATE SET awake = (in_flight = 0), waits_for = NULL

-- take_turns --
UPDATE lane_turns SET last = last + :count RETURNING last

-- drop_empty_lanes --
DELETE FROM lanes WHERE group_key = ?1 AND ordered = ?2 AND NOT EXISTS (
    SELECT 1 FROM jobs {by jobs_ready} WHERE state = {READY} AND jobs.group_key = ?1 AND (mode > 0) = ?2
)

-- park_lanes --
UPDATE lanes SET awake = false, waits_for = ?3 WHERE group_key = ?1 AND ordered = ?2

-- move_lanes --
UPDATE lanes SET pool = ?3 WHERE group_key = ?1 AND ordered = ?2

-- claim_lanes --
UPDATE lanes SET in_flight = 1, awake = false, waits_for = NULL, claimed_by = :owner, claimed_until_ms = :until_ms
FROM json_each(:lanes) AS wanted
WHERE group_key = json_extract(wanted.value, '$[0]') AND ordered = json_extract(wanted.value, '$[1]')
  AND turn = json_extract(wanted.value, '$[2]') AND (in_flight = 0 OR claimed_by = :owner)
RETURNING group_key, ordered, subscription_id

-- queue_published --
WITH published (id, publish_round, lease_until_ms, now_ms) AS (VALUES (?, ?, ?, ?))
UPDATE jobs SET state = {QUEUED}, lease_until_ms = published.lease_until_ms, updated_at_ms = published.now_ms
FROM published
WHERE jobs.id = published.id AND jobs.publish_round = published.publish_round AND jobs.state + 0 = {READY}

-- drop_landed_lanes --
DELETE FROM lanes WHERE group_key = ?1 AND ordered = ?2 AND claimed_by = ?3 AND NOT EXISTS (
    SELECT 1 FROM jobs {by jobs_ready} WHERE state = {READY} AND jobs.group_key = ?1 AND (mode > 0) = ?2
)

-- land_claimed_lanes --
UPDATE lanes SET in_flight = 0, awake = (?5 IS NULL), turn = ?4, waits_for = ?5, claimed_by = NULL,
    claimed_until_ms = NULL
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

-- lane_on_its_way --
SELECT id FROM jobs {by jobs_on_their_way}
WHERE {is on its way jobs} AND pool = :pool AND group_key = :group_key AND mode > 0 ORDER BY id LIMIT :most

-- next_stream --
SELECT pool, coalesce(subscription_id, '') AS subscription, turn FROM lanes {by lanes_awake}
WHERE awake AND (pool, coalesce(subscription_id, '')) > (:pool, :subscription)
ORDER BY pool, coalesce(subscription_id, ''), turn LIMIT 1

-- awake_lanes_of_stream --
SELECT group_key, ordered, turn, {is paused lanes}, pool, coalesce(subscription_id, '') FROM lanes {by lanes_awake}
WHERE awake AND pool = :pool AND coalesce(subscription_id, '') = :subscription ORDER BY turn LIMIT :most

-- jobs_on_their_way --
SELECT coalesce(subscription_id, ''), count(*) FROM (
    SELECT subscription_id FROM jobs {by jobs_on_their_way}
    WHERE {is on its way jobs} AND pool = :pool LIMIT :most
)
GROUP BY 1

-- awake_range_of_stream --
SELECT min(turn), max(turn), count(*) FROM (
    SELECT turn FROM lanes {by lanes_awake}
    WHERE awake AND pool = :pool AND coalesce(subscription_id, '') = :subscription ORDER BY turn LIMIT :most
)

-- lanes_of_range --
SELECT group_key, ordered, turn, {is paused lanes}, pool FROM lanes {by lanes_awake}
WHERE awake AND pool = :pool AND coalesce(subscription_id, '') = :subscription AND turn BETWEEN :first AND :last
UNION ALL
SELECT group_key, ordered, turn, {is paused lanes}, pool FROM lanes {by lanes_claimed}
WHERE claimed_until_ms IS NOT NULL AND claimed_by = :owner AND pool = :pool
  AND coalesce(subscription_id, '') = :subscription AND turn BETWEEN :first AND :last
ORDER BY turn

-- claimed_lanes_of_range --
SELECT group_key, ordered, turn, {is paused lanes}, pool FROM lanes {by lanes_claimed}
WHERE claimed_until_ms IS NOT NULL AND claimed_by = :owner AND turn BETWEEN :first AND :last ORDER BY turn

-- finish_jobs --
-- The columns are those of EndedDelivery in repository/deliveries.py.
WITH ended (
    id, number, state, spent, rounds, due_at_ms, lease_until_ms, now_ms, finished_at_ms, outcome, at_ms, duration_ms,
    status_code, response, error
) AS (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?))
UPDATE jobs SET state = ended.state, delivery_count = ended.number, attempt_count = attempt_count + ended.spent,
    publish_round = publish_round + ended.rounds, due_at_ms = coalesce(ended.due_at_ms, jobs.due_at_ms), owner = NULL,
    lease_until_ms = ended.lease_until_ms, updated_at_ms = ended.now_ms, finished_at_ms = ended.finished_at_ms,
    last_error = ended.error
FROM ended
WHERE jobs.id = ended.id AND jobs.state + 0 IN ({READY}, {QUEUED}) AND jobs.delivery_count = ended.number - 1
RETURNING jobs.id, jobs.delivery_count

-- add_attempts --
INSERT INTO attempts (job_id, number, outcome, at_ms, duration_ms, status_code, response, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- add_pool_queues --
INSERT INTO pool_queues (code) VALUES (?) ON CONFLICT DO NOTHING

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
