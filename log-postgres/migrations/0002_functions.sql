-- What the broker calls. Each function is one round trip and one transaction.

-- The last position ever given and its time; no row while the log is empty. In plpgsql, which keeps its plan: every append
-- asks, and a function in SQL would be planned anew each time, which takes longer than the rest of a small append.
CREATE FUNCTION tail(OUT last_position bigint, OUT last_stored_at timestamptz) RETURNS SETOF record
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    SELECT position, stored_at INTO last_position, last_stored_at FROM (
        (SELECT event_id AS position, stored_at FROM events ORDER BY event_id DESC LIMIT 1)
        UNION ALL
        (SELECT position, stored_at FROM entries ORDER BY position DESC LIMIT 1)
        UNION ALL
        (SELECT r.last_position, r.last_stored_at FROM removals r ORDER BY r.last_position DESC LIMIT 1)
    ) AS ends
    ORDER BY position DESC LIMIT 1;
    IF FOUND THEN
        RETURN NEXT;
    END IF;
END
$$;

-- Puts a batch behind `after_position`, whole or not at all. `outcome`: 0 appended, 1 the tail is elsewhere, 2 a time
-- falls behind the last one stored. `tail` is where the log ends then.
--
-- - One advisory lock orders all appends of all brokers. It is held until the transaction has ended, so a reader never
--   sees a number whose predecessor commits later.
-- - The tail is read by a statement of its own after the lock was taken: only then does its snapshot show everything
--   that was committed under it.
-- - Whoever finds the tail elsewhere keeps the lock, for its session, as its turn: it reads what is new, decides again,
--   and nobody is faster. A session that then says nothing for `turn_milliseconds` is ended by the server, so a process
--   that stopped holds up nobody for longer. The next append gives the turn back; the lock of its transaction still
--   covers the commit.
CREATE FUNCTION append(
    after_position bigint, turn_milliseconds int,
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
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    lock_class CONSTANT int := 1163282770;
    lock_object CONSTANT int := 'entries'::regclass::oid::int;
    last_time timestamptz;
    amount CONSTANT int := cardinality(event_ids) + cardinality(entry_positions);
BEGIN
    PERFORM pg_advisory_xact_lock(lock_class, lock_object);
    SELECT last_position, last_stored_at INTO tail, last_time FROM tail();
    tail := coalesce(tail, 0);

    PERFORM pg_advisory_unlock_all();
    IF current_setting('idle_session_timeout') <> '0' THEN
        PERFORM set_config('idle_session_timeout', '0', false);
    END IF;

    IF tail <> after_position THEN
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

    outcome := 0;
    IF cardinality(event_ids) > 0 THEN
        INSERT INTO events (
            event_id, id, topic_number, topic, topic_seq, stored_at, occurred_at, aggregate_type, aggregate_id,
            aggregate_seq, event_type, event_version, data_version, actor_type, actor_id, org_id, request_id,
            idempotency_key, correlation_id, causation_id, app_id, env_id, payload, aggregate_key, facets, body)
        SELECT c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, c17, c18, c19, c20, c21, c22,
            c23::jsonb, c24, c25, c26
        FROM unnest(
            event_ids, ids, topic_numbers, topics, topic_seqs, stored_ats, occurred_ats, aggregate_types, aggregate_ids,
            aggregate_seqs, event_types, event_versions, data_versions, actor_types, actor_ids, org_ids, request_ids,
            idempotency_keys, correlation_ids, causation_ids, app_ids, env_ids, payloads, aggregate_keys, event_facets,
            event_bodies)
        AS row_of (c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, c17, c18, c19, c20, c21, c22,
            c23, c24, c25, c26);
    END IF;
    IF cardinality(entry_positions) > 0 THEN
        INSERT INTO entries (position, sequence, stored_at, fact, id, aggregate_key, aggregate_seq, facets, body)
        SELECT * FROM unnest(
            entry_positions, entry_sequences, entry_stored_ats, entry_facts, entry_ids, entry_aggregate_keys,
            entry_aggregate_seqs, entry_facets, entry_bodies);
    END IF;
    IF amount > 0 THEN
        tail := after_position + amount;
        PERFORM pg_notify('event_broker.' || current_schema(), tail::text);
    END IF;
END
$$;
COMMENT ON FUNCTION append IS 'Compare-and-append: the only way in.';

-- Where the first record stored at or after `moment` lies: by halves, since times never fall along the log. `relation`
-- and `key` say what is searched; `of_topic` keeps to one topic's events.
CREATE FUNCTION first_since(relation regclass, key name, of_topic bigint, moment timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    probe CONSTANT text := format(
        'SELECT %1$I AS key, stored_at FROM %2$s WHERE %1$I >= $1 %3$s ORDER BY %1$I LIMIT 1',
        key, relation, CASE WHEN of_topic IS NULL THEN '' ELSE 'AND topic_number = ' || of_topic END);
    low bigint := 0;
    high bigint;
    middle bigint;
    found record;
BEGIN
    EXECUTE format(
        'SELECT max(%I) FROM %s %s', key, relation,
        CASE WHEN of_topic IS NULL THEN '' ELSE 'WHERE topic_number = ' || of_topic END)
    INTO high;
    IF high IS NULL THEN
        RETURN NULL;
    END IF;
    high := high + 1;
    -- Everything before `low` is earlier than `moment`; nothing from `high` on is.
    WHILE low < high LOOP
        middle := low + (high - low) / 2;
        EXECUTE probe INTO found USING middle;
        IF found.key IS NULL OR found.stored_at >= moment THEN
            high := middle;
        ELSE
            low := found.key + 1;
        END IF;
    END LOOP;
    EXECUTE probe INTO found USING low;
    RETURN found.key;
END
$$;

-- Lets go of up to `most` records of a topic, the oldest first, none behind `through_sequence`; says how many went.
-- What is gone is noted in the same transaction, so a reader either finds a record or is told that it was removed.
CREATE FUNCTION remove_some(of_topic bigint, through_sequence bigint, most int) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    gone record;
BEGIN
    IF of_topic = 0 THEN
        WITH deleted AS (
            DELETE FROM entries
            WHERE sequence <= least(through_sequence, (SELECT min(sequence) FROM entries) + most - 1)
            RETURNING sequence, position, stored_at
        )
        SELECT count(*) AS amount, max(sequence) AS through, max(position) AS last_position, max(stored_at) AS last_stored_at
        INTO gone FROM deleted;
    ELSE
        WITH deleted AS (
            DELETE FROM events
            WHERE topic_number = of_topic AND topic_seq <= least(
                through_sequence,
                (SELECT min(topic_seq) FROM events WHERE topic_number = of_topic) + most - 1)
            RETURNING topic_seq, event_id, stored_at
        )
        SELECT count(*) AS amount, max(topic_seq) AS through, max(event_id) AS last_position, max(stored_at) AS last_stored_at
        INTO gone FROM deleted;
    END IF;
    IF gone.amount > 0 THEN
        INSERT INTO removals AS r (topic_number, through, last_position, last_stored_at)
        VALUES (of_topic, gone.through, gone.last_position, gone.last_stored_at)
        ON CONFLICT (topic_number) DO UPDATE SET
            through = greatest(r.through, excluded.through),
            last_position = greatest(r.last_position, excluded.last_position),
            last_stored_at = greatest(r.last_stored_at, excluded.last_stored_at);
    END IF;
    RETURN gone.amount;
END
$$;
COMMENT ON FUNCTION remove_some IS 'Retention, step by step, for the maintenance role.';
