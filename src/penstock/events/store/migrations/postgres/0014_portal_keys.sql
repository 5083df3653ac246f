-- works with code from version 1
-- The keys that sign tokens of the customers' portal; a new one ends all tokens of its tenant.
CREATE TABLE portal_keys (tenant text COLLATE "C" PRIMARY KEY, signing_key text NOT NULL);
