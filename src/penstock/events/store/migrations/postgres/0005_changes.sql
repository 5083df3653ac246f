-- works with code from version 1
-- What people changed through the API.
CREATE TABLE changes (
    id text COLLATE "C" PRIMARY KEY, at_ms bigint NOT NULL, who text NOT NULL, role text NOT NULL, action text NOT NULL,
    target text NOT NULL, detail text NOT NULL
);
