-- works with code from version 1
-- The catalogue of event types. Whoever keeps it in memory reads it again when the number of changes moves.
CREATE TABLE event_types (type TEXT PRIMARY KEY, definition TEXT NOT NULL);
CREATE TABLE event_type_changes (count INTEGER NOT NULL);
INSERT INTO event_type_changes VALUES (0);
