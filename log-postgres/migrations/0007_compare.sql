-- Appending again, with three changes. The functions of 0006 stay for brokers that are not upgraded yet.
--
-- - Each of these transactions sets `synchronous_commit` for itself, always. Before, it did so only where the setting was too
--   low at that moment; PostgreSQL reads a changed configuration also between a statement and its commit, and a commit
--   that was to wait for the disk did not.
-- - A batch with events and entries is inserted behind `claim` as well. What was left of `append`, the comparison without an
--   insert and the turn of the session that lost one, is `compare`.
-- - Only roles that append may begin a session or read `sessions`. Whoever could do both could end the session of any broker.

CREATE OR REPLACE FUNCTION begin_session(of_instance bigint, new_epoch bigint, patience_milliseconds int) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    tail bigint;
BEGIN
    PERFORM set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply'
        ELSE 'on' END, true);
    PERFORM set_config('lock_timeout', patience_milliseconds::text, true)
    FROM pg_settings WHERE name = 'lock_timeout' AND setting::int NOT BETWEEN 1 AND patience_milliseconds;
    PERFORM pg_advisory_xact_lock(1163282770, 'entries'::regclass::oid::int);

    INSERT INTO sessions AS known (instance, epoch, begun_at) VALUES (of_instance, new_epoch, clock_timestamp())
    ON CONFLICT (instance) DO UPDATE SET epoch = excluded.epoch, begun_at = excluded.begun_at
        WHERE known.epoch < excluded.epoch;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'a later session of this broker has begun' USING ERRCODE = '57EB1';
    END IF;
    DELETE FROM sessions WHERE instance <> of_instance
        AND begun_at < (SELECT begun_at FROM sessions ORDER BY begun_at DESC OFFSET 9999 LIMIT 1);

    SELECT position INTO tail FROM log_end;
    RETURN coalesce(tail, 0);
END
$$;

CREATE OR REPLACE FUNCTION claim(
    after_position bigint, chained boolean, amount int, first_stored_at timestamptz, of_instance bigint, of_epoch bigint
) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    last_epoch bigint;
    tail bigint;
    last_time timestamptz;
BEGIN
    IF pg_advisory_xact_lock(1163282770, 'entries'::regclass::oid::int) IS NULL THEN NULL; END IF;
    SELECT epoch, position, stored_at INTO last_epoch, tail, last_time
    FROM sessions LEFT JOIN log_end ON true WHERE instance = of_instance;
    IF last_epoch IS DISTINCT FROM of_epoch THEN
        RAISE EXCEPTION 'a later session appends for this broker' USING ERRCODE = '57EB1';
    END IF;
    IF coalesce(tail, 0) <> after_position OR first_stored_at < last_time
        OR chained AND current_setting('event_broker.appended', true) IS DISTINCT FROM after_position::text
    THEN
        RETURN false;
    END IF;

    -- Local to the transaction: a configuration that is reloaded before the commit does not change it.
    IF set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply'
        ELSE 'on' END, true) IS NULL THEN NULL; END IF;
    IF pg_advisory_unlock_all() IS NULL THEN NULL; END IF;
    IF current_setting('idle_session_timeout') <> '0' THEN
        PERFORM set_config('idle_session_timeout', '0', false);
    END IF;
    tail := after_position + amount;
    IF set_config('event_broker.appended', tail::text, false) IS NULL THEN NULL; END IF;
    IF pg_notify('event_broker.' || current_schema(), tail::text) IS NULL THEN NULL; END IF;
    RETURN true;
END
$$;

-- Compares as `claim` does, without an insert, and says why `claim` refused: `outcome` 0 the log ends at `after_position`,
-- 1 the tail is elsewhere, 2 a time falls behind the last one stored. `tail` is where the log ends.
--
-- The loser of a comparison keeps the lock, for its session, as its turn: it reads what is new, decides again, and appends
-- first. A session that then sends nothing for `turn_milliseconds` is ended by the server. The next comparison or claim
-- releases the turn; the lock of its transaction still covers the commit.
CREATE FUNCTION compare(
    after_position bigint, chained boolean, amount int, first_stored_at timestamptz, of_instance bigint, of_epoch bigint,
    turn_milliseconds int, OUT outcome int, OUT tail bigint
)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    lock_class CONSTANT int := 1163282770;
    lock_object CONSTANT int := 'entries'::regclass::oid::int;
    last_epoch bigint;
    last_time timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock(lock_class, lock_object);
    SELECT epoch, position, stored_at INTO last_epoch, tail, last_time
    FROM sessions LEFT JOIN log_end ON true WHERE instance = of_instance;
    IF last_epoch IS DISTINCT FROM of_epoch THEN
        RAISE EXCEPTION 'a later session appends for this broker' USING ERRCODE = '57EB1';
    END IF;
    tail := coalesce(tail, 0);

    PERFORM pg_advisory_unlock_all();
    IF current_setting('idle_session_timeout') <> '0' THEN
        PERFORM set_config('idle_session_timeout', '0', false);
    END IF;

    IF tail <> after_position
        OR chained AND current_setting('event_broker.appended', true) IS DISTINCT FROM after_position::text
    THEN
        outcome := 1;
        IF amount > 0 THEN
            PERFORM pg_advisory_lock(lock_class, lock_object);
            PERFORM set_config('idle_session_timeout', turn_milliseconds::text, false);
        END IF;
    ELSIF first_stored_at < last_time THEN
        outcome := 2;
    ELSE
        outcome := 0;
        PERFORM set_config('event_broker.appended', tail::text, false);
    END IF;
END
$$;
COMMENT ON FUNCTION compare IS 'Compare without an append; the loser of a comparison gets the next turn.';

-- Who appends is who may insert events: the role of `roles.sql`, and roles that were granted this by hand.
REVOKE ALL ON sessions FROM PUBLIC;
REVOKE ALL ON FUNCTION begin_session(bigint, bigint, int) FROM PUBLIC;
DO $$
DECLARE
    appends name;
BEGIN
    FOR appends IN
        SELECT rolname FROM pg_class, aclexplode(relacl) AS granted, pg_roles
        WHERE pg_class.oid = 'events'::regclass AND privilege_type = 'INSERT' AND pg_roles.oid = grantee
    LOOP
        EXECUTE format('GRANT SELECT ON sessions TO %I', appends);
        EXECUTE format('GRANT EXECUTE ON FUNCTION begin_session(bigint, bigint, int) TO %I', appends);
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION grant_rights() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'event_broker_application') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO event_broker_application', current_schema());
        GRANT SELECT, INSERT ON events, entries TO event_broker_application;
        GRANT SELECT ON removals, migrations, records, log_end, sessions TO event_broker_application;
        GRANT EXECUTE ON FUNCTION begin_session(bigint, bigint, int) TO event_broker_application;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'event_broker_maintenance') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO event_broker_maintenance', current_schema());
        GRANT SELECT, DELETE ON events, entries TO event_broker_maintenance;
        GRANT SELECT, INSERT, UPDATE ON removals TO event_broker_maintenance;
        GRANT SELECT ON migrations, records, log_end TO event_broker_maintenance;
    END IF;
END
$$;
