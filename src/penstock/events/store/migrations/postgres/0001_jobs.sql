-- works with code from version 1
-- Numbers of `state` and `mode`: penstock/events/store/statements.py. Times are milliseconds since 1970.
-- Ids and group keys compare byte by byte, as Python and SQLite compare them.
CREATE TABLE events (
    id text COLLATE "C" PRIMARY KEY, tenant text NOT NULL, source text NOT NULL, external_id text NOT NULL,
    type text NOT NULL, subject text, time_ms bigint, data bytea NOT NULL, content_type text NOT NULL, group_name text,
    attributes text NOT NULL, received_ms bigint NOT NULL, fanned_out smallint NOT NULL
);
CREATE UNIQUE INDEX events_told_once ON events (tenant, source, external_id);
CREATE INDEX events_to_fan_out ON events (id) WHERE fanned_out = 0;
CREATE INDEX events_by_age ON events (received_ms);

CREATE TABLE subscriptions (
    id text COLLATE "C" PRIMARY KEY, tenant text NOT NULL, name text NOT NULL, paused boolean NOT NULL,
    definition text NOT NULL, UNIQUE (tenant, name)
);

CREATE TABLE pools (
    code text COLLATE "C" PRIMARY KEY, concurrency bigint NOT NULL, rate_limit_per_minute bigint
);

-- Every move of a job writes a new version of its row: room on the page keeps the versions together.
CREATE TABLE jobs (
    id text COLLATE "C" PRIMARY KEY, tenant text NOT NULL, type text NOT NULL, event_id text COLLATE "C",
    subscription_id text COLLATE "C", group_name text, group_key text COLLATE "C" NOT NULL, sequence bigint NOT NULL,
    mode smallint NOT NULL, state smallint NOT NULL, target text NOT NULL, pool text NOT NULL, payload bytea,
    content_type text NOT NULL, headers text NOT NULL, idempotency_key text, scheduled_for_ms bigint,
    due_at_ms bigint NOT NULL, expires_at_ms bigint, attempt_count bigint NOT NULL, delivery_count bigint NOT NULL,
    publish_round bigint NOT NULL, owner text, lease_until_ms bigint, last_error text, created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL, finished_at_ms bigint
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE UNIQUE INDEX jobs_by_idempotency_key ON jobs (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- What a lane has to give, in order.
CREATE INDEX jobs_ready ON jobs (group_key, mode, sequence, created_at_ms, id) WHERE state = 1;
-- What keeps later ones back: at the claim and at the delivery.
CREATE INDEX jobs_blocking ON jobs (group_key, sequence, created_at_ms, id)
    WHERE state = 6 OR (state = 0 AND delivery_count > 0 AND mode > 0);
CREATE INDEX jobs_in_line ON jobs (group_key, sequence, created_at_ms, id) WHERE state BETWEEN 1 AND 3 AND mode > 0;
CREATE INDEX jobs_processing ON jobs (group_key) WHERE state = 4 AND mode > 0;
-- What happens by itself when its time comes.
CREATE INDEX jobs_waiting ON jobs (due_at_ms) WHERE state = 0;
CREATE INDEX jobs_claimed ON jobs (lease_until_ms) WHERE state = 2;
CREATE INDEX jobs_on_their_way ON jobs (lease_until_ms) WHERE state IN (3, 4);
CREATE INDEX jobs_expiring ON jobs (expires_at_ms) WHERE expires_at_ms IS NOT NULL AND state IN (0, 1, 3);
CREATE INDEX jobs_finished ON jobs (finished_at_ms)
    WHERE finished_at_ms IS NOT NULL AND (state <> 6 OR mode <> 2);
-- What people look for. Each index is written with every move, so a subscription's jobs are found by their groups' keys.
-- The state is in disguise, so that statistics of a quiet moment never make that index look like the way to a group's jobs.
CREATE INDEX jobs_by_state ON jobs ((CAST(state AS integer)), id);
CREATE INDEX jobs_by_group ON jobs (group_key, id);
CREATE INDEX jobs_of_event ON jobs (event_id) WHERE event_id IS NOT NULL;

-- The groups that have READY jobs; ordered jobs of a group and its IMMEDIATE ones have a lane each.
CREATE TABLE lanes (
    group_key text COLLATE "C" NOT NULL, ordered boolean NOT NULL, subscription_id text COLLATE "C",
    turn bigint NOT NULL, awake boolean NOT NULL, in_flight bigint NOT NULL, PRIMARY KEY (group_key, ordered)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX lanes_awake ON lanes (turn) WHERE awake;
CREATE INDEX lanes_of_subscription ON lanes (subscription_id);
CREATE SEQUENCE lane_turns;

CREATE TABLE attempts (
    job_id text COLLATE "C" NOT NULL, number bigint NOT NULL, outcome text NOT NULL, at_ms bigint NOT NULL,
    duration_ms bigint NOT NULL, status_code bigint, response text, error text, PRIMARY KEY (job_id, number, at_ms)
) PARTITION BY RANGE (at_ms);
CREATE TABLE attempts_other PARTITION OF attempts DEFAULT;

CREATE TABLE archived_jobs (
    id text COLLATE "C" NOT NULL, tenant text NOT NULL, type text NOT NULL, event_id text COLLATE "C",
    subscription_id text COLLATE "C", group_name text, group_key text COLLATE "C" NOT NULL, sequence bigint NOT NULL,
    mode smallint NOT NULL, state smallint NOT NULL, target text NOT NULL, pool text NOT NULL, payload bytea,
    content_type text NOT NULL, headers text NOT NULL, idempotency_key text, scheduled_for_ms bigint,
    due_at_ms bigint NOT NULL, expires_at_ms bigint, attempt_count bigint NOT NULL, delivery_count bigint NOT NULL,
    publish_round bigint NOT NULL, owner text, lease_until_ms bigint, last_error text, created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL, finished_at_ms bigint NOT NULL, PRIMARY KEY (id, finished_at_ms)
) PARTITION BY RANGE (finished_at_ms);
CREATE TABLE archived_jobs_other PARTITION OF archived_jobs DEFAULT;

CREATE TABLE leases (
    name text PRIMARY KEY, holder text, token bigint NOT NULL, expires_ms bigint NOT NULL
);
