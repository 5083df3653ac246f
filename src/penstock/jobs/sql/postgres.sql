-- Statements that only PostgreSQL understands. Those with %b take one array per column.

-- insert_jobs --
INSERT INTO jobs (
    id, tenant, type, event_id, subscription_id, group_name, group_key, sequence, mode, state, target, pool, payload,
    content_type, headers, idempotency_key, scheduled_for_ms, due_at_ms, expires_at_ms, created_at_ms, updated_at_ms,
    attempt_count, delivery_count, publish_round
)
SELECT *, 0, 0, 0 FROM unnest(
    %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::bigint[], %b::smallint[],
    %b::smallint[], %b::text[], %b::text[], %b::bytea[], %b::text[], %b::text[], %b::text[], %b::bigint[],
    %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[]
)
ON CONFLICT DO NOTHING

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

-- wake_lanes --
INSERT INTO lanes (group_key, ordered, subscription_id, turn, awake, in_flight)
SELECT group_key, ordered, subscription_id, turn, true, 0
FROM unnest(%b::text[], %b::boolean[], %b::text[], %b::bigint[]) AS woken (group_key, ordered, subscription_id, turn)
ORDER BY group_key COLLATE "C", ordered
ON CONFLICT (group_key, ordered) DO UPDATE SET awake = (lanes.in_flight = 0)

-- take_turns --
SELECT nextval('lane_turns') FROM generate_series(1, :count)

-- serve_lanes --
UPDATE lanes SET in_flight = served.in_flight, awake = served.awake, turn = served.turn
FROM unnest(%b::text[], %b::boolean[], %b::bigint[], %b::boolean[], %b::bigint[])
    AS served (group_key, ordered, in_flight, awake, turn)
WHERE lanes.group_key = served.group_key AND lanes.ordered = served.ordered

-- land_lanes --
UPDATE lanes SET in_flight = greatest(lanes.in_flight - landed.count, 0), awake = (lanes.in_flight <= landed.count)
FROM unnest(%b::text[], %b::bigint[]) AS landed (group_key, count)
WHERE lanes.group_key = landed.group_key AND lanes.ordered

-- drop_empty_lanes --
DELETE FROM lanes USING unnest(%b::text[], %b::boolean[]) AS idle (group_key, ordered)
WHERE lanes.group_key = idle.group_key AND lanes.ordered = idle.ordered AND NOT EXISTS (
    SELECT 1 FROM jobs WHERE state = {READY} AND jobs.group_key = idle.group_key AND (mode > 0) = idle.ordered
)

-- park_lanes --
UPDATE lanes SET awake = false FROM unnest(%b::text[], %b::boolean[]) AS idle (group_key, ordered)
WHERE lanes.group_key = idle.group_key AND lanes.ordered = idle.ordered

-- runs_of_ordered_lanes --
SELECT lane.number, job.sequence, job.created_at_ms, job.id
FROM unnest(:group_keys::text[]) WITH ORDINALITY AS lane (group_key, number)
LEFT JOIN LATERAL (
    SELECT sequence, created_at_ms, id FROM jobs
    WHERE (state = {ERROR} OR (state = {WAITING} AND delivery_count > 0 AND mode > 0))
      AND jobs.group_key = lane.group_key
    ORDER BY sequence, created_at_ms, id LIMIT 1
) AS blocker ON true
CROSS JOIN LATERAL (
    SELECT * FROM (
        (
            SELECT sequence, created_at_ms, id FROM jobs
            WHERE state = {READY} AND jobs.group_key = lane.group_key AND mode = {BLOCK_ON_ERROR}
              AND (expires_at_ms IS NULL OR expires_at_ms > :now_ms)
              -- As one comparison, not "no blocker or before it": so the index stops at the blocker.
              AND (sequence, created_at_ms, jobs.id) < (
                  coalesce(blocker.sequence, 9223372036854775807), coalesce(blocker.created_at_ms, 0),
                  coalesce(blocker.id, '')
              )
            ORDER BY sequence, created_at_ms, id LIMIT :most
        )
        UNION ALL
        (
            SELECT sequence, created_at_ms, id FROM jobs
            WHERE state = {READY} AND jobs.group_key = lane.group_key AND mode = {NEXT_ON_ERROR}
              AND (expires_at_ms IS NULL OR expires_at_ms > :now_ms)
            ORDER BY sequence, created_at_ms, id LIMIT :most
        )
    ) AS both_modes
    ORDER BY sequence, created_at_ms, id LIMIT :most
) AS job
ORDER BY lane.number, job.sequence, job.created_at_ms, job.id

-- runs_of_immediate_lanes --
SELECT lane.number, job.sequence, job.created_at_ms, job.id
FROM unnest(:group_keys::text[]) WITH ORDINALITY AS lane (group_key, number)
CROSS JOIN LATERAL (
    SELECT sequence, created_at_ms, id FROM jobs
    WHERE state = {READY} AND jobs.group_key = lane.group_key AND mode = {IMMEDIATE}
      AND (expires_at_ms IS NULL OR expires_at_ms > :now_ms)
    ORDER BY sequence, created_at_ms, id LIMIT :most
) AS job
ORDER BY lane.number, job.sequence, job.created_at_ms, job.id

-- finish_job --
WITH finished AS (
    UPDATE jobs SET state = :state, attempt_count = attempt_count + :spent, publish_round = publish_round + :rounds,
        due_at_ms = coalesce(:due_at_ms::bigint, due_at_ms), owner = NULL, lease_until_ms = :lease_until_ms,
        last_error = :error, updated_at_ms = :now_ms, finished_at_ms = :finished_at_ms
    WHERE id = :id AND state = {PROCESSING} AND delivery_count = :number
    RETURNING id
)
INSERT INTO attempts (job_id, number, outcome, at_ms, duration_ms, status_code, response, error)
SELECT id, :number, :outcome, :at_ms, :duration_ms, :status_code::bigint, :response::text, :error::text FROM finished
RETURNING job_id

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
