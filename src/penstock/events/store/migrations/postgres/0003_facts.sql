-- works with code from version 1
-- What was delivered, minute by minute (events/statistics/minutes.py): counted once, by the pipeline or by the inline engine.
-- `latency` and `leaders` are JSON. Bounded: old minutes are deleted, and each keeps so many names.
CREATE TABLE statistics_minutes (
    minute_ms bigint NOT NULL, dimension text NOT NULL, name text COLLATE "C" NOT NULL, delivered bigint NOT NULL,
    failed bigint NOT NULL, refused bigint NOT NULL, deferred bigint NOT NULL, busy_ms bigint NOT NULL,
    latency text NOT NULL, waits bigint NOT NULL, waited_ms bigint NOT NULL, longest_wait_ms bigint NOT NULL,
    PRIMARY KEY (minute_ms, dimension, name)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE statistics_leaders (minute_ms bigint PRIMARY KEY, leaders text NOT NULL);

-- One row: the last attempt that was counted, written together with what it was counted into.
CREATE TABLE statistics_progress (
    position bigint NOT NULL, job_id text COLLATE "C" NOT NULL, number bigint NOT NULL, at_ms bigint NOT NULL,
    counted bigint NOT NULL, set_aside bigint NOT NULL, repaired bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO statistics_progress VALUES (-1, '', 0, 0, 0, 0, 0);
