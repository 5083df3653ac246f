-- works with code from version 1
-- The last number of each key of a subscription, and the day it was taken (penstock/events/store/repository/numbering.py).
CREATE TABLE key_sequences (
    subscription_id TEXT NOT NULL, group_name TEXT NOT NULL, tenant TEXT NOT NULL, last INTEGER NOT NULL,
    used_day INTEGER NOT NULL, PRIMARY KEY (subscription_id, group_name)
) WITHOUT ROWID;
CREATE INDEX key_sequences_by_age ON key_sequences (used_day);
ALTER TABLE jobs ADD COLUMN key_sequence INTEGER;
ALTER TABLE archived_jobs ADD COLUMN key_sequence INTEGER;
