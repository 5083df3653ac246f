-- works with code from version 1
-- The keys that sign tokens of the customers' portal; a new one ends all tokens of its tenant.
CREATE TABLE portal_keys (tenant TEXT PRIMARY KEY, signing_key TEXT NOT NULL);
