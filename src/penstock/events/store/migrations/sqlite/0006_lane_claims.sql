-- works with code from version 1
-- Spark claims lanes, not jobs (docs/decisions/0012): whose a lane is, and until when nobody else may have it.
ALTER TABLE lanes ADD COLUMN claimed_by TEXT;
ALTER TABLE lanes ADD COLUMN claimed_until_ms INTEGER;
CREATE INDEX lanes_claimed ON lanes (claimed_until_ms) WHERE claimed_until_ms IS NOT NULL;
