-- works with code from version 1
-- What people changed through the API.
CREATE TABLE changes (
    id TEXT PRIMARY KEY, at_ms INTEGER NOT NULL, who TEXT NOT NULL, role TEXT NOT NULL, action TEXT NOT NULL,
    target TEXT NOT NULL, detail TEXT NOT NULL
) WITHOUT ROWID;
