-- works with code from version 8
-- A queue and a credit for each pool (docs/decisions/0029): a lane knows its pool, and the job whose end it waits for while
-- enough of its jobs are on their way. Lanes are found by pool and subscription, jobs on their way by pool and group.
ALTER TABLE lanes ADD COLUMN pool text COLLATE "C" NOT NULL DEFAULT 'DISPATCH-POOL',
    ADD COLUMN waits_for text COLLATE "C";
UPDATE lanes SET pool = coalesce((
    SELECT pool FROM jobs WHERE state = 1 AND jobs.group_key = lanes.group_key AND (mode > 0) = lanes.ordered
    ORDER BY sequence, created_at_ms, id LIMIT 1
), pool);
DROP INDEX lanes_awake;
CREATE INDEX lanes_awake ON lanes (pool, coalesce(subscription_id, ''), turn) WHERE awake;
CREATE INDEX lanes_waiting ON lanes (waits_for) WHERE waits_for IS NOT NULL;
DROP INDEX jobs_on_their_way;
-- The state is in disguise, so that this index never looks like the way to a group's jobs.
CREATE INDEX jobs_on_their_way ON jobs (pool, group_key, mode, id) WHERE state - 0 IN (3, 4);
-- The pools whose queues routers know; jobs of other pools go to the shared queue.
CREATE TABLE pool_queues (code text COLLATE "C" PRIMARY KEY);
-- Until now a subscription that chose no pool was in this one. It gets its own, unless that pool was given limits.
UPDATE subscriptions SET definition = replace(definition, '"pool":"DISPATCH-POOL","mode":', '"mode":')
WHERE NOT EXISTS (SELECT 1 FROM pools WHERE code = 'DISPATCH-POOL');
