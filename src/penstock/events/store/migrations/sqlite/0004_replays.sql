-- works with code from version 1
-- What was asked to be delivered once more. `definition` is JSON; `run` counts how often it was begun or gone on with.
CREATE TABLE replays (
    id TEXT PRIMARY KEY, definition TEXT NOT NULL, total INTEGER NOT NULL, requested_at_ms INTEGER NOT NULL,
    run INTEGER NOT NULL, stop_asked INTEGER NOT NULL, finished_at_ms INTEGER
) WITHOUT ROWID;

-- How far each part is. Only the task that owns a part may move it on: one that was given up for lost cannot.
CREATE TABLE replay_parts (
    replay_id TEXT NOT NULL, part INTEGER NOT NULL, owner TEXT, done INTEGER NOT NULL, failed INTEGER NOT NULL,
    held_back INTEGER NOT NULL, PRIMARY KEY (replay_id, part)
) WITHOUT ROWID;

-- The deliveries made directly; `job_id` is the job that is delivered once more.
CREATE TABLE replay_attempts (
    replay_id TEXT NOT NULL, job_id TEXT NOT NULL, number INTEGER NOT NULL, outcome TEXT NOT NULL,
    at_ms INTEGER NOT NULL, duration_ms INTEGER NOT NULL, status_code INTEGER, response TEXT, error TEXT,
    PRIMARY KEY (replay_id, job_id, number, at_ms)
) WITHOUT ROWID;

-- The jobs whose copies were made for the queue: a copy may be in the archive already when it is asked for again.
CREATE TABLE replay_copies (
    replay_id TEXT NOT NULL, job_id TEXT NOT NULL, PRIMARY KEY (replay_id, job_id)
) WITHOUT ROWID;
