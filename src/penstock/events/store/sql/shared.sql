-- Statements that both databases understand. `{READY}` and the like are numbers of statements.py, `{among ids}` asks
-- for one of a list, `{for share}` and `{skip locked}` lock rows where a database has several writers, `{by some_index}`
-- names the index to a database that would guess without statistics, `{name what}` is a rule of order.sql. `{stored
-- state}` is the state as the index knows it that leads with it; where ids are given, `state + 0` keeps both databases
-- from taking an index of a state instead.

-- Jobs: creating and looking up

-- jobs_by_idempotency_key --
SELECT id, tenant, idempotency_key FROM jobs WHERE tenant = :tenant AND idempotency_key {among keys}

-- job --
SELECT {job columns} FROM jobs WHERE id = :id

-- archived_job --
SELECT {job columns} FROM archived_jobs WHERE id = :id

-- states_of_jobs --
SELECT id, state FROM jobs WHERE id {among ids}

-- attempts_of_job --
SELECT number, outcome, at_ms, duration_ms, status_code, response, error
FROM attempts WHERE job_id = :id AND (number, at_ms) > (:after_number, :after_ms) ORDER BY number, at_ms LIMIT :most

-- counts_by_state --
SELECT {stored state}, count(*) FROM jobs GROUP BY {stored state}

-- oldest_waiting --
-- Since when the oldest event waits to become jobs, without a subscription; the oldest job of each subscription for its
-- delivery; apart from these, those that are due but held: their lane was found with nothing to give. Ids are in the order
-- of time, but a job that is tried again or was planned is due later: of the oldest ids of a state, the one that was due
-- first. Lanes that are awake are looked at too, as those may all be held.
SELECT held, subscription_id, min(since_ms) FROM (
    SELECT false AS held, NULL AS subscription_id, received_ms AS since_ms FROM (
        SELECT received_ms FROM events {by events_to_fan_out} WHERE fanned_out = 0 ORDER BY id LIMIT 1
    ) AS event
    UNION ALL
    SELECT false, subscription, due_at_ms FROM (
        SELECT coalesce(subscription_id, '') AS subscription, due_at_ms FROM jobs {by jobs_waiting}
        WHERE state = {WAITING} AND due_at_ms <= :now_ms ORDER BY due_at_ms LIMIT 1
    ) AS due
    UNION ALL
    SELECT false, coalesce(subscription_id, ''), due_at_ms FROM (
        SELECT subscription_id, due_at_ms FROM jobs {by jobs_by_state} WHERE {stored state} = {QUEUED}
        ORDER BY id LIMIT :most
    ) AS queued
    UNION ALL
    SELECT coalesce(NOT lanes.awake AND lanes.in_flight = 0, false), coalesce(ready.subscription_id, ''), due_at_ms FROM (
        SELECT due_at_ms, group_key, mode, subscription_id FROM jobs {by jobs_by_state} WHERE {stored state} = {READY}
        ORDER BY id LIMIT :most
    ) AS ready
    LEFT JOIN lanes ON lanes.group_key = ready.group_key AND lanes.ordered = (ready.mode > 0)
    UNION ALL
    SELECT false, coalesce(lane.subscription_id, ''), (
        SELECT due_at_ms FROM jobs {by jobs_ready}
        WHERE state = {READY} AND group_key = lane.group_key AND (mode > 0) = lane.ordered
        ORDER BY mode, sequence, created_at_ms, id LIMIT 1
    ) FROM (
        SELECT group_key, ordered, subscription_id FROM lanes {by lanes_awake} WHERE awake LIMIT :most
    ) AS lane
) AS waiting
GROUP BY held, subscription_id

-- What an operator looks at

-- held_groups --
-- Those with a key after :after and before :before; behind each, the jobs in line, counted up to a number.
SELECT h.*, (
    SELECT count(*) FROM (
        SELECT 1 FROM jobs {by jobs_in_line}
        WHERE state BETWEEN {READY} AND {QUEUED} AND mode > 0 AND group_key = h.group_key LIMIT :counted
    ) AS line
) FROM (
    SELECT group_key, min(subscription_id), sum(CASE WHEN state = {ERROR} THEN 1 ELSE 0 END), count(*),
        min(updated_at_ms)
    FROM jobs WHERE {blocking jobs} AND mode = {BLOCK_ON_ERROR} AND group_key > :after AND group_key < :before
    GROUP BY group_key ORDER BY group_key LIMIT :most
) AS h ORDER BY 1

-- most_urgent_groups --
SELECT h.*, (
    SELECT count(*) FROM (
        SELECT 1 FROM jobs {by jobs_in_line}
        WHERE state BETWEEN {READY} AND {QUEUED} AND mode > 0 AND group_key = h.group_key LIMIT :counted
    ) AS line
) FROM (
    SELECT group_key, min(subscription_id), sum(CASE WHEN state = {ERROR} THEN 1 ELSE 0 END), count(*),
        min(updated_at_ms)
    FROM jobs WHERE {blocking jobs} AND mode = {BLOCK_ON_ERROR} AND group_key > :after AND group_key < :before
    GROUP BY group_key ORDER BY 3 DESC, 5, 1 LIMIT :most
) AS h ORDER BY 3 DESC, 5, 1

-- failures_of_subscription --
-- Failed deliveries, the newest first: of its newest jobs, and of older ones that still hold others back.
SELECT j.id, j.event_id, j.group_name, j.group_key, j.type, j.target, a.number, a.outcome, a.at_ms, a.duration_ms,
    a.status_code, a.response, a.error
FROM (
    SELECT id FROM (
        SELECT id, delivery_count, state FROM jobs {by jobs_by_subscription}
        WHERE subscription_id = :subscription_id AND group_key >= :after AND group_key < :before
        ORDER BY id DESC LIMIT :newest
    ) AS newest WHERE delivery_count > 1 OR state <> {COMPLETED}
    UNION
    SELECT id FROM (
        SELECT id FROM jobs {by jobs_blocking} WHERE {blocking jobs} AND group_key >= :after AND group_key < :before
        LIMIT :newest
    ) AS held
) AS failed JOIN jobs AS j ON j.id = failed.id JOIN attempts AS a ON a.job_id = failed.id
WHERE a.outcome IN ('FAILED', 'REFUSED') ORDER BY a.at_ms DESC, a.job_id DESC, a.number DESC LIMIT :most

-- loads_of_subscriptions --
-- What waits for each subscription, counted up to a number of each kind: the key of each of its groups begins with its
-- id. Jobs on their way are few, by credit.
SELECT s.id, (
    SELECT count(*) FROM (
        SELECT 1 FROM jobs {by jobs_ready}
        WHERE state = {READY} AND group_key >= s.id || ':' AND group_key < s.id || ';' LIMIT :most
    ) AS ready
), (
    SELECT min(due_at_ms) FROM (
        SELECT due_at_ms FROM jobs {by jobs_ready}
        WHERE state = {READY} AND group_key >= s.id || ':' AND group_key < s.id || ';' LIMIT :most
    ) AS due
), (
    SELECT min(CASE WHEN coalesce(lanes.awake OR lanes.in_flight > 0, true) THEN due_at_ms END) FROM (
        SELECT due_at_ms, group_key, mode FROM jobs {by jobs_ready}
        WHERE state = {READY} AND group_key >= s.id || ':' AND group_key < s.id || ';' LIMIT :most
    ) AS ready
    LEFT JOIN lanes ON lanes.group_key = ready.group_key AND lanes.ordered = (ready.mode > 0)
) FROM subscriptions AS s

-- jobs_under_way --
SELECT coalesce(subscription_id, ''), count(*), min(due_at_ms) FROM (
    SELECT subscription_id, due_at_ms FROM jobs {by jobs_on_their_way} WHERE {is on its way jobs} LIMIT :most
) AS sent GROUP BY 1

-- jobs_to_retry --
SELECT coalesce(subscription_id, ''), count(*), min(CASE WHEN due_at_ms <= :now_ms THEN due_at_ms END) FROM (
    SELECT subscription_id, due_at_ms FROM jobs {by jobs_waiting}
    WHERE state = {WAITING} AND delivery_count > 0 ORDER BY due_at_ms LIMIT :most
) AS waiting GROUP BY 1

-- oldest_ready --
SELECT coalesce(subscription_id, ''), min(due_at_ms) FROM (
    SELECT subscription_id, due_at_ms FROM jobs {by jobs_by_state} WHERE {stored state} = {READY} ORDER BY id LIMIT :most
) AS oldest GROUP BY 1

-- blocked_groups_of_subscriptions --
SELECT coalesce(subscription_id, ''), sum(CASE WHEN errors > 0 THEN 1 ELSE 0 END), count(*), min(since_ms) FROM (
    SELECT group_key, min(subscription_id) AS subscription_id, sum(CASE WHEN state = {ERROR} THEN 1 ELSE 0 END) AS errors,
        min(updated_at_ms) AS since_ms
    FROM jobs WHERE {blocking jobs} AND mode = {BLOCK_ON_ERROR} GROUP BY group_key
) AS held GROUP BY 1

-- unfinished_of_group --
SELECT {listed columns} FROM jobs
WHERE group_key = :group_key AND state IN ({WAITING}, {READY}, {QUEUED}, {PROCESSING}, {ERROR})
ORDER BY {position jobs} LIMIT :most

-- counts_of_group --
SELECT state, count(*) FROM jobs WHERE group_key = :group_key GROUP BY state

-- finished_jobs --
-- The condition is the one of the index jobs_finished.
SELECT j.id, j.group_key, j.group_name, j.subscription_id, j.pool, j.type, j.state, j.created_at_ms, j.finished_at_ms,
    j.delivery_count, a.duration_ms, a.status_code
FROM (
    SELECT * FROM jobs
    WHERE finished_at_ms IS NOT NULL AND (state <> {ERROR} OR mode <> {BLOCK_ON_ERROR})
      AND finished_at_ms > :since_ms AND finished_at_ms <= :before_ms
      AND (finished_at_ms < :before_ms OR id < :before_id)
    ORDER BY finished_at_ms DESC, id DESC LIMIT :most
) AS j LEFT JOIN attempts AS a ON a.job_id = j.id AND a.number = j.delivery_count
ORDER BY j.finished_at_ms DESC, j.id DESC

-- Lanes

-- lanes_among --
SELECT group_key, ordered, turn, {is paused lanes}, pool, coalesce(subscription_id, '')
FROM lanes WHERE group_key {among group_keys} AND awake

-- wake_waiting_lanes --
UPDATE lanes SET awake = (in_flight = 0), waits_for = NULL WHERE waits_for {among ids} AND waits_for IS NOT NULL
RETURNING group_key

-- lanes_that_wait_in_vain --
SELECT waits_for FROM lanes WHERE waits_for IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM jobs WHERE jobs.id = lanes.waits_for AND jobs.state + 0 IN ({QUEUED}, {PROCESSING})
) LIMIT :most

-- still_on_their_way --
SELECT id FROM jobs WHERE id {among ids} AND state + 0 IN ({QUEUED}, {PROCESSING}) {for share}

-- wake_lanes_of_subscription --
UPDATE lanes SET awake = (in_flight = 0), waits_for = NULL WHERE subscription_id = :subscription_id

-- paused_subscriptions --
SELECT id FROM subscriptions WHERE id {among ids} AND paused

-- Claims of lanes; a re-run takes over those of its predecessor

-- claimed_range --
SELECT min(turn), max(turn), count(*) FROM lanes {by lanes_claimed}
WHERE claimed_until_ms IS NOT NULL AND claimed_by = :owner

-- count_awake --
SELECT count(*) FROM (SELECT 1 FROM lanes {by lanes_awake} WHERE awake LIMIT :most) AS awake_now

-- lapsed_lanes --
SELECT group_key, ordered FROM lanes {by lanes_claimed}
WHERE claimed_until_ms IS NOT NULL AND claimed_until_ms <= :now_ms ORDER BY claimed_until_ms LIMIT :most

-- count_ready --
SELECT count(*) FROM (SELECT 1 FROM jobs {by jobs_ready} WHERE state = {READY} LIMIT :most) AS counted

-- What happens by itself: whether there is something, which jobs, and the move

-- chores --
SELECT EXISTS (SELECT 1 FROM jobs {by jobs_waiting} WHERE state = {WAITING} AND due_at_ms <= :now_ms),
       EXISTS (
           SELECT 1 FROM jobs {by jobs_expiring} WHERE expires_at_ms IS NOT NULL AND expires_at_ms <= :now_ms
             AND state IN ({WAITING}, {READY}, {QUEUED})
       ),
       EXISTS (
           SELECT 1 FROM lanes {by lanes_claimed} WHERE claimed_until_ms IS NOT NULL AND claimed_until_ms <= :now_ms
       )

-- next_due --
SELECT min(at_ms) FROM (
    SELECT min(due_at_ms) AS at_ms FROM jobs {by jobs_waiting} WHERE state = {WAITING}
    UNION ALL
    SELECT min(expires_at_ms) FROM jobs {by jobs_expiring}
    WHERE expires_at_ms IS NOT NULL AND state IN ({WAITING}, {READY}, {QUEUED})
    UNION ALL
    SELECT min(claimed_until_ms) FROM lanes {by lanes_claimed} WHERE claimed_until_ms IS NOT NULL
) AS times

-- due_jobs --
SELECT id, group_key FROM jobs {by jobs_waiting} WHERE state = {WAITING} AND due_at_ms <= :now_ms ORDER BY due_at_ms LIMIT :most

-- promote_jobs --
-- It stays PENDING, and keeps the time of its last change: by that `return_of` knows a retry.
UPDATE jobs SET state = {READY} WHERE id {among ids} AND state + 0 = {WAITING}
RETURNING id, group_key, mode, subscription_id, pool, {WAITING}

-- expiring_jobs --
SELECT id, group_key FROM jobs {by jobs_expiring} WHERE expires_at_ms IS NOT NULL AND expires_at_ms <= :now_ms
  AND state IN ({WAITING}, {READY}, {QUEUED}) ORDER BY expires_at_ms LIMIT :most

-- expire_jobs --
UPDATE jobs SET state = {EXPIRED}, owner = NULL, lease_until_ms = NULL, updated_at_ms = :now_ms, finished_at_ms = :now_ms
WHERE id {among ids} AND state + 0 IN ({WAITING}, {READY}, {QUEUED})
RETURNING id, group_key, mode, subscription_id, pool, {READY}

-- stale_pools --
-- The pools of jobs that have been in the queue for long.
SELECT DISTINCT pool FROM jobs {by jobs_on_their_way}
WHERE {is on its way jobs} AND pool > :after AND state + 0 = {QUEUED} AND lease_until_ms <= :now_ms
ORDER BY pool LIMIT :most

-- lost_jobs --
-- Of a pool, those whose pointer is in no queue any more. They were published before they were written.
SELECT id, group_key FROM jobs {by jobs_on_their_way}
WHERE {is on its way jobs} AND pool = :pool AND state + 0 = {QUEUED} AND lease_until_ms <= :now_ms
  AND updated_at_ms < :settled_before_ms
ORDER BY lease_until_ms LIMIT :most

-- abandoned_jobs --
-- Those whose delivery has lasted longer than it may.
SELECT id, group_key FROM jobs {by jobs_on_their_way}
WHERE {is on its way jobs} AND state + 0 = {PROCESSING} AND lease_until_ms <= :now_ms
ORDER BY lease_until_ms LIMIT :most

-- recover_jobs --
UPDATE jobs SET state = {READY}, owner = NULL, lease_until_ms = NULL, publish_round = publish_round + 1,
    updated_at_ms = :now_ms
WHERE id {among ids} AND state + 0 IN ({QUEUED}, {PROCESSING}) AND lease_until_ms <= :now_ms
RETURNING id, group_key, mode, subscription_id, pool, {QUEUED}

-- extend_leases --
UPDATE jobs SET lease_until_ms = :lease_until_ms
WHERE id {among ids} AND state + 0 IN ({QUEUED}, {PROCESSING}) AND lease_until_ms < :lease_until_ms
RETURNING id

-- Delivering

-- begin_jobs --
-- A job that the queue brings before the scheduler has marked it is in the queue all the same. READY jobs are due by the
-- clock of whoever published them; that of this process may be behind.
SELECT {job columns} FROM jobs AS j
WHERE j.id {among ids} AND j.state + 0 IN ({READY}, {QUEUED})
  AND {in time j}
  AND NOT {is paused j}
  AND NOT {held back j}

-- jobs_among --
SELECT {job columns} FROM jobs WHERE id {among ids}

-- subscription_changes --
SELECT count FROM subscription_changes

-- arrive --
UPDATE jobs SET state = {QUEUED}, lease_until_ms = :lease_until_ms, updated_at_ms = :now_ms
WHERE id {among ids} AND state + 0 = {READY}
RETURNING id, group_key, mode, subscription_id, pool, {READY}

-- hold_back --
UPDATE jobs SET state = {READY}, owner = NULL, lease_until_ms = NULL, publish_round = publish_round + 1,
    updated_at_ms = :now_ms
WHERE id {among ids} AND state + 0 = {QUEUED}
RETURNING id, group_key, mode, subscription_id, pool, {QUEUED}

-- What people decide

-- retry_jobs --
UPDATE jobs SET state = {READY}, attempt_count = 0, publish_round = publish_round + 1, finished_at_ms = NULL,
    due_at_ms = :now_ms, updated_at_ms = :now_ms
WHERE id {among ids} AND state + 0 = {ERROR}
RETURNING id, group_key, mode, subscription_id, pool, {ERROR}

-- ignore_jobs --
UPDATE jobs SET state = {CANCELLED}, updated_at_ms = :now_ms, finished_at_ms = :now_ms
WHERE id {among ids} AND state + 0 = {ERROR}
RETURNING id, group_key, mode, subscription_id, pool, {ERROR}

-- cancel_jobs --
UPDATE jobs SET state = {CANCELLED}, owner = NULL, lease_until_ms = NULL, updated_at_ms = :now_ms,
    finished_at_ms = :now_ms
WHERE id {among ids} AND state + 0 = :state
RETURNING id, group_key, mode, subscription_id, pool, CAST(:state AS integer)

-- errors_of_group --
SELECT id, group_key FROM jobs
WHERE {blocking jobs} AND group_key = :group_key AND state = {ERROR}
ORDER BY {position jobs} LIMIT :most

-- unfinished_of_subscription --
SELECT id, group_key FROM jobs {by jobs_by_state}
WHERE subscription_id = :subscription_id AND {stored state} IN ({WAITING}, {READY}, {QUEUED}) LIMIT :most

-- groups_of_jobs --
SELECT id, group_key FROM jobs WHERE id {among ids}

-- Events

-- payloads_of_jobs --
SELECT j.id, coalesce(j.payload, e.data) FROM jobs AS j LEFT JOIN events AS e ON e.id = j.event_id WHERE j.id {among ids}

-- payloads_of_archived_jobs --
SELECT j.id, coalesce(j.payload, e.data) FROM archived_jobs AS j LEFT JOIN events AS e ON e.id = j.event_id
WHERE j.id {among ids}

-- event --
SELECT id, tenant, source, external_id, type, subject, time_ms, data, content_type, group_name, attributes, received_ms
FROM events WHERE id = :id

-- events_among --
SELECT id, tenant, source, external_id, type, subject, time_ms, data, content_type, group_name, attributes, received_ms
FROM events WHERE id {among ids}

-- data_of_events --
SELECT id, data FROM events WHERE id {among ids}

-- known_events --
SELECT id, source, external_id FROM events WHERE tenant = :tenant AND external_id {among external_ids}
  AND source {among sources}

-- count_events_to_fan_out --
SELECT count(*) FROM (SELECT 1 FROM events WHERE fanned_out = 0 LIMIT :most) AS waiting

-- fan_out_events --
UPDATE events SET fanned_out = 1 WHERE id {among ids} AND fanned_out = 0 RETURNING id

-- Subscriptions and pools

-- add_subscription --
INSERT INTO subscriptions (id, tenant, name, paused, definition) VALUES (:id, :tenant, :name, :paused, :definition)
ON CONFLICT DO NOTHING RETURNING id

-- change_subscription --
UPDATE subscriptions SET name = :name, definition = :definition WHERE id = :id RETURNING id

-- replace_definition --
UPDATE subscriptions SET definition = :definition WHERE id = :id AND definition = :before RETURNING id

-- name_taken --
SELECT 1 FROM subscriptions WHERE tenant = :tenant AND name = :name AND id <> :id

-- pause_subscription --
UPDATE subscriptions SET paused = :paused WHERE id = :id RETURNING id

-- delete_subscription --
DELETE FROM subscriptions WHERE id = :id RETURNING id

-- subscription --
SELECT definition, paused FROM subscriptions WHERE id = :id

-- subscriptions --
SELECT definition, paused FROM subscriptions ORDER BY id

-- put_pool --
INSERT INTO pools (code, concurrency, rate_limit_per_minute) VALUES (:code, :concurrency, :rate_limit_per_minute)
ON CONFLICT (code) DO UPDATE SET concurrency = excluded.concurrency,
    rate_limit_per_minute = excluded.rate_limit_per_minute

-- pool --
SELECT code, concurrency, rate_limit_per_minute FROM pools WHERE code = :code

-- pools --
SELECT code, concurrency, rate_limit_per_minute FROM pools ORDER BY code

-- delete_pool --
DELETE FROM pools WHERE code = :code RETURNING code

-- pool_queues --
SELECT code FROM pool_queues ORDER BY code

-- pool_has_jobs --
SELECT EXISTS (SELECT 1 FROM jobs {by jobs_on_their_way} WHERE pool = :code AND {is on its way jobs})
    OR EXISTS (SELECT 1 FROM lanes WHERE pool = :code)

-- delete_pool_queue --
DELETE FROM pool_queues WHERE code = :code RETURNING code

-- Leases

-- leader_token --
SELECT token FROM leases WHERE name = :name {for share}

-- acquire_lease --
INSERT INTO leases AS held (name, holder, token, expires_ms) VALUES (:name, :holder, 1, :expires_ms)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, token = held.token + 1, expires_ms = excluded.expires_ms
WHERE held.expires_ms <= :now_ms OR held.holder IS NULL
RETURNING token

-- renew_lease --
UPDATE leases SET expires_ms = :expires_ms
WHERE name = :name AND holder = :holder AND token = :token AND expires_ms > :now_ms
RETURNING token

-- release_lease --
UPDATE leases SET holder = NULL, expires_ms = :now_ms WHERE name = :name AND holder = :holder AND token = :token
RETURNING token

-- What people changed

-- keep_change --
INSERT INTO changes (id, at_ms, who, role, action, target, detail)
VALUES (:id, :at_ms, :who, :role, :action, :target, :detail)

-- changes --
SELECT id, at_ms, who, role, action, target, detail FROM changes WHERE id < :cursor ORDER BY id DESC LIMIT :most

-- forget_changes --
DELETE FROM changes WHERE at_ms < :before_ms

-- Archiving

-- archivable_jobs --
SELECT id, group_key, subscription_id, pool, state FROM jobs {by jobs_finished}
WHERE finished_at_ms IS NOT NULL AND (state <> {ERROR} OR mode <> {BLOCK_ON_ERROR}) AND finished_at_ms < :before_ms
ORDER BY finished_at_ms LIMIT :most {skip locked}

-- copy_to_archive --
INSERT INTO archived_jobs ({job columns}) SELECT {job columns} FROM jobs WHERE id {among ids}

-- drop_archived_from_jobs --
DELETE FROM jobs WHERE id {among ids}

-- old_events --
SELECT id FROM events AS e WHERE received_ms < :before_ms AND fanned_out = 1
  AND NOT EXISTS (SELECT 1 FROM jobs WHERE event_id = e.id)
ORDER BY received_ms LIMIT :most

-- forget_key_sequences --
DELETE FROM key_sequences WHERE used_day < :day AND (subscription_id, group_name) IN (
    SELECT subscription_id, group_name FROM key_sequences WHERE used_day < :day LIMIT :most
)
RETURNING 1

-- delete_events --
DELETE FROM events WHERE id {among ids}

-- Forgetting what belongs to a key, a tenant or a subscription

-- subject_counts --
SELECT
    (SELECT count(*) FROM events AS e WHERE {subject event e}),
    (SELECT count(*) FROM jobs AS j WHERE {subject job j}),
    (SELECT count(*) FROM jobs AS j WHERE {subject job j} AND finished_at_ms IS NULL),
    (SELECT count(*) FROM archived_jobs AS j WHERE {subject job j}),
    (SELECT count(*) FROM attempts WHERE job_id IN (
        SELECT id FROM jobs AS j WHERE {subject job j} UNION ALL SELECT id FROM archived_jobs AS j WHERE {subject job j}
    ))

-- subject_events --
SELECT id FROM events AS e WHERE {subject event e} AND id > :after ORDER BY id LIMIT :most

-- subject_jobs --
SELECT id, group_key, mode, subscription_id, pool FROM jobs AS j WHERE {subject job j} AND id > :after
ORDER BY id LIMIT :most

-- subject_archived_jobs --
SELECT id, min(group_key) FROM archived_jobs AS j WHERE {subject job j} AND id > :after
GROUP BY id ORDER BY id LIMIT :most

-- delete_key_sequences --
DELETE FROM key_sequences AS k WHERE {subject job k}

-- delete_archived_jobs --
DELETE FROM archived_jobs WHERE id {among ids}

-- delete_attempts --
DELETE FROM attempts WHERE job_id {among ids}

-- delete_replay_attempts --
DELETE FROM replay_attempts WHERE job_id {among ids}

-- delete_replay_copies --
DELETE FROM replay_copies WHERE job_id {among ids}

-- delete_set_aside --
DELETE FROM set_aside WHERE row_id {among ids}

-- all_leaders --
SELECT minute_ms, leaders FROM statistics_leaders

-- Statistics

-- statistics_progress --
SELECT position, job_id, number, at_ms, counted, set_aside, repaired FROM statistics_progress

-- advance_statistics --
UPDATE statistics_progress SET position = :position, job_id = :job_id, number = :number, at_ms = :at_ms,
    counted = counted + :counted, set_aside = set_aside + :set_aside, repaired = repaired + :repaired
WHERE position = :after_position AND job_id = :after_job_id AND number = :after_number AND at_ms = :after_at_ms
RETURNING position

-- minutes_of --
SELECT minute_ms, dimension, name, delivered, failed, refused, deferred, busy_ms, latency, waits, waited_ms,
    longest_wait_ms
FROM statistics_minutes WHERE minute_ms {among minutes}

-- minutes_between --
SELECT minute_ms, dimension, name, delivered, failed, refused, deferred, busy_ms, latency, waits, waited_ms,
    longest_wait_ms
FROM statistics_minutes WHERE minute_ms >= :since_ms AND minute_ms < :until_ms AND dimension = :by
ORDER BY minute_ms, name

-- leaders_of --
SELECT minute_ms, leaders FROM statistics_leaders WHERE minute_ms {among minutes}

-- leaders_between --
SELECT minute_ms, leaders FROM statistics_leaders WHERE minute_ms >= :since_ms AND minute_ms < :until_ms
ORDER BY minute_ms

-- forget_minutes --
DELETE FROM statistics_minutes WHERE minute_ms < :before_ms

-- forget_leaders --
DELETE FROM statistics_leaders WHERE minute_ms < :before_ms

-- job_origins --
SELECT id, tenant, type, event_id, subscription_id, group_key, pool, target, scheduled_for_ms, created_at_ms
FROM jobs WHERE id {among ids}
UNION ALL
SELECT id, tenant, type, event_id, subscription_id, group_key, pool, target, scheduled_for_ms, created_at_ms
FROM archived_jobs WHERE id {among ids}

-- Feeds

-- put_feed --
INSERT INTO topic_feeds (topic, definition) VALUES (:topic, :definition)
ON CONFLICT (topic) DO UPDATE SET definition = excluded.definition RETURNING topic

-- feeds --
SELECT definition FROM topic_feeds ORDER BY topic

-- delete_feed --
DELETE FROM topic_feeds WHERE topic = :topic RETURNING topic

-- Event types

-- put_event_type --
INSERT INTO event_types (type, definition) VALUES (:type, :definition)
ON CONFLICT (type) DO UPDATE SET definition = excluded.definition RETURNING type

-- count_event_types --
SELECT count(*) FROM event_types

-- event_type --
SELECT definition FROM event_types WHERE type = :type

-- event_types --
SELECT definition FROM event_types ORDER BY type

-- delete_event_type --
DELETE FROM event_types WHERE type = :type RETURNING definition

-- count_event_type_change --
UPDATE event_type_changes SET count = count + 1 RETURNING count

-- event_type_changes --
SELECT count FROM event_type_changes

-- Keys of the customers' portal

-- add_portal_key --
INSERT INTO portal_keys (tenant, signing_key) VALUES (:tenant, :key) ON CONFLICT (tenant) DO NOTHING RETURNING tenant

-- rotate_portal_key --
UPDATE portal_keys SET signing_key = :key WHERE tenant = :tenant RETURNING tenant

-- portal_key --
SELECT signing_key FROM portal_keys WHERE tenant = :tenant
