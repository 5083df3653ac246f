-- works with code from version 1
-- A row's position is the order in which rows were written: there is one writer at a time, so it is the order of the
-- commits too. AUTOINCREMENT: the position of a deleted row is never given again, or streams would pass its next owner.
CREATE TABLE positioned_events (
    position INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, source TEXT NOT NULL,
    external_id TEXT NOT NULL, type TEXT NOT NULL, subject TEXT, time_ms INTEGER, data BLOB NOT NULL,
    content_type TEXT NOT NULL, group_name TEXT, attributes TEXT NOT NULL, received_ms INTEGER NOT NULL,
    fanned_out INTEGER NOT NULL
);
INSERT INTO positioned_events (
    id, tenant, source, external_id, type, subject, time_ms, data, content_type, group_name, attributes, received_ms,
    fanned_out
)
SELECT id, tenant, source, external_id, type, subject, time_ms, data, content_type, group_name, attributes,
    received_ms, fanned_out
FROM events ORDER BY received_ms, id;
DROP TABLE events;
ALTER TABLE positioned_events RENAME TO events;
CREATE UNIQUE INDEX events_told_once ON events (tenant, source, external_id);
CREATE INDEX events_to_fan_out ON events (id) WHERE fanned_out = 0;
CREATE INDEX events_by_age ON events (received_ms);
CREATE INDEX events_to_read ON events (position) WHERE fanned_out = 0;

CREATE TABLE positioned_attempts (
    position INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL, number INTEGER NOT NULL, outcome TEXT NOT NULL,
    at_ms INTEGER NOT NULL, duration_ms INTEGER NOT NULL, status_code INTEGER, response TEXT, error TEXT,
    UNIQUE (job_id, number, at_ms)
);
INSERT INTO positioned_attempts (job_id, number, outcome, at_ms, duration_ms, status_code, response, error)
SELECT job_id, number, outcome, at_ms, duration_ms, status_code, response, error
FROM attempts ORDER BY at_ms, job_id, number;
DROP TABLE attempts;
ALTER TABLE positioned_attempts RENAME TO attempts;
CREATE INDEX attempts_by_age ON attempts (at_ms);

-- What the pipeline could not read or use, with the reason; `row_id` is the row's key in the table `source`.
CREATE TABLE set_aside (
    source TEXT NOT NULL, row_id TEXT NOT NULL, reason TEXT NOT NULL, at_ms INTEGER NOT NULL,
    PRIMARY KEY (source, row_id)
) WITHOUT ROWID;
