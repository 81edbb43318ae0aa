-- The tables of one store, version 1. Open applies this file. The names of all tables begin with idem_, so that the tables of an
-- application can be in the same file.
--
-- Times are µs since 1970 on the clock of this machine. A row whose time in expires is over counts as absent.

CREATE TABLE IF NOT EXISTS idem_store (
	version INTEGER NOT NULL, -- of this file
	fence   INTEGER NOT NULL  -- the highest fence of a deleted record; every later claim gets a higher one
);
INSERT INTO idem_store SELECT 1, 0 WHERE NOT EXISTS (SELECT * FROM idem_store);

CREATE TABLE IF NOT EXISTS idem_record (
	key         BLOB    NOT NULL PRIMARY KEY, -- hash of scope and key
	state       TEXT    NOT NULL CHECK (state IN ('STARTED', 'COMPLETED', 'FAILED')),
	history     INTEGER NOT NULL,             -- of this request under this key: 0 no effects, 1 a lease ended without an outcome
	                                          -- (takeover), 2 a run failed that may have had effects
	attempt     INTEGER NOT NULL,
	fence       INTEGER NOT NULL,
	operation   INTEGER NOT NULL,             -- fence of the first claim since the key was last absent or free; 0 before that claim
	lease_end   INTEGER NOT NULL,
	expires     INTEGER NOT NULL,             -- end of the retention
	owner       BLOB    NOT NULL,
	noted       BLOB    NOT NULL,             -- the last 16 other owners that have failed or withdrawn, one after another
	fingerprint BLOB,                         -- null in a FAILED record that is free for another request
	cause       BLOB    NOT NULL,             -- FAILED: why
	outcome     BLOB                          -- COMPLETED
);
CREATE INDEX IF NOT EXISTS idem_record_expires ON idem_record (expires);

-- Results of finished steps. They are deleted with their record, or when its operation ends.
CREATE TABLE IF NOT EXISTS idem_checkpoint (
	key    BLOB NOT NULL,
	step   BLOB NOT NULL, -- its name
	result BLOB NOT NULL,
	PRIMARY KEY (key, step)
);

-- Tombstones: keys that were completed, and must not run again for a while after their outcomes have expired.
CREATE TABLE IF NOT EXISTS idem_tombstone (
	key     BLOB    NOT NULL PRIMARY KEY,
	expires INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS idem_tombstone_expires ON idem_tombstone (expires);
