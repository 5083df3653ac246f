-- Statements that only PostgreSQL understands. Those with %b take one array per column.

-- insert_jobs --
INSERT INTO jobs (
    id, tenant, type, event_id, subscription_id, group_name, group_key, sequence, mode, state, target, pool, payload,
    content_type, headers, idempotency_key, scheduled_for_ms, due_at_ms, expires_at_ms, created_at_ms, updated_at_ms,
    key_sequence, attempt_count, delivery_count, publish_round
)
SELECT *, 0, 0, 0 FROM unnest(
    %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::bigint[], %b::smallint[],
    %b::smallint[], %b::text[], %b::text[], %b::bytea[], %b::text[], %b::text[], %b::text[], %b::bigint[],
    %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[]
)
ON CONFLICT DO NOTHING

-- take_key_numbers --
INSERT INTO key_sequences (subscription_id, group_name, tenant, last, used_day)
SELECT subscription_id, group_name, tenant, wanted, :day
FROM unnest(:subscriptions::text[], :groups::text[], :tenants::text[], :counts::bigint[])
    AS numbered (subscription_id, group_name, tenant, wanted)
ORDER BY subscription_id COLLATE "C", group_name COLLATE "C"
ON CONFLICT (subscription_id, group_name) DO UPDATE
SET last = key_sequences.last + excluded.last, used_day = excluded.used_day
RETURNING subscription_id, group_name, last

-- load_jobs --
COPY jobs (
    id, tenant, type, event_id, subscription_id, group_name, group_key, sequence, mode, state, target, pool, payload,
    content_type, headers, idempotency_key, scheduled_for_ms, due_at_ms, expires_at_ms, created_at_ms, updated_at_ms,
    key_sequence, attempt_count, delivery_count, publish_round
) FROM STDIN (FORMAT binary)

-- insert_events --
INSERT INTO events (
    id, tenant, source, external_id, type, subject, time_ms, data, content_type, group_name, attributes, received_ms,
    fanned_out
)
SELECT * FROM unnest(
    %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::bigint[], %b::bytea[], %b::text[],
    %b::text[], %b::text[], %b::bigint[], %b::smallint[]
)
ON CONFLICT DO NOTHING

-- lock_lanes --
SELECT 1 FROM lanes WHERE group_key = ANY(:group_keys) ORDER BY group_key, ordered FOR UPDATE

-- call_lanes --
-- A lane that need not wake is locked all the same, but not written.
INSERT INTO lanes (group_key, ordered, subscription_id, pool, turn, awake, in_flight)
SELECT group_key, ordered, subscription_id, pool, turn, true, 0
FROM unnest(%b::text[], %b::boolean[], %b::text[], %b::text[], %b::bigint[])
    AS woken (group_key, ordered, subscription_id, pool, turn)
ORDER BY group_key COLLATE "C", ordered
ON CONFLICT (group_key, ordered) DO UPDATE SET awake = true
WHERE NOT lanes.awake AND lanes.in_flight = 0 AND lanes.waits_for IS NULL

-- wake_lanes --
INSERT INTO lanes (group_key, ordered, subscription_id, pool, turn, awake, in_flight)
SELECT group_key, ordered, subscription_id, pool, turn, true, 0
FROM unnest(%b::text[], %b::boolean[], %b::text[], %b::text[], %b::bigint[])
    AS woken (group_key, ordered, subscription_id, pool, turn)
ORDER BY group_key COLLATE "C", ordered
ON CONFLICT (group_key, ordered) DO UPDATE SET awake = (lanes.in_flight = 0), waits_for = NULL

-- take_turns --
SELECT nextval('lane_turns') FROM generate_series(1, :count)

-- drop_empty_lanes --
DELETE FROM lanes USING unnest(%b::text[], %b::boolean[]) AS idle (group_key, ordered)
WHERE lanes.group_key = idle.group_key AND lanes.ordered = idle.ordered AND NOT EXISTS (
    SELECT 1 FROM jobs WHERE state = {READY} AND jobs.group_key = idle.group_key AND (mode > 0) = idle.ordered
)

-- park_lanes --
UPDATE lanes SET awake = false, waits_for = idle.waits_for
FROM unnest(%b::text[], %b::boolean[], %b::text[]) AS idle (group_key, ordered, waits_for)
WHERE lanes.group_key = idle.group_key AND lanes.ordered = idle.ordered

-- move_lanes --
UPDATE lanes SET pool = moved.pool
FROM unnest(%b::text[], %b::boolean[], %b::text[]) AS moved (group_key, ordered, pool)
WHERE lanes.group_key = moved.group_key AND lanes.ordered = moved.ordered

-- claim_lanes --
UPDATE lanes SET in_flight = 1, awake = false, waits_for = NULL, claimed_by = :owner, claimed_until_ms = :until_ms
FROM unnest(:group_keys::text[], :ordereds::boolean[], :turns::bigint[]) AS wanted (group_key, ordered, turn)
WHERE lanes.group_key = wanted.group_key AND lanes.ordered = wanted.ordered AND lanes.turn = wanted.turn
  AND (lanes.in_flight = 0 OR lanes.claimed_by = :owner)
RETURNING lanes.group_key, lanes.ordered, lanes.subscription_id

-- queue_published --
UPDATE jobs SET state = {QUEUED}, lease_until_ms = published.lease_until_ms, updated_at_ms = published.now_ms
FROM unnest(%b::text[], %b::bigint[], %b::bigint[], %b::bigint[])
    AS published (id, publish_round, lease_until_ms, now_ms)
WHERE jobs.id = published.id AND jobs.publish_round = published.publish_round AND jobs.state + 0 = {READY}

-- drop_landed_lanes --
DELETE FROM lanes USING unnest(%b::text[], %b::boolean[], %b::text[]) AS landed (group_key, ordered, owner)
WHERE lanes.group_key = landed.group_key AND lanes.ordered = landed.ordered AND lanes.claimed_by = landed.owner
  AND NOT EXISTS (
    SELECT 1 FROM jobs WHERE state = {READY} AND jobs.group_key = landed.group_key AND (mode > 0) = landed.ordered
  )

-- land_claimed_lanes --
UPDATE lanes SET in_flight = 0, awake = (landed.waits_for IS NULL), turn = landed.turn,
    waits_for = landed.waits_for, claimed_by = NULL, claimed_until_ms = NULL
FROM unnest(%b::text[], %b::boolean[], %b::text[], %b::bigint[], %b::text[])
    AS landed (group_key, ordered, owner, turn, waits_for)
WHERE lanes.group_key = landed.group_key AND lanes.ordered = landed.ordered AND lanes.claimed_by = landed.owner

-- hold_lanes --
UPDATE lanes SET claimed_until_ms = held.until_ms
FROM unnest(%b::text[], %b::boolean[], %b::text[], %b::bigint[]) AS held (group_key, ordered, owner, until_ms)
WHERE lanes.group_key = held.group_key AND lanes.ordered = held.ordered AND lanes.claimed_by = held.owner

-- unclaim_lanes --
UPDATE lanes SET in_flight = 0, awake = true, claimed_by = NULL, claimed_until_ms = NULL
FROM unnest(%b::text[], %b::boolean[], %b::bigint[]) AS lapsed (group_key, ordered, now_ms)
WHERE lanes.group_key = lapsed.group_key AND lanes.ordered = lapsed.ordered
  AND lanes.claimed_until_ms <= lapsed.now_ms

-- first_jobs --
SELECT lane.number, {on their way lane}, {position blocker}, {lane job job}
FROM unnest(:group_keys::text[], :ordereds::boolean[], :pools::text[], :shares::bigint[])
    WITH ORDINALITY AS lane (group_key, ordered, pool, share, number)
{first jobs lane}
ORDER BY lane.number

-- awake_streams --
-- One step of the index for each stream, however many lanes it has.
WITH RECURSIVE stream AS (
    (
        SELECT pool, coalesce(subscription_id, '') AS subscription, turn FROM lanes
        WHERE awake ORDER BY pool, coalesce(subscription_id, ''), turn LIMIT 1
    )
    UNION ALL
    SELECT following.* FROM stream CROSS JOIN LATERAL (
        SELECT lanes.pool, coalesce(lanes.subscription_id, ''), lanes.turn FROM lanes
        WHERE awake AND (lanes.pool, coalesce(lanes.subscription_id, '')) > (stream.pool, stream.subscription)
        ORDER BY lanes.pool, coalesce(lanes.subscription_id, ''), lanes.turn LIMIT 1
    ) AS following
)
SELECT pool, subscription, turn FROM stream

-- awake_lanes_of_streams --
SELECT lane.* FROM unnest(:pools::text[], :subscriptions::text[], :most::bigint[]) AS stream (pool, subscription, most)
CROSS JOIN LATERAL (
    SELECT group_key, ordered, turn, {is paused lanes}, lanes.pool, coalesce(subscription_id, '') FROM lanes
    WHERE awake AND lanes.pool = stream.pool AND coalesce(subscription_id, '') = stream.subscription
    ORDER BY turn LIMIT stream.most
) AS lane

-- jobs_on_their_way --
SELECT counted.pool, coalesce(job.subscription_id, ''), count(*)
FROM unnest(:pools::text[], :most::bigint[]) AS counted (pool, most)
CROSS JOIN LATERAL (
    SELECT subscription_id FROM jobs
    WHERE {is on its way jobs} AND jobs.pool = counted.pool LIMIT counted.most
) AS job
GROUP BY 1, 2

-- awake_ranges_of_streams --
SELECT stream.pool, stream.subscription, min(lane.turn), max(lane.turn), count(*)
FROM unnest(:pools::text[], :subscriptions::text[], :most::bigint[]) AS stream (pool, subscription, most)
CROSS JOIN LATERAL (
    SELECT turn FROM lanes
    WHERE awake AND lanes.pool = stream.pool AND coalesce(subscription_id, '') = stream.subscription
    ORDER BY turn LIMIT stream.most
) AS lane
GROUP BY 1, 2

-- lanes_with_jobs --
-- Lanes come by their turns, which costs nothing: that is the order in which the index has them. Both kinds of lanes are
-- put in order by themselves, too, or else PostgreSQL reads the jobs of all lanes, sorts them, and throws most of them
-- away. So the rows of a lane stand together. Of the last lane that is read rows may be missing.
SELECT lane.group_key, lane.ordered, lane.turn, lane.paused, lane.pool AS lane_pool, {on their way lane} AS on_their_way,
    blocker.sequence AS blocker_sequence, blocker.created_at_ms AS blocker_created_at_ms, blocker.id AS blocker_id,
    {lane job job}
FROM (
    (
        SELECT group_key, ordered, turn, {is paused lanes} AS paused, pool,
            CASE WHEN ordered THEN :ordered_share ELSE :share END::bigint AS share FROM lanes
        WHERE awake AND pool = :pool AND coalesce(subscription_id, '') = :subscription
          AND turn BETWEEN :first AND :last ORDER BY turn
    )
    UNION ALL
    (
        SELECT group_key, ordered, turn, {is paused lanes} AS paused, pool,
            CASE WHEN ordered THEN :ordered_share ELSE :share END::bigint AS share FROM lanes
        WHERE claimed_until_ms IS NOT NULL AND claimed_by = :owner AND turn BETWEEN :first AND :last
          AND (:pool = '' OR (pool = :pool AND coalesce(subscription_id, '') = :subscription)) ORDER BY turn
    )
) AS lane
{first jobs lane}
ORDER BY lane.turn LIMIT :rows

-- finish_jobs --
-- The columns are those of EndedDelivery in repository/deliveries.py.
WITH finished AS (
    UPDATE jobs SET state = ended.state, delivery_count = ended.number, attempt_count = attempt_count + ended.spent,
        publish_round = publish_round + ended.rounds, due_at_ms = coalesce(ended.due_at_ms, jobs.due_at_ms),
        owner = NULL, lease_until_ms = ended.lease_until_ms, updated_at_ms = ended.now_ms,
        finished_at_ms = ended.finished_at_ms, last_error = ended.error
    FROM unnest(
        %b::text[], %b::bigint[], %b::smallint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[],
        %b::bigint[], %b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::text[], %b::text[]
    ) AS ended (
        id, number, state, spent, rounds, due_at_ms, lease_until_ms, now_ms, finished_at_ms, outcome, at_ms,
        duration_ms, status_code, response, error
    )
    WHERE jobs.id = ended.id AND jobs.state + 0 IN ({READY}, {QUEUED})
      AND jobs.delivery_count = ended.number - 1
    RETURNING jobs.id, ended.number, outcome, at_ms, duration_ms, status_code, response, ended.error
)
INSERT INTO attempts (job_id, number, outcome, at_ms, duration_ms, status_code, response, error)
SELECT * FROM finished
RETURNING job_id, number

-- add_pool_queues --
INSERT INTO pool_queues (code) SELECT * FROM unnest(%b::text[]) ON CONFLICT DO NOTHING

-- gate_shared --
SELECT pg_advisory_xact_lock_shared(:key)

-- gate_exclusive --
SELECT pg_advisory_xact_lock(:key)

-- notify --
NOTIFY penstock_jobs

-- partitions --
SELECT child.relname FROM pg_inherits
JOIN pg_class AS child ON child.oid = inhrelid JOIN pg_class AS parent ON parent.oid = inhparent
WHERE parent.relname = :table AND parent.relnamespace = current_schema()::regnamespace

-- delete_old_archive --
DELETE FROM archived_jobs_other WHERE finished_at_ms < :before_ms

-- delete_old_attempts --
DELETE FROM attempts_other WHERE at_ms < :before_ms

-- put_minutes --
INSERT INTO statistics_minutes (
    minute_ms, dimension, name, delivered, failed, refused, deferred, busy_ms, latency, waits, waited_ms,
    longest_wait_ms
)
SELECT * FROM unnest(
    %b::bigint[], %b::text[], %b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[],
    %b::text[], %b::bigint[], %b::bigint[], %b::bigint[]
)
ON CONFLICT (minute_ms, dimension, name) DO UPDATE SET delivered = excluded.delivered, failed = excluded.failed,
    refused = excluded.refused, deferred = excluded.deferred, busy_ms = excluded.busy_ms, latency = excluded.latency,
    waits = excluded.waits, waited_ms = excluded.waited_ms, longest_wait_ms = excluded.longest_wait_ms

-- put_leaders --
INSERT INTO statistics_leaders (minute_ms, leaders) SELECT * FROM unnest(%b::bigint[], %b::text[])
ON CONFLICT (minute_ms) DO UPDATE SET leaders = excluded.leaders

-- attempts_to_count --
SELECT job_id, number, outcome, at_ms, duration_ms, status_code, error, position FROM attempts
WHERE (position, job_id, number, at_ms) > (:position, :job_id, :number, :at_ms)
  AND position < (SELECT base FROM position_base) + pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY position, job_id, number, at_ms LIMIT :most
