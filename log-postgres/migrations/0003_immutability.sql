-- Events never change. Rights say so to the application role; these triggers say so to everybody else.

-- UPDATE and TRUNCATE are refused to all. DELETE is let through to the role event_broker_maintenance alone, once it
-- exists and has the right; where it does not (a developer's database with one role), to a transaction that says it is
-- the broker's retention.
CREATE FUNCTION refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    allowed boolean := false;
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'event_broker_maintenance')
            AND has_table_privilege('event_broker_maintenance', TG_RELID, 'DELETE')
        THEN
            allowed := current_user = 'event_broker_maintenance';
        ELSE
            allowed := coalesce(current_setting('event_broker.removing', true), '') = 'on';
        END IF;
    END IF;
    IF NOT allowed THEN
        RAISE EXCEPTION '% on % is refused: what is in the log never changes', TG_OP, TG_TABLE_NAME
            USING ERRCODE = 'insufficient_privilege', HINT = 'Corrections are new events. Retention removes old ones.';
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER events_never_change BEFORE UPDATE OR DELETE OR TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER entries_never_change BEFORE UPDATE OR DELETE OR TRUNCATE ON entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Gives the roles of `roles.sql`, those of them that exist, what they need and no more. Run after every migration, and
-- by `roles.sql` itself where the tables came first.
CREATE FUNCTION grant_rights() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'event_broker_application') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO event_broker_application', current_schema());
        GRANT SELECT, INSERT ON events, entries TO event_broker_application;
        GRANT SELECT ON removals, migrations, records, log_end TO event_broker_application;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'event_broker_maintenance') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO event_broker_maintenance', current_schema());
        GRANT SELECT, DELETE ON events, entries TO event_broker_maintenance;
        GRANT SELECT, INSERT, UPDATE ON removals TO event_broker_maintenance;
        GRANT SELECT ON migrations, records, log_end TO event_broker_maintenance;
    END IF;
END
$$;
