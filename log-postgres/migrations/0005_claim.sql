-- Appending to one of the two tables alone, with less around it: `INSERT INTO events … SELECT … FROM claim(…) …`. The arrays
-- go straight into the insert; a function they went through would unpack every one of them first, and make a table of its
-- answer. So there are two ways in from here on, under the same lock and by the same compare: `append`, and an insert behind
-- `claim`.

-- Whether `amount` records, the first of them stored at `first_stored_at`, may come in behind `after_position`. It is
-- `append` (0002, 0004) up to the insert, but for the turn: whoever is told no asks `append`.
CREATE FUNCTION claim(after_position bigint, chained boolean, amount int, first_stored_at timestamptz) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    tail bigint;
    last_time timestamptz;
BEGIN
    -- What is only called for its effect stands in a condition: there it costs a call, and a query elsewhere.
    IF pg_advisory_xact_lock(1163282770, 'entries'::regclass::oid::int) IS NULL THEN NULL; END IF;
    SELECT position, stored_at INTO tail, last_time FROM log_end;
    IF coalesce(tail, 0) <> after_position OR first_stored_at < last_time
        OR chained AND current_setting('event_broker.appended', true) IS DISTINCT FROM after_position::text
    THEN
        RETURN false;
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
COMMENT ON FUNCTION claim IS 'Compare for an insert; the lock is held until its commit.';
