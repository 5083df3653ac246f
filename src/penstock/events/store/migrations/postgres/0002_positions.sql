-- works with code from version 1
-- A row's position is the transaction that wrote it, so that streams read below the oldest one still running and never
-- pass a late commit. Rows from before come first, at 0. To add a constant rewrites no row.
ALTER TABLE events ADD COLUMN position bigint NOT NULL DEFAULT 0;
ALTER TABLE events ALTER COLUMN position SET DEFAULT pg_current_xact_id()::text::bigint;
CREATE INDEX events_to_read ON events (position, id) WHERE fanned_out = 0;

ALTER TABLE attempts ADD COLUMN position bigint NOT NULL DEFAULT 0;
ALTER TABLE attempts ALTER COLUMN position SET DEFAULT pg_current_xact_id()::text::bigint;
CREATE INDEX attempts_to_read ON attempts (position, job_id);

-- What is added to the transaction's number, and the server it holds for: another server counts anew (postgres_positions.py).
CREATE TABLE position_base (base bigint NOT NULL, server text NOT NULL);
INSERT INTO position_base VALUES (0, '');

-- What the pipeline could not read or use, with the reason; `row_id` is the row's key in the table `source`.
CREATE TABLE set_aside (
    source text NOT NULL, row_id text NOT NULL, reason text NOT NULL, at_ms bigint NOT NULL,
    PRIMARY KEY (source, row_id)
);
