-- works with code from version 7
-- Lanes are claimed, not jobs (docs/decisions/0012). What was claimed job by job, state 2, is ready again and its lanes
-- are awake. Without its index, a scheduler of an older version that still runs cannot claim jobs any more.
INSERT INTO lanes (group_key, ordered, subscription_id, turn, awake, in_flight)
SELECT group_key, mode > 0, min(subscription_id), (SELECT last FROM lane_turns) + row_number() OVER (), true, 0
FROM jobs WHERE state = 2 GROUP BY group_key, mode > 0
ON CONFLICT (group_key, ordered) DO NOTHING;
UPDATE lane_turns SET last = max(last, (SELECT coalesce(max(turn), 0) FROM lanes));
UPDATE lanes SET awake = true, in_flight = 0 WHERE in_flight > 0 AND claimed_by IS NULL;
UPDATE jobs SET state = 1, owner = NULL, lease_until_ms = NULL WHERE state = 2;
DROP INDEX jobs_claimed;
