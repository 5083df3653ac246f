-- works with code from version 1
-- The lake reads events by position, fanned out or not. Positions rise with the place in the table, so a range per block is enough.
CREATE INDEX events_by_position ON events USING brin (position) WITH (autosummarize = on, pages_per_range = 32);
