-- The three roles of a broker on PostgreSQL. Run once per database by an administrator, before or after the first start:
--
--     psql -d events -f roles.sql
--
-- Then give each role a password (`\password event_broker_application` …), or make your own login roles members of them.
--
-- - event_broker_owner owns the schema and runs migrations.
-- - event_broker_application is what the broker runs as: it reads, and it adds. It cannot change or delete.
-- - event_broker_maintenance runs retention: it may delete old events.
--
-- An administrator who is no superuser (a managed service) becomes a member of the owner for as long as this takes.
--
-- Another schema than `event_broker`: psql -v schema=name …

\if :{?schema}
\else
    \set schema event_broker
\endif

SELECT format('CREATE ROLE %I LOGIN', name)
FROM unnest(ARRAY['event_broker_owner', 'event_broker_application', 'event_broker_maintenance']) AS name
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name)
\gexec

SELECT rolsuper AS superuser FROM pg_roles WHERE rolname = current_user
\gset
\if :superuser
\else
    GRANT event_broker_owner TO CURRENT_USER;
\endif

CREATE SCHEMA IF NOT EXISTS :"schema" AUTHORIZATION event_broker_owner;
ALTER SCHEMA :"schema" OWNER TO event_broker_owner;

-- Where the broker made its tables before the roles were there: they change hands, and the rights are given.
SELECT format('ALTER %s %I.%I OWNER TO event_broker_owner',
              CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, :'schema', relname)
FROM pg_class
WHERE relnamespace = :'schema'::regnamespace AND relkind IN ('r', 'v')
\gexec
SELECT format('ALTER FUNCTION %s OWNER TO event_broker_owner', oid::regprocedure)
FROM pg_proc
WHERE pronamespace = :'schema'::regnamespace
\gexec
SELECT format('SELECT %I.grant_rights()', :'schema')
WHERE to_regprocedure(format('%I.grant_rights()', :'schema')) IS NOT NULL
\gexec

\if :superuser
\else
    REVOKE event_broker_owner FROM CURRENT_USER;
\endif
