-- The tables and functions of one store, version 2, in the schema idem, which must exist and should hold nothing else.
-- Migrate applies this file, with another name for the schema if one is configured. You may apply it by hand instead, in one
-- transaction (psql -1). It makes what is missing, so it also upgrades a store of version 1 while processes of version 1 run:
-- the functions that these call keep their names and arguments. A function whose arguments or result have changed has the
-- version in its name.
--
-- Each function is one call of the store and one atomic step. It writes under the lock of the key's row, and decides under that
-- lock or by one read of that row. A row whose retention is over counts as absent.
--
-- These functions read tables by their indexes only (enable_seqscan). Otherwise a connection that has planned them while a table
-- was small would read the whole table, until the next ANALYZE. The table store has one row and no index: its plan has a cost
-- for which PostgreSQL would compile it (jit).
--
-- Times are µs since 1970 on this server's clock, and no other clock counts. Durations are in µs.
-- A role that uses the store needs USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on its tables.

CREATE TABLE IF NOT EXISTS idem.store (
	version integer NOT NULL, -- of this file; a later version upgrades from it
	fence   bigint  NOT NULL  -- the highest fence of a deleted record; every later claim gets a higher one
);

DO $$ BEGIN
	IF EXISTS (SELECT FROM idem.store WHERE version NOT IN (1, 2)) THEN
		RAISE EXCEPTION 'the store has a version that this file does not know';
	END IF;
END $$;

CREATE TABLE IF NOT EXISTS idem.record (
	key         bytea    PRIMARY KEY,      -- hash of scope and key
	state       text     NOT NULL CHECK (state IN ('STARTED', 'COMPLETED', 'FAILED')),
	history     smallint NOT NULL,         -- of this request under this key: 0 no effects, 1 a lease ended without an outcome
	                                       -- (takeover), 2 a run failed that may have had effects
	attempt     integer  NOT NULL,
	fence       bigint   NOT NULL,
	lease_end   bigint   NOT NULL,
	expires     bigint   NOT NULL,         -- end of the retention
	waited      boolean  NOT NULL,         -- requests wait for the run to end, so its end is notified
	owner       bytea    NOT NULL,
	fingerprint bytea,                     -- null in a FAILED record that is free for another request
	cause       bytea,                     -- FAILED: why
	outcome     bytea                      -- COMPLETED
);
ALTER TABLE idem.record
	-- fence of the first claim since the key was last absent or free; null if it is free, and in a record of version 1, where
	-- the next claim uses the record's fence
	ADD COLUMN IF NOT EXISTS operation bigint,
	-- the last 16 other owners that have failed or withdrawn, and whose begin is lost; null in a COMPLETED record
	ADD COLUMN IF NOT EXISTS withdrawn bytea[];
CREATE INDEX IF NOT EXISTS record_expires ON idem.record (expires);

-- Autovacuum waits until a fiftieth of the rows is dead, and not a fifth, which of a hundred million rows would be the records of hours.
-- A setting that somebody else has made stays.
DO $$ BEGIN
	IF NOT EXISTS (SELECT FROM pg_class c, unnest(c.reloptions) o
		WHERE c.oid = 'idem.record'::regclass AND o LIKE 'autovacuum_vacuum_scale_factor=%') THEN
		ALTER TABLE idem.record SET (autovacuum_vacuum_scale_factor = 0.02);
	END IF;
END $$;

-- Results of finished steps. They are deleted with their record, or when its operation ends.
CREATE TABLE IF NOT EXISTS idem.checkpoint (
	key         bytea REFERENCES idem.record ON DELETE CASCADE,
	fingerprint bytea,
	step        bytea,          -- its name; if that is longer than 1024 bytes, its first 1024 bytes and its hash
	result      bytea NOT NULL,
	PRIMARY KEY (key, fingerprint, step)
);
ALTER TABLE idem.checkpoint ADD COLUMN IF NOT EXISTS name bytea; -- the whole name, if step is not

-- Tombstones: keys that were completed, and must not run again for a while after their outcomes have expired.
CREATE TABLE IF NOT EXISTS idem.tombstone (
	key     bytea  PRIMARY KEY,
	expires bigint NOT NULL
);
CREATE INDEX IF NOT EXISTS tombstone_expires ON idem.tombstone (expires);

-- This is the last table to be locked, because transactions that have locked records may wait for its row.
INSERT INTO idem.store SELECT 2, 0 WHERE NOT EXISTS (SELECT FROM idem.store);
UPDATE idem.store SET version = 2 WHERE version = 1;

-- now returns the time of this server's clock. Functions call it after they have waited for a lock, never before.
CREATE OR REPLACE FUNCTION idem.now() RETURNS bigint LANGUAGE sql AS
	'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint';

-- wake notifies the requests that wait for the key when this transaction commits. The channel is named after the schema, in
-- quotes. The name is read from the catalog, because this file may have been applied by hand under another name.
CREATE OR REPLACE FUNCTION idem.wake(record_key bytea) RETURNS void LANGUAGE sql AS $$
	SELECT pg_notify('"' || n.nspname || '".wake', encode(record_key, 'hex'))
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = 'idem.record'::regclass
$$;

-- noted returns the last 16 of these owners and one more.
CREATE OR REPLACE FUNCTION idem.noted(owners bytea[], one bytea) RETURNS bytea[] LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE WHEN one = ANY (owners) THEN owners ELSE (owners || one)[cardinality(coalesce(owners, '{}')) - 14:] END
$$;

-- begin_2: claims the key, or returns what it found instead.
--
-- take_over   what to do if a lease ended without an outcome: 1 takes over, 0 returns unknown, and a fence takes over the claim
--             with that fence only
-- waits       note in a record in progress that a request waits for its end
-- late_retry  return 'expired' for a key with a tombstone
--
-- Returns word, the status. For each, the other results that are set, the states, and the change of state if there is one:
--   'claimed'      claim_fence, claim_attempt, claim_operation, claim_takeover, time_left;
--                  absent, FAILED, or STARTED with its lease over -> STARTED;
--                  a repeated call of the owner of a STARTED record returns the same
--   'in-progress'  time_left, of the lease; STARTED under another owner
--   'unknown'      claim_fence; STARTED, lease over, and the claim does not take over
--   'completed'    bytes, the outcome, and time_left, of the retention; COMPLETED
--   'mismatch'     bytes, the record's fingerprint; the record belongs to another request
--   'expired'      absent, or FAILED without an attempt, but with a tombstone
--   'lost'         this owner has failed or withdrawn: this begin comes after its own fail
--
-- The first pass of the loop takes no lock, and is enough if nothing is written. Whether a lease or a record is over is decided
-- under the lock only, because another call may extend it between the read of the row and the read of the clock.
CREATE OR REPLACE FUNCTION idem.begin_2(
	record_key bytea, claim_owner bytea, claim_fingerprint bytea, lease bigint, retention bigint,
	take_over bigint, waits boolean, late_retry boolean,
	OUT word text, OUT claim_fence bigint, OUT claim_attempt integer, OUT claim_operation bigint, OUT claim_takeover boolean,
	OUT time_left bigint, OUT bytes bytea
) LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
	r       idem.record;
	present bigint;
	past    smallint;
	others  bytea[];
	locked  boolean := false;
BEGIN
	LOOP
		claim_fence := 0;
		claim_attempt := 0;
		claim_operation := 0;
		others := NULL;
		claim_takeover := false;
		time_left := 0;
		IF locked THEN
			SELECT * INTO r FROM idem.record WHERE key = record_key FOR UPDATE;
		ELSE
			SELECT * INTO r FROM idem.record WHERE key = record_key;
		END IF;
		present := idem.now();

		IF r.key IS NULL OR r.expires <= present THEN
			IF late_retry AND (locked OR r.key IS NULL) AND EXISTS (SELECT FROM idem.tombstone t WHERE t.key = record_key AND t.expires > present) THEN
				word := 'expired';
				RETURN;
			END IF;
			past := 0;
			claim_attempt := 1;
		ELSE
			IF r.owner = claim_owner AND r.state = 'FAILED' OR claim_owner = ANY (r.withdrawn) THEN
				word := 'lost';
				RETURN;
			ELSIF r.owner = claim_owner AND r.state = 'STARTED' THEN
				word := 'claimed';
				claim_fence := r.fence;
				claim_attempt := r.attempt;
				claim_operation := coalesce(r.operation, r.fence);
				claim_takeover := r.history = 1;
				time_left := r.lease_end - present;
				RETURN;
			ELSIF late_retry AND r.state = 'FAILED' AND r.attempt = 0
				AND EXISTS (SELECT FROM idem.tombstone t WHERE t.key = record_key AND t.expires > present) THEN
				word := 'expired';
				RETURN;
			ELSIF r.fingerprint <> claim_fingerprint THEN
				word := 'mismatch';
				bytes := r.fingerprint;
				RETURN;
			ELSIF r.state = 'COMPLETED' THEN
				word := 'completed';
				time_left := r.expires - present;
				bytes := r.outcome;
				RETURN;
			ELSIF r.state = 'STARTED' AND r.lease_end > present THEN
				word := 'in-progress';
				time_left := r.lease_end - present;
				IF r.waited OR NOT waits THEN
					RETURN;
				ELSIF locked THEN
					UPDATE idem.record SET waited = true WHERE key = record_key;
					RETURN;
				END IF;
			ELSIF locked AND r.state = 'STARTED' AND take_over NOT IN (1, r.fence) THEN
				word := 'unknown';
				claim_fence := r.fence;
				RETURN;
			END IF;
			past := CASE WHEN r.fingerprint IS NULL THEN 0 WHEN r.state = 'STARTED' OR r.history = 1 THEN 1 ELSE 2 END;
			claim_attempt := least(r.attempt + 1, 999999);
			claim_operation := CASE WHEN r.fingerprint IS NULL THEN 0 ELSE coalesce(r.operation, r.fence) END;
			others := CASE WHEN r.state = 'FAILED' THEN idem.noted(r.withdrawn, r.owner) ELSE r.withdrawn END;
		END IF;

		EXIT WHEN locked AND r.key IS NOT NULL;
		IF r.key IS NULL THEN
			claim_fence := greatest(present, (SELECT s.fence + 1 FROM idem.store s));
			INSERT INTO idem.record
				VALUES (record_key, 'STARTED', 0, 1, claim_fence, present + lease, present + retention, false,
					claim_owner, claim_fingerprint, NULL, NULL, claim_fence)
				ON CONFLICT DO NOTHING;
			IF FOUND THEN
				word := 'claimed';
				claim_operation := claim_fence;
				time_left := lease;
				RETURN;
			END IF;
		END IF;
		locked := true;
	END LOOP;

	word := 'claimed';
	claim_fence := greatest(present, r.fence + 1);
	IF claim_operation = 0 THEN
		DELETE FROM idem.checkpoint WHERE key = record_key;
		claim_operation := claim_fence;
	END IF;
	claim_takeover := past = 1;
	time_left := lease;
	UPDATE idem.record SET
		state = 'STARTED', history = past, attempt = claim_attempt, fence = claim_fence, lease_end = present + lease,
		expires = present + retention, owner = claim_owner, fingerprint = claim_fingerprint, cause = NULL, outcome = NULL,
		operation = claim_operation, withdrawn = others
		WHERE key = record_key;
END $$;

-- begin: begin_2 for processes of version 1.
CREATE OR REPLACE FUNCTION idem.begin(
	record_key bytea, claim_owner bytea, claim_fingerprint bytea, lease bigint, retention bigint,
	take_over bigint, waits boolean, late_retry boolean,
	OUT word text, OUT claim_fence bigint, OUT claim_attempt integer, OUT claim_takeover boolean, OUT time_left bigint,
	OUT bytes bytea
) LANGUAGE sql AS $$
	SELECT b.word, b.claim_fence, b.claim_attempt, b.claim_takeover, b.time_left, b.bytes
		FROM idem.begin_2(record_key, claim_owner, claim_fingerprint, lease, retention, take_over, waits, late_retry) b
$$;

-- held locks and returns the record whose last claim is this one, or nulls if there is none.
CREATE OR REPLACE FUNCTION idem.held(record_key bytea, claim_owner bytea, claim_fence bigint) RETURNS idem.record LANGUAGE plpgsql AS $$
DECLARE
	r idem.record;
BEGIN
	SELECT * INTO r FROM idem.record
		WHERE key = record_key AND owner = claim_owner AND fence = claim_fence AND expires > idem.now() FOR UPDATE;
	RETURN r;
END $$;

-- extend: starts the lease and the retention anew, because the run goes on.
--
-- Returns, and changes the state:
--   'ok'    STARTED -> STARTED, also if the lease is over and no other claim has taken over
--   'lost'  absent, another claim, or no longer STARTED; nothing changes
CREATE OR REPLACE FUNCTION idem.extend(record_key bytea, claim_owner bytea, claim_fence bigint, lease bigint, retention bigint)
RETURNS text LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
	r       idem.record := idem.held(record_key, claim_owner, claim_fence);
	present bigint      := idem.now();
BEGIN
	IF r.state IS DISTINCT FROM 'STARTED' THEN
		RETURN 'lost';
	END IF;
	UPDATE idem.record SET lease_end = present + lease, expires = present + retention WHERE key = record_key;
	RETURN 'ok';
END $$;

-- complete: keeps the outcome.
--
-- late_retry  how long a tombstone outlives the retention, µs; 0 for no tombstone
-- steps       the run may have checkpoints, which are deleted
--
-- Returns, and changes the state:
--   'ok'    STARTED -> COMPLETED, also if the lease is over and no other claim has taken over;
--           a repeated call with the same outcome returns the same
--   'lost'  absent, another claim, FAILED, or COMPLETED with another outcome; nothing changes
CREATE OR REPLACE FUNCTION idem.complete(
	record_key bytea, claim_owner bytea, claim_fence bigint, retention bigint, late_retry bigint, steps boolean, kept bytea
) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
	r    idem.record := idem.held(record_key, claim_owner, claim_fence);
	ends bigint      := idem.now() + retention;
BEGIN
	IF r.state = 'COMPLETED' AND r.outcome = kept THEN
		RETURN 'ok';
	ELSIF r.state IS DISTINCT FROM 'STARTED' THEN
		RETURN 'lost';
	END IF;
	UPDATE idem.record SET state = 'COMPLETED', expires = ends, waited = false, outcome = kept, withdrawn = NULL WHERE key = record_key;
	IF late_retry > 0 THEN
		INSERT INTO idem.tombstone AS t VALUES (record_key, ends + late_retry)
			ON CONFLICT (key) DO UPDATE SET expires = greatest(t.expires, excluded.expires);
	END IF;
	IF steps THEN
		DELETE FROM idem.checkpoint WHERE key = record_key;
	END IF;
	IF r.waited THEN
		PERFORM idem.wake(record_key);
	END IF;
	RETURN 'ok';
END $$;

-- fail_2: ends a run without an outcome. The key can be claimed again at once.
--
-- claim_fence  0 also withdraws a begin without a response: if that begin comes later, it is lost
-- lease        how long a record lives that exists only for this withdrawal, µs; 0 makes none
-- free         the run had no effects: the record becomes free for a request with another fingerprint, unless an earlier run may
--              have had effects
-- not_run      there was no run: like free, and its attempt is given back
--
-- Returns, and changes the state:
--   'ok'    STARTED -> FAILED; a repeated call of this claim returns the same; with fence 0 also absent -> FAILED
--   'lost'  absent, another claim, or COMPLETED; with fence 0 a STARTED or FAILED record notes the owner,
--           and a free one lives for at least one lease from then on
CREATE OR REPLACE FUNCTION idem.fail_2(
	record_key bytea, claim_owner bytea, claim_fence bigint, lease bigint, retention bigint, free boolean, not_run boolean, why bytea
) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
	r       idem.record;
	present bigint;
	opens   boolean;
BEGIN
	LOOP
		SELECT * INTO r FROM idem.record WHERE key = record_key AND (claim_fence = 0 OR owner = claim_owner) FOR UPDATE;
		present := idem.now();
		EXIT WHEN r.owner = claim_owner AND claim_fence IN (0, r.fence) AND r.expires > present;
		IF claim_fence <> 0 THEN
			RETURN 'lost';
		ELSIF r.expires > present THEN
			IF r.state <> 'COMPLETED' AND (claim_owner = ANY (r.withdrawn)) IS NOT TRUE THEN
				UPDATE idem.record SET
					withdrawn = idem.noted(r.withdrawn, claim_owner),
					expires = CASE WHEN r.fingerprint IS NULL THEN greatest(r.expires, present + lease) ELSE r.expires END
					WHERE key = record_key;
			END IF;
			RETURN 'lost';
		ELSIF lease = 0 THEN
			RETURN 'lost';
		ELSIF r.key IS NOT NULL THEN
			DELETE FROM idem.checkpoint WHERE key = record_key;
			UPDATE idem.record SET
				state = 'FAILED', history = 0, attempt = 0, fence = greatest(present, r.fence), lease_end = present,
				expires = present + lease, waited = false, owner = claim_owner, fingerprint = NULL, cause = why, outcome = NULL,
				operation = NULL, withdrawn = NULL
				WHERE key = record_key;
			RETURN 'ok';
		END IF;
		INSERT INTO idem.record
			VALUES (record_key, 'FAILED', 0, 0, greatest(present, (SELECT s.fence FROM idem.store s)), present, present + lease, false,
				claim_owner, NULL, why)
			ON CONFLICT DO NOTHING;
		IF FOUND THEN
			RETURN 'ok';
		END IF;
	END LOOP;

	IF r.state = 'FAILED' THEN
		RETURN 'ok';
	ELSIF r.state <> 'STARTED' THEN
		RETURN 'lost';
	END IF;
	opens := (free OR not_run) AND r.history = 0;
	UPDATE idem.record SET
		state = 'FAILED', expires = present + retention, waited = false, cause = why,
		attempt = CASE WHEN not_run THEN r.attempt - 1 ELSE r.attempt END,
		fingerprint = CASE WHEN opens THEN NULL ELSE r.fingerprint END,
		operation = CASE WHEN opens THEN NULL ELSE r.operation END
		WHERE key = record_key;
	IF r.waited THEN
		PERFORM idem.wake(record_key);
	END IF;
	RETURN 'ok';
END $$;

-- fail: fail_2 for processes of version 1.
CREATE OR REPLACE FUNCTION idem.fail(
	record_key bytea, claim_owner bytea, claim_fence bigint, retention bigint, free boolean, why bytea
) RETURNS text LANGUAGE sql AS
	'SELECT idem.fail_2(record_key, claim_owner, claim_fence, 0, retention, free, false, why)';

-- checkpoint: stores the result of a finished step, and starts the retention of the record anew.
--
-- Returns 'ok', or 'lost' if the record is not STARTED by this claim.
CREATE OR REPLACE FUNCTION idem.checkpoint(
	record_key bytea, claim_owner bytea, claim_fence bigint, retention bigint, step_name bytea, step_result bytea
) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
	r    idem.record := idem.held(record_key, claim_owner, claim_fence);
	long boolean     := length(step_name) > 1024; -- for an index
BEGIN
	IF r.state IS DISTINCT FROM 'STARTED' THEN
		RETURN 'lost';
	END IF;
	UPDATE idem.record SET expires = idem.now() + retention WHERE key = record_key;
	INSERT INTO idem.checkpoint VALUES (
		record_key, r.fingerprint, CASE WHEN long THEN substr(step_name, 1, 1024) || sha256(step_name) ELSE step_name END,
		step_result, CASE WHEN long THEN step_name END)
		ON CONFLICT (key, fingerprint, step) DO UPDATE SET result = excluded.result;
	RETURN 'ok';
END $$;

-- checkpoints: returns the steps that runs of this claim's operation have finished, and starts the retention of the record
-- anew.
--
-- word is 'ok', or 'lost' if the record is not STARTED by this claim. steps and results have the same order.
CREATE OR REPLACE FUNCTION idem.checkpoints(
	record_key bytea, claim_owner bytea, claim_fence bigint, retention bigint,
	OUT word text, OUT steps bytea[], OUT results bytea[]
) LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
	r idem.record := idem.held(record_key, claim_owner, claim_fence);
BEGIN
	IF r.state IS DISTINCT FROM 'STARTED' THEN
		word := 'lost';
		RETURN;
	END IF;
	UPDATE idem.record SET expires = idem.now() + retention WHERE key = record_key;
	SELECT array_agg(coalesce(c.name, c.step)), array_agg(c.result) INTO steps, results
		FROM idem.checkpoint c WHERE c.key = record_key AND c.fingerprint = r.fingerprint;
	word := 'ok';
END $$;

-- sweep_2: deletes up to most expired rows, and stores the highest fence among them. It skips rows that another call has
-- locked.
--
-- records_from, tombstones_from  where to begin: what the last sweep returned, or 0. While a transaction holds an old snapshot, a
--                                sweep from 0 must skip all rows that were deleted since; a sweep that continues need not
--
-- Returns how many rows were deleted, and where the next sweep may begin. If these are fewer than most, no expired rows are
-- left: a sweep also looks at the rows before its beginning before it returns fewer. It reads in the order of the index
-- (enable_sort), and so reads no more rows than it deletes.
CREATE OR REPLACE FUNCTION idem.sweep_2(
	most bigint, records_from bigint, tombstones_from bigint,
	OUT deleted bigint, OUT records_upto bigint, OUT tombstones_upto bigint
) LANGUAGE plpgsql SET enable_seqscan = off SET jit = off SET enable_sort = off AS $$
DECLARE
	present bigint := idem.now();
	highest bigint;
	begins  bigint;
BEGIN
	deleted := 0;
	tombstones_upto := tombstones_from;
	FOREACH begins IN ARRAY CASE WHEN records_from = 0 THEN '{0}' ELSE ARRAY[records_from, 0] END LOOP
		WITH gone AS (
			DELETE FROM idem.record WHERE key = ANY (ARRAY(
				SELECT key FROM idem.record WHERE expires BETWEEN begins AND present
					ORDER BY expires LIMIT most - deleted FOR UPDATE SKIP LOCKED))
			RETURNING fence, expires
		) SELECT deleted + count(*), max(fence), coalesce(max(expires), 0) INTO deleted, highest, records_upto FROM gone;
		UPDATE idem.store SET fence = highest WHERE fence < highest;
		IF deleted = most THEN
			RETURN;
		END IF;
	END LOOP;
	records_upto := 0;
	FOREACH begins IN ARRAY CASE WHEN tombstones_from = 0 THEN '{0}' ELSE ARRAY[tombstones_from, 0] END LOOP
		WITH gone AS (
			DELETE FROM idem.tombstone WHERE key = ANY (ARRAY(
				SELECT key FROM idem.tombstone WHERE expires BETWEEN begins AND present
					ORDER BY expires LIMIT most - deleted FOR UPDATE SKIP LOCKED))
			RETURNING expires
		) SELECT deleted + count(*), coalesce(max(expires), 0) INTO deleted, tombstones_upto FROM gone;
		IF deleted = most THEN
			RETURN;
		END IF;
	END LOOP;
	tombstones_upto := 0;
END $$;

-- sweep: sweep_2 for processes of version 1.
CREATE OR REPLACE FUNCTION idem.sweep(most bigint) RETURNS bigint LANGUAGE sql AS
	'SELECT s.deleted FROM idem.sweep_2(most, 0, 0) s';
