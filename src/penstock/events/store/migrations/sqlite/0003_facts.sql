-- works with code from version 1
-- What was delivered, minute by minute (events/statistics/minutes.py): counted once, by the pipeline or by the inline engine.
-- `latency` and `leaders` are JSON. Bounded: old minutes are deleted, and each keeps so many names.
CREATE TABLE statistics_minutes (
    minute_ms INTEGER NOT NULL, dimension TEXT NOT NULL, name TEXT NOT NULL, delivered INTEGER NOT NULL,
    failed INTEGER NOT NULL, refused INTEGER NOT NULL, deferred INTEGER NOT NULL, busy_ms INTEGER NOT NULL,
    latency TEXT NOT NULL, waits INTEGER NOT NULL, waited_ms INTEGER NOT NULL, longest_wait_ms INTEGER NOT NULL,
    PRIMARY KEY (minute_ms, dimension, name)
) WITHOUT ROWID;

CREATE TABLE statistics_leaders (minute_ms INTEGER PRIMARY KEY, leaders TEXT NOT NULL);

-- One row: the last attempt that was counted, written together with what it was counted into.
CREATE TABLE statistics_progress (
    position INTEGER NOT NULL, job_id TEXT NOT NULL, number INTEGER NOT NULL, at_ms INTEGER NOT NULL,
    counted INTEGER NOT NULL, set_aside INTEGER NOT NULL, repaired INTEGER NOT NULL
);
INSERT INTO statistics_progress VALUES (-1, '', 0, 0, 0, 0, 0);
