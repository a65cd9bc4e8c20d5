-- `append` again, faster. What it does is said where it was made (0002); that one stays for brokers not upgraded yet.
--
-- - Arrays unfold side by side in the list of what is selected. As a table, each of them is put into a store of its own
--   first and read back from there.
-- - The search path is the session's. A function that sets it has the server look everything up anew, twice a call.
-- - `chained`: sent before the append in front of it was answered. The tail alone does not tell whether that one succeeded:
--   another broker may have written just as many records. So the session remembers where its own last append ended.
CREATE FUNCTION append(
    after_position bigint, chained boolean, turn_milliseconds int,
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
    last_time timestamptz;
    amount CONSTANT int := cardinality(event_ids) + cardinality(entry_positions);
BEGIN
    PERFORM pg_advisory_xact_lock(lock_class, lock_object);
    SELECT position, stored_at INTO tail, last_time FROM log_end;
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
