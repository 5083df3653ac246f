-- works with code from version 1
-- The Pub/Sub topics whose messages become events.
CREATE TABLE topic_feeds (topic TEXT PRIMARY KEY, definition TEXT NOT NULL);
