-- The rules of domain/order.py in SQL, each written once (tests/property/test_order_forms.py compares them), and who is
-- meant by a subject to forget. A statement takes one in by `{name what}`: the text of the block, with `what` for every @.

-- position --
@.sequence, @.created_at_ms, @.id

-- in_time --
(@.expires_at_ms IS NULL OR @.expires_at_ms > :now_ms)

-- candidate --
-- @ waits to be published, and may go as soon as nothing blocks it.
@.state = {READY} AND {in time @}

-- blocking --
-- BLOCK_ON_ERROR jobs behind @ must wait for it; the words of the index jobs_blocking.
(@.state = {ERROR} OR (@.state = {WAITING} AND @.delivery_count > 0 AND @.mode > 0))

-- held_back --
-- @, about to be delivered, must wait for another job of its group; each reason has an index of its own.
(@.mode <> {IMMEDIATE} AND (
    EXISTS (
        SELECT 1 FROM jobs AS k {by jobs_processing}
        WHERE k.state = {PROCESSING} AND k.mode > 0 AND k.group_key = @.group_key
    )
    OR (@.mode = {BLOCK_ON_ERROR} AND EXISTS (
        SELECT 1 FROM jobs AS k {by jobs_blocking}
        WHERE {blocking k} AND k.group_key = @.group_key AND ({position k}) < ({position @})
    ))
    OR EXISTS (
        SELECT 1 FROM jobs AS k {by jobs_in_line}
        WHERE k.state BETWEEN {READY} AND {QUEUED} AND k.mode > 0 AND k.group_key = @.group_key
          AND ({position k}) < ({position @})
          AND (@.mode = {BLOCK_ON_ERROR} OR (k.mode = {NEXT_ON_ERROR} AND k.delivery_count = 0))
    )
))

-- is_on_its_way --
-- @ is in the queue or in delivery; the words of the index jobs_on_their_way.
@.state - 0 IN ({QUEUED}, {PROCESSING})

-- is_paused --
EXISTS (SELECT 1 FROM subscriptions AS s WHERE s.id = @.subscription_id AND s.paused)

-- first_jobs --
-- PostgreSQL only: beside each lane @ its first blocker, and its first candidates, @.share of each mode. So blocked jobs
-- never hide others; which of them go is decided by whoever reads them. One row without a job for a lane without any.
LEFT JOIN LATERAL (
    SELECT {position jobs} FROM jobs WHERE {blocking jobs} AND jobs.group_key = @.group_key
    ORDER BY {position jobs} LIMIT 1
) AS blocker ON @.ordered
LEFT JOIN LATERAL (
    ({jobs of mode BLOCK_ON_ERROR}) UNION ALL ({jobs of mode NEXT_ON_ERROR}) UNION ALL ({jobs of mode IMMEDIATE})
) AS job ON true

-- jobs_of_mode --
SELECT {lane job jobs} FROM jobs
WHERE {candidate jobs} AND jobs.group_key = lane.group_key AND jobs.mode = {@} AND lane.ordered = ({@} > 0)
ORDER BY {position jobs} LIMIT lane.share

-- lane_job --
@.id, @.mode, @.sequence, @.created_at_ms, @.due_at_ms, @.pool, @.publish_round, @.delivery_count, @.updated_at_ms

-- on_their_way --
-- PostgreSQL only: the ids of a lane's jobs in the queue or in delivery, up to :lane_credit; none for an unordered one.
CASE WHEN @.ordered THEN ARRAY(
    SELECT jobs.id FROM jobs WHERE {is on its way jobs} AND jobs.pool = @.pool
      AND jobs.group_key = @.group_key AND jobs.mode > 0
    ORDER BY jobs.id LIMIT :lane_credit
) ELSE ARRAY[]::text[] END

-- subject_event --
-- @ belongs to whom is forgotten; an event belongs to no subscription.
(CAST(:subscription_id AS text) IS NULL AND (CAST(:tenant AS text) IS NULL OR @.tenant = :tenant)
    AND (CAST(:key AS text) IS NULL OR @.group_name = :key))

-- subject_job --
-- @ belongs to whom is forgotten.
((CAST(:subscription_id AS text) IS NULL OR @.subscription_id = :subscription_id)
    AND (CAST(:tenant AS text) IS NULL OR @.tenant = :tenant) AND (CAST(:key AS text) IS NULL OR @.group_name = :key))
