-- works with code from version 1
-- Numbers of `state` and `mode`: penstock/events/store/statements.py. Times are milliseconds since 1970.
CREATE TABLE events (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, source TEXT NOT NULL, external_id TEXT NOT NULL, type TEXT NOT NULL,
    subject TEXT, time_ms INTEGER, data BLOB NOT NULL, content_type TEXT NOT NULL, group_name TEXT,
    attributes TEXT NOT NULL, received_ms INTEGER NOT NULL, fanned_out INTEGER NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX events_told_once ON events (tenant, source, external_id);
CREATE INDEX events_to_fan_out ON events (id) WHERE fanned_out = 0;
CREATE INDEX events_by_age ON events (received_ms);

CREATE TABLE subscriptions (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, paused INTEGER NOT NULL, definition TEXT NOT NULL,
    UNIQUE (tenant, name)
) WITHOUT ROWID;

CREATE TABLE pools (
    code TEXT PRIMARY KEY, concurrency INTEGER NOT NULL, rate_limit_per_minute INTEGER
) WITHOUT ROWID;

CREATE TABLE jobs (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, type TEXT NOT NULL, event_id TEXT, subscription_id TEXT,
    group_name TEXT, group_key TEXT NOT NULL, sequence INTEGER NOT NULL, mode INTEGER NOT NULL,
    state INTEGER NOT NULL, target TEXT NOT NULL, pool TEXT NOT NULL, payload BLOB, content_type TEXT NOT NULL,
    headers TEXT NOT NULL, idempotency_key TEXT, scheduled_for_ms INTEGER, due_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER, attempt_count INTEGER NOT NULL, delivery_count INTEGER NOT NULL,
    publish_round INTEGER NOT NULL, owner TEXT, lease_until_ms INTEGER, last_error TEXT,
    created_at_ms INTEGER NOT NULL, updated_at_ms INTEGER NOT NULL, finished_at_ms INTEGER
);
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
-- What people look for.
CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX jobs_by_subscription ON jobs (subscription_id, id);
CREATE INDEX jobs_by_group ON jobs (group_key, id);
CREATE INDEX jobs_of_event ON jobs (event_id) WHERE event_id IS NOT NULL;

-- The groups that have READY jobs; ordered jobs of a group and its IMMEDIATE ones have a lane each.
CREATE TABLE lanes (
    group_key TEXT NOT NULL, ordered INTEGER NOT NULL, subscription_id TEXT, turn INTEGER NOT NULL,
    awake INTEGER NOT NULL, in_flight INTEGER NOT NULL, PRIMARY KEY (group_key, ordered)
) WITHOUT ROWID;
CREATE INDEX lanes_awake ON lanes (turn) WHERE awake;
CREATE INDEX lanes_of_subscription ON lanes (subscription_id);
CREATE TABLE lane_turns (last INTEGER NOT NULL);
INSERT INTO lane_turns VALUES (0);

CREATE TABLE attempts (
    job_id TEXT NOT NULL, number INTEGER NOT NULL, outcome TEXT NOT NULL, at_ms INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL, status_code INTEGER, response TEXT, error TEXT, PRIMARY KEY (job_id, number, at_ms)
) WITHOUT ROWID;
CREATE INDEX attempts_by_age ON attempts (at_ms);

CREATE TABLE archived_jobs (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, type TEXT NOT NULL, event_id TEXT, subscription_id TEXT,
    group_name TEXT, group_key TEXT NOT NULL, sequence INTEGER NOT NULL, mode INTEGER NOT NULL,
    state INTEGER NOT NULL, target TEXT NOT NULL, pool TEXT NOT NULL, payload BLOB, content_type TEXT NOT NULL,
    headers TEXT NOT NULL, idempotency_key TEXT, scheduled_for_ms INTEGER, due_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER, attempt_count INTEGER NOT NULL, delivery_count INTEGER NOT NULL,
    publish_round INTEGER NOT NULL, owner TEXT, lease_until_ms INTEGER, last_error TEXT,
    created_at_ms INTEGER NOT NULL, updated_at_ms INTEGER NOT NULL, finished_at_ms INTEGER NOT NULL
);
CREATE INDEX archived_jobs_by_age ON archived_jobs (finished_at_ms);

CREATE TABLE leases (
    name TEXT PRIMARY KEY, holder TEXT, token INTEGER NOT NULL, expires_ms INTEGER NOT NULL
) WITHOUT ROWID;
