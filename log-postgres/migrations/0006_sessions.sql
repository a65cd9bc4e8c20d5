-- One session appends for each broker process. This says which: a session that was given up cannot append any more, whoever
-- it belongs to and however long it was held up. `append` and `claim` come with two arguments more; those of 0002, 0004 and
-- 0005 stay for brokers not upgraded yet.
--
-- - A process (`instance`, a random number) counts the sessions it has appended over (`epoch`). A new one is entered under
--   the lock that orders appends. An append of an older one that holds the lock has ended by then; one that takes it later
--   finds the newer epoch, or no row, and fails.
-- - The rows are not part of the log. They may be deleted at any time: a process whose row is gone begins a new session.
-- - What commits here waits for the disk, and for synchronous replicas where there are any, whatever `synchronous_commit`
--   says at the time. Commits reach replicas in their order: when the beginning of a session is answered, everything that
--   could be read before it is on them, also where the wait for it was cut short.

CREATE TABLE sessions (
    instance bigint      PRIMARY KEY,
    epoch    bigint      NOT NULL,
    begun_at timestamptz NOT NULL
);
COMMENT ON TABLE sessions IS 'Which session may append for each broker process; of the latest 10,000 processes.';
COMMENT ON COLUMN sessions.instance IS 'A random number of the process.';
COMMENT ON COLUMN sessions.epoch IS 'How many sessions it has appended over; only the last one may.';
CREATE INDEX sessions_begun_at ON sessions (begun_at);
-- Whoever may use the schema; it says nothing about anybody.
GRANT SELECT ON sessions TO PUBLIC;

-- Ends every earlier session of a process, and answers the last position ever given. Waits at most `patience_milliseconds`
-- for the lock. It runs as the owner: the role that appends has no right to change anything, here as elsewhere.
CREATE FUNCTION begin_session(of_instance bigint, new_epoch bigint, patience_milliseconds int) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    tail bigint;
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
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
COMMENT ON FUNCTION begin_session IS 'Makes a session the one that appends for its broker process.';

-- `claim` (0005), for the session `of_epoch` of `of_instance`.
CREATE FUNCTION claim(
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

    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
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
COMMENT ON FUNCTION claim(bigint, boolean, int, timestamptz, bigint, bigint)
    IS 'Compare for an insert; the lock is held until its commit.';

-- `append` (0002, 0004), likewise.
CREATE FUNCTION append(
    after_position bigint, chained boolean, turn_milliseconds int, of_instance bigint, of_epoch bigint,
    event_ids bigint[], ids uuid[], topic_numbers bigint[], topics text[], topic_seqs bigint[],
    stored_ats timestamptz[], occurred_ats timestamptz[],
    aggregate_types text[], aggregate_ids text[], aggregate_seqs bigint[],
    event_types text[], event_versions int[], data_versions text[],
    actor_types text[], actor_ids text[], org_ids text[], request_ids text[], idempotency_keys text[],
    correlation_ids text[], causation_ids text[], app_ids text[], env_ids text[],
    payloads text[], aggregate_keys uuid[], event_facets bytea[], event_bodies bytea[],
    entry_positions bigint[], entry_sequences bigint[], entry_stored_ats timestamptz[], entry_facts text[],
    entry_ids uuid[], entry_aggregate_keys uuid[], entry_aggregate_seqs bigint[], entry_facets bytea[],
    entry_bodies bytea[],
    OUT outcome int, OUT tail bigint
)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    lock_class CONSTANT int := 1163282770;
    lock_object CONSTANT int := 'entries'::regclass::oid::int;
    last_epoch bigint;
    last_time timestamptz;
    amount CONSTANT int := cardinality(event_ids) + cardinality(entry_positions);
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
        RETURN;
    END IF;
    IF least(stored_ats[1], entry_stored_ats[1]) < last_time THEN
        outcome := 2;
        RETURN;
    END IF;

    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;

    outcome := 0;
    IF cardinality(event_ids) > 0 THEN
        INSERT INTO events (
            event_id, id, topic_number, topic, topic_seq, stored_at, occurred_at, aggregate_type, aggregate_id,
            aggregate_seq, event_type, event_version, data_version, actor_type, actor_id, org_id, request_id,
            idempotency_key, correlation_id, causation_id, app_id, env_id, payload, aggregate_key, facets, body)
        SELECT unnest(event_ids), unnest(ids), unnest(topic_numbers), unnest(topics), unnest(topic_seqs),
            unnest(stored_ats), unnest(occurred_ats), unnest(aggregate_types), unnest(aggregate_ids),
            unnest(aggregate_seqs), unnest(event_types), unnest(event_versions), unnest(data_versions),
            unnest(actor_types), unnest(actor_ids), unnest(org_ids), unnest(request_ids), unnest(idempotency_keys),
            unnest(correlation_ids), unnest(causation_ids), unnest(app_ids), unnest(env_ids), unnest(payloads)::jsonb,
            unnest(aggregate_keys), unnest(event_facets), unnest(event_bodies);
    END IF;
    IF cardinality(entry_positions) > 0 THEN
        INSERT INTO entries (position, sequence, stored_at, fact, id, aggregate_key, aggregate_seq, facets, body)
        SELECT unnest(entry_positions), unnest(entry_sequences), unnest(entry_stored_ats), unnest(entry_facts),
            unnest(entry_ids), unnest(entry_aggregate_keys), unnest(entry_aggregate_seqs), unnest(entry_facets),
            unnest(entry_bodies);
    END IF;
    IF amount > 0 THEN
        tail := after_position + amount;
        PERFORM pg_notify('event_broker.' || current_schema(), tail::text),
            set_config('event_broker.appended', tail::text, false);
    ELSE
        PERFORM set_config('event_broker.appended', tail::text, false);
    END IF;
END
$$;
