-- The log's tables: one for events, one for the broker's own entries, one for what was removed.
--
-- Every number (position, sequence, aggregate sequence) is assigned by the broker and comes in with the row; there is
-- no sequence and no identity here. Rows come in only through `append` (0002), in order, under one lock.

CREATE TABLE events (
    event_id        bigint      PRIMARY KEY CHECK (event_id > 0),
    id              uuid,
    topic_number    bigint      NOT NULL CHECK (topic_number > 0),
    topic           text        NOT NULL,
    topic_seq       bigint      NOT NULL,
    stored_at       timestamptz NOT NULL,
    occurred_at     timestamptz NOT NULL,
    aggregate_type  text        NOT NULL,
    aggregate_id    text        NOT NULL,
    aggregate_seq   bigint      NOT NULL,
    event_type      text        NOT NULL,
    event_version   int         NOT NULL,
    data_version    text,
    actor_type      text        NOT NULL,
    actor_id        text        NOT NULL,
    org_id          text,
    request_id      text        NOT NULL,
    idempotency_key text,
    correlation_id  text,
    causation_id    text,
    app_id          text,
    env_id          text,
    payload         jsonb,
    aggregate_key   uuid,
    facets          bytea,
    body            bytea       NOT NULL
);
COMMENT ON TABLE events IS 'Every event there is, in one total order. Never updated; deleted only by retention.';
COMMENT ON COLUMN events.event_id IS 'The position: the number in the whole log, dense with `entries.position`.';
COMMENT ON COLUMN events.id IS 'The event''s own id.';
COMMENT ON COLUMN events.topic_number IS 'The topic''s number in this log; one number, one topic.';
COMMENT ON COLUMN events.topic IS 'The topic''s name.';
COMMENT ON COLUMN events.topic_seq IS 'The number in the topic, dense from 1.';
COMMENT ON COLUMN events.stored_at IS 'When it was stored; never falls along event_id.';
COMMENT ON COLUMN events.occurred_at IS 'When it happened, by its producer''s word.';
COMMENT ON COLUMN events.aggregate_type IS 'subjectType; empty where there is none.';
COMMENT ON COLUMN events.aggregate_id IS 'subject; empty where the event speaks of none.';
COMMENT ON COLUMN events.aggregate_seq IS 'The number in (topic, aggregate_type, aggregate_id), dense from 1; 0 where it speaks of none.';
COMMENT ON COLUMN events.event_type IS 'type.';
COMMENT ON COLUMN events.event_version IS 'The major number of dataVersion; 1 where there is none.';
COMMENT ON COLUMN events.data_version IS 'dataVersion as it was written.';
COMMENT ON COLUMN events.actor_type IS 'user, service_principal or system; system where nobody is named.';
COMMENT ON COLUMN events.actor_id IS 'The actor''s id; empty where nobody is named.';
COMMENT ON COLUMN events.org_id IS 'tenant.';
COMMENT ON COLUMN events.request_id IS 'requestId; empty where there is none.';
COMMENT ON COLUMN events.idempotency_key IS 'deduplicationId, else a fingerprint of what makes two submissions one.';
COMMENT ON COLUMN events.app_id IS 'context.appId.';
COMMENT ON COLUMN events.env_id IS 'context.envId.';
COMMENT ON COLUMN events.payload IS 'data, for SQL. NULL where jsonb cannot hold it (a NUL character, a number beyond numeric); body has it all the same.';
COMMENT ON COLUMN events.aggregate_key IS 'Fingerprint of (topic, aggregate_type, aggregate_id).';
COMMENT ON COLUMN events.facets IS 'Fingerprints for filters and for the idempotency check: type, subject type, tenant, key, digest.';
COMMENT ON COLUMN events.body IS 'The event''s JSON exactly as it is served; every other column repeats a part of it.';

-- What the numbers promise. The order of columns serves a second purpose: read backwards, this index gives the latest
-- event of an aggregate.
CREATE UNIQUE INDEX events_aggregate ON events (aggregate_type, aggregate_id, aggregate_seq, topic)
    WHERE aggregate_id <> '';
CREATE UNIQUE INDEX events_topic ON events (topic_number, topic_seq);
CREATE UNIQUE INDEX events_aggregate_key ON events (aggregate_key, aggregate_seq) WHERE aggregate_key IS NOT NULL;
-- What is asked for: an event by its id, a tenant's events, a type's events.
CREATE INDEX events_id ON events (id) WHERE id IS NOT NULL;
CREATE INDEX events_org ON events (org_id, event_id) WHERE org_id IS NOT NULL;
CREATE INDEX events_type ON events (event_type, event_id);

CREATE TABLE entries (
    position      bigint      PRIMARY KEY CHECK (position > 0),
    sequence      bigint      NOT NULL UNIQUE,
    stored_at     timestamptz NOT NULL,
    fact          text,
    id            uuid,
    aggregate_key uuid,
    aggregate_seq bigint      NOT NULL,
    facets        bytea,
    body          bytea       NOT NULL
);
COMMENT ON TABLE entries IS 'The broker''s own bookkeeping: topics, types, consumers, offsets. Never updated.';
COMMENT ON COLUMN entries.position IS 'The number in the whole log, dense with `events.event_id`.';
COMMENT ON COLUMN entries.sequence IS 'The number among entries (the log''s topic 0).';
COMMENT ON COLUMN entries.fact IS 'What happened, by its name in the body.';
COMMENT ON COLUMN entries.body IS 'The entry as JSON.';
CREATE INDEX entries_id ON entries (id) WHERE id IS NOT NULL;
CREATE INDEX entries_aggregate_key ON entries (aggregate_key, aggregate_seq) WHERE aggregate_key IS NOT NULL;

CREATE TABLE removals (
    topic_number   bigint      PRIMARY KEY,
    through        bigint      NOT NULL,
    last_position  bigint      NOT NULL,
    last_stored_at timestamptz NOT NULL
);
COMMENT ON TABLE removals IS 'How far each topic was removed by retention. Numbers stay taken.';
COMMENT ON COLUMN removals.through IS 'The last sequence removed.';
COMMENT ON COLUMN removals.last_position IS 'Its position: the tail of the log where nothing is left behind it.';
CREATE INDEX removals_position ON removals (last_position);

-- Large bodies are compressed with lz4 where this server has it; it is several times faster than the default.
DO $$
BEGIN
    ALTER TABLE events ALTER COLUMN body SET COMPRESSION lz4, ALTER COLUMN payload SET COMPRESSION lz4;
    ALTER TABLE entries ALTER COLUMN body SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END
$$;

CREATE VIEW records AS
    SELECT event_id AS position, topic_number, topic_seq AS sequence, stored_at, id, aggregate_key, aggregate_seq,
           facets, body
    FROM events
    UNION ALL
    SELECT position, 0::bigint, sequence, stored_at, id, aggregate_key, aggregate_seq, facets, body
    FROM entries;
COMMENT ON VIEW records IS 'The whole log, as the broker reads it.';

-- A view and not a function, so that whoever asks keeps the plan.
CREATE VIEW log_end AS
    SELECT position, stored_at FROM (
        (SELECT event_id AS position, stored_at FROM events ORDER BY event_id DESC LIMIT 1)
        UNION ALL
        (SELECT position, stored_at FROM entries ORDER BY position DESC LIMIT 1)
        UNION ALL
        (SELECT last_position, last_stored_at FROM removals ORDER BY last_position DESC LIMIT 1)
    ) AS ends
    ORDER BY position DESC LIMIT 1;
COMMENT ON VIEW log_end IS 'The last position ever given, removed or not, and its time; no row while the log is empty.';
