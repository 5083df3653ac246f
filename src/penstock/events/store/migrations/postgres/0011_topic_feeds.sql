-- works with code from version 1
-- The Pub/Sub topics whose messages become events.
CREATE TABLE topic_feeds (topic text COLLATE "C" PRIMARY KEY, definition text NOT NULL);
