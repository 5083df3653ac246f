-- works with code from version 1
-- What was asked to be delivered once more. `definition` is JSON; `run` counts how often it was begun or gone on with.
CREATE TABLE replays (
    id text COLLATE "C" PRIMARY KEY, definition text NOT NULL, total bigint NOT NULL, requested_at_ms bigint NOT NULL,
    run bigint NOT NULL, stop_asked boolean NOT NULL, finished_at_ms bigint
);

-- How far each part is. Only the task that owns a part may move it on: one that was given up for lost cannot.
CREATE TABLE replay_parts (
    replay_id text COLLATE "C" NOT NULL, part bigint NOT NULL, owner text, done bigint NOT NULL, failed bigint NOT NULL,
    held_back bigint NOT NULL, PRIMARY KEY (replay_id, part)
);

-- The deliveries made directly; `job_id` is the job that is delivered once more.
CREATE TABLE replay_attempts (
    replay_id text COLLATE "C" NOT NULL, job_id text COLLATE "C" NOT NULL, number bigint NOT NULL, outcome text NOT NULL,
    at_ms bigint NOT NULL, duration_ms bigint NOT NULL, status_code bigint, response text, error text,
    PRIMARY KEY (replay_id, job_id, number, at_ms)
);

-- The jobs whose copies were made for the queue: a copy may be in the archive already when it is asked for again.
CREATE TABLE replay_copies (
    replay_id text COLLATE "C" NOT NULL, job_id text COLLATE "C" NOT NULL, PRIMARY KEY (replay_id, job_id)
);
