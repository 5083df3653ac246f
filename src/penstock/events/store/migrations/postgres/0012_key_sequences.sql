-- works with code from version 1
-- The last number of each key of a subscription, and the day it was taken (penstock/events/store/repository/numbering.py).
CREATE TABLE key_sequences (
    subscription_id text COLLATE "C" NOT NULL, group_name text COLLATE "C" NOT NULL, tenant text NOT NULL,
    last bigint NOT NULL, used_day bigint NOT NULL, PRIMARY KEY (subscription_id, group_name)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX key_sequences_by_age ON key_sequences (used_day);
ALTER TABLE jobs ADD COLUMN key_sequence bigint;
ALTER TABLE archived_jobs ADD COLUMN key_sequence bigint;
