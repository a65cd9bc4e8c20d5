//! Every key of the configuration: its name, its type, and its meaning.
//!
//! - [`KEYS`] is the only list. The loader refuses other keys, and [`table`] writes the documentation from it.
//! - The name of a key is its path below `modules.event_broker`, with dots. Its environment variable is `EVENT_BROKER`
//!   and the same path in capitals, with two underscores before each level.

use super::Config;
pub use super::key::{ConfigKey, ValueType};
use super::key::{key, number};
use std::fmt::Write;

/// Every key, in the order of the docs.
pub const KEYS: &[ConfigKey] = &[
    key(
        "storage.type",
        ValueType::Word(&["memory", "file", "database"]),
        "The engine that stores the log. `database` is the PostgreSQL database at `storage.url`, which several \
         brokers may share.",
    ),
    key(
        "storage.path",
        ValueType::Text("a folder"),
        "The folder of the file engine, relative to the folder in which the program is started; created if it is \
         missing. With `database` it holds the broker's tables, a cache.",
    ),
    key("storage.segment_bytes", number("bytes", 1024, 4_000_000_000), "Files of the log are sealed at this size."),
    key(
        "storage.free_space_warn_bytes",
        number("bytes", 0, 1 << 50),
        "The broker warns if a volume of the log has less free space; at most a tenth of the volume counts. 0: never.",
    ),
    key(
        "storage.free_space_refuse_bytes",
        number("bytes", 0, 1 << 50),
        "With less free space, requests that make the log grow are refused; at most a twentieth of the volume \
         counts. 0: off.",
    ),
    key(
        "storage.retention_days",
        number("days", 1, 36_500),
        "How long events stay in topics without a retention of their own. Absent: for ever.",
    )
    .optional(),
    key(
        "storage.locations",
        ValueType::Texts("folders"),
        "Folders outside `storage.path` in which topics may have a log of their own.",
    ),
    key(
        "storage.side_logs",
        ValueType::Flag,
        "Whether a new topic may create another log in memory or in `storage.path`; each needs threads and open \
         files. If not, only in `storage.locations`. Existing logs stay in use.",
    ),
    key(
        "storage.url",
        ValueType::Text("a database URL"),
        "The database, as `postgres://user:password@host:5432/name`; the role needs to append and read only.",
    )
    .optional(),
    key(
        "storage.url_file",
        ValueType::Text("a file"),
        "A file that contains only `storage.url`, so that the password is neither in the configuration nor on the \
         command line.",
    )
    .optional(),
    key(
        "storage.owner_url",
        ValueType::Text("a database URL"),
        "The same database with the role of its owner, which creates and updates the schema at start. Absent: \
         `storage.url` is used.",
    )
    .optional(),
    key(
        "storage.maintenance_url",
        ValueType::Text("a database URL"),
        "The same database with a role that may remove events for retention. Absent: `storage.url` is used.",
    )
    .optional(),
    key(
        "storage.require_tls",
        ValueType::Flag,
        "Refuse a database on another machine that does not prove its name with a certificate \
         (`sslmode=verify-full`). Otherwise the broker warns at start.",
    ),
    key("batch.max_size", number("events", 1, 10_000), "Most events in one batch."),
    key(
        "batch.max_payload_bytes",
        number("bytes", 1024, 32 * 1024 * 1024),
        "Most bytes of one batch: the sum of its events' `data`, and the body of the request.",
    ),
    key(
        "polling.default_timeout_secs",
        number("seconds", 0, 3600),
        "How long a poll without `timeout` waits. Default: the smaller of 30 and `polling.max_timeout_secs`.",
    ),
    key("polling.max_timeout_secs", number("seconds", 1, 3600), "The longest `timeout` of a poll."),
    key(
        "polling.poll_interval_ms",
        number("milliseconds", 1, 3_600_000),
        "Without effect: a poll is woken by the append itself, never by an interval. Accepted so that existing \
         files load.",
    ),
    key(
        "consumer.default_limit",
        number("events", 1, 10_000),
        "Events in a response if the request has no `limit`. Default: the smaller of 100 and `consumer.max_limit`.",
    ),
    key("consumer.max_limit", number("events", 1, 10_000), "The largest `limit` of a request."),
    key(
        "consumer.session_timeout_secs",
        number("seconds", 1, 86_400),
        "How long a consumer lives without polling, unless it has its own timeout.",
    ),
    key(
        "claims.lease_secs",
        number("seconds", 1, 86_400),
        "How long a claim is valid without a heartbeat, unless the claim or its handler has its own lease.",
    ),
    key(
        "claims.heartbeat_secs",
        number("seconds", 1, 86_399),
        "How often workers should send a heartbeat; shorter than the lease. The interval of a claim is at most a \
         third of its own lease, whatever is set here.",
    ),
    key(
        "claims.max_attempts",
        number("attempts", 1, 100),
        "After this many failed attempts an event becomes a dead letter, unless its handler has its own limit.",
    ),
    key(
        "claims.backoff_secs",
        number("seconds", 0, 3600),
        "The back-off after the first failure; it doubles with every further failure, up to an hour.",
    ),
    key(
        "claims.unused_days",
        number("days", 0, 36_500),
        "Handlers and groups that have not been used for so many days are removed, once the topics contain none of \
         the events that they have finished or read. 0: never.",
    ),
    key(
        "claims.order",
        ValueType::Word(&["latest", "gapless"]),
        "How events of one aggregate are ordered. `latest`: if a later event is already done, this event is skipped \
         (`stale`). `gapless`: an event waits for the one before it.",
    ),
    key("dispatch.enabled", ValueType::Flag, "Whether this broker delivers events to subscribers."),
    key(
        "dispatch.allow_private_targets",
        ValueType::Flag,
        "Whether subscribers in private networks, and on this machine, may be called.",
    ),
    key(
        "dispatch.allowed_hosts",
        ValueType::Texts("host names"),
        "Hosts that subscriptions and tasks may name, such as `hooks.example.com`, or `*.example.com` for all names \
         below it. Empty: all.",
    ),
    key(
        "dispatch.concurrency",
        number("deliveries", 1, 10_000),
        "Most deliveries at the same time in the default pool, unless the pool was changed.",
    ),
    key(
        "dispatch.max_open_jobs",
        number("jobs", 1, 10_000_000),
        "Most jobs of one log that have failed and wait, or were given up. At the limit, new jobs wait until others \
         are delivered or their dead letters are resolved.",
    ),
    key(
        "dispatch.lease_secs",
        number("seconds", 1, 3600),
        "If several brokers share a log, one of them delivers; if it stops responding, another takes over after \
         this time.",
    ),
    key(
        "dispatch.origin",
        ValueType::Text("a name"),
        "The DNS name by which the broker identifies itself when it requests a receiver's consent.",
    ),
    key(
        "dispatch.ca_file",
        ValueType::Text("a path"),
        "A PEM file with root certificates that are trusted for deliveries, in addition to the machine's.",
    )
    .optional(),
    key(
        "dispatch.secret_key",
        ValueType::Text("a secret"),
        "The key that encrypts the secrets of subscriptions, the same for all brokers of a database: 32 random \
         bytes in base64 or hex (`openssl rand -base64 32`); any other text is stretched with PBKDF2, and the \
         broker warns of it. Absent: a key file in `storage.path`; with `database` no secrets can be stored.",
    )
    .optional(),
    key(
        "server.listen",
        ValueType::Text("an address and a port"),
        "The address of the server, such as `127.0.0.1:8087` or `[::1]:8087`. Port 0 selects a free port.",
    ),
    key("server.insecure", ValueType::Flag, "Listen beyond loopback although there is no authentication."),
    key(
        "server.allowed_hosts",
        ValueType::Texts("hosts"),
        "Names in `Host` (`:authority`) that the server accepts, on any port: `broker.example.com`, or \
         `*.example.com` for all names below it. Always accepted: `localhost`, loopback addresses and the address \
         of `server.listen`; any IP address if that is `0.0.0.0` or `[::]`. Others are refused with 421.",
    ),
    key(
        "server.max_connections",
        number("connections", 1, 1_000_000),
        "Most open connections; further ones are refused.",
    ),
    key(
        "server.max_connections_per_address",
        number("connections", 1, 1_000_000),
        "Most open connections from one address (of IPv6: one /64 network; a proxy is one address). Default: at \
         most half of all connections.",
    ),
    key(
        "server.max_waits",
        number("requests", 1, 10_000_000),
        "Most polls, streams and other requests that wait at the same time, over all connections; further ones are \
         refused with 429.",
    ),
    key("server.max_waits_per_address", number("requests", 1, 10_000_000), "Most waiting requests from one address."),
    key(
        "server.header_timeout_secs",
        number("seconds", 1, 3600),
        "The longest time until the head of a request is complete, counted from the end of the last request; a \
         connection may be idle for this long.",
    ),
    key(
        "server.body_timeout_secs",
        number("seconds", 1, 3600),
        "The longest wait between two parts of a body. A whole body may take this long, plus a second for every 32 \
         KiB.",
    ),
    key(
        "server.request_timeout_secs",
        number("seconds", 1, 3600),
        "The longest time for a whole request; it does not apply to polls, streams and `:test` of a subscription.",
    ),
    key(
        "server.write_timeout_secs",
        number("seconds", 1, 86_400),
        "How long a client may neither accept what is sent to it nor send anything.",
    ),
    key(
        "server.import_unread_timeout_secs",
        number("seconds", 1, 86_400),
        "How long an import continues while the client does not read its report.",
    ),
    key("server.max_header_bytes", number("bytes", 8192, 1024 * 1024), "The largest head of a request."),
    key(
        "server.max_inflight_bytes",
        number("bytes", 2 * 1024 * 1024, 1 << 40),
        "Most bytes of request bodies in memory at the same time, over all connections. Imports may hold a quarter \
         of that in addition, at least 4 MiB.",
    ),
    key(
        "server.max_answer_bytes",
        number("bytes", 4 * 1024 * 1024, 1 << 40),
        "Most bytes of events in responses that are being sent at the same time, over all connections. If little is \
         left, pages are shorter; if nothing is left, reads are refused with 429.",
    ),
    key(
        "server.max_connection_bytes",
        number("bytes", 4 * 1024 * 1024, 1 << 40),
        "Most bytes of connections themselves: 4800 for one whose poll waits, 24 KiB for another one over HTTP/1 (a \
         stream is one), 96 KiB for one over HTTP/2 and at least 12 KiB for each of its requests; with TLS 8 KiB more \
         for each connection. If nothing is left, \
         connections are refused with 429 or 503, and requests over HTTP/2 with 429. An eighth is reserved for \
         addresses with few connections.",
    ),
    key(
        "server.address_share_percent",
        number("percent", 1, 100),
        "The share of the bytes of bodies, of imports, of responses and of connections that the requests of one address (of IPv6: \
         one /64 network) may hold, in percent; one body of the largest size is always possible. A proxy in front \
         of the server is one address: set 100 there.",
    ),
    key(
        "server.drain_timeout_secs",
        number("seconds", 0, 3600),
        "How long a stopping server waits for requests in flight.",
    ),
    key(
        "server.tls.certificate",
        ValueType::Text("a file"),
        "The certificate of the server in PEM, followed by the certificates of intermediate authorities. With it the \
         server speaks only TLS. Read again when the file changes, and on SIGHUP.",
    )
    .optional(),
    key(
        "server.tls.key",
        ValueType::Text("a file"),
        "The private key of that certificate, in PEM and without a password. Only the broker should be able to read it.",
    )
    .optional(),
    key(
        "server.tls.client_ca",
        ValueType::Text("a file"),
        "The authorities that sign the certificates of clients, in PEM.",
    )
    .optional(),
    key(
        "server.tls.client_auth",
        ValueType::Word(&["off", "optional", "required"]),
        "Whether clients send a certificate: `required` refuses those without one, `optional` serves them too. A \
         certificate that does not verify is always refused.",
    ),
    key(
        "server.tls.crl",
        ValueType::Text("a file"),
        "Lists of revoked client certificates, in PEM, or one in DER: one of each authority that signs certificates of \
         clients.",
    )
    .optional(),
    key(
        "server.cors.allowed_origins",
        ValueType::Texts("origins"),
        "Web pages of other origins that may call the server, such as `https://example.com`. `\"*\"` is refused \
         because there is no authentication.",
    ),
    key("server.compression", ValueType::Flag, "Compress responses for clients that accept it."),
    key(
        "server.threads",
        number("threads", 1, 1024),
        "Threads that serve requests. Absent: one per core; with `database` one less, which is left to the database.",
    )
    .optional(),
    key(
        "logging.level",
        ValueType::Text("a level"),
        "`off`, `error`, `warn`, `info`, `debug` or `trace`, or levels by target: `info,event_broker=debug`.",
    ),
    key("logging.format", ValueType::Word(&["text", "json"]), "The format of log lines."),
    key(
        "types.unregistered",
        ValueType::Word(&["refuse", "accept"]),
        "Whether events of unregistered types are refused, or stored without validation.",
    ),
    key(
        "gts.profile",
        ValueType::Word(&["relaxed", "strict"]),
        "Which identifiers are accepted. `relaxed`: codes and GTS identifiers. `strict`: only GTS identifiers that \
         follow their specification.",
    ),
    key("tenant.required", ValueType::Flag, "Whether every event must have a tenant."),
    key(
        "idempotency.key_retention_hours",
        number("hours", 24, 2160),
        "How long the response to a request with an `Idempotency-Key` is stored.",
    ),
    key("topics", ValueType::Items("topics"), "Topics that are registered at start, with the members of the API."),
    key(
        "event_types",
        ValueType::Items("event types"),
        "Event types that are registered at start, with the members of the API.",
    ),
    key(
        "routes",
        ValueType::Items("routes"),
        "The topic of events whose type names none: `{type, topic}`, with a pattern as `type`; the most specific \
         route wins.",
    ),
    key(
        "default_topic",
        ValueType::Text("an identifier"),
        "The topic of all other events; registered at start. `null`: none, so they must name their topic.",
    )
    .optional(),
    key(
        "maintenance.retention_check_secs",
        number("seconds", 1, 86_400),
        "The interval at which retention is applied.",
    ),
    key(
        "maintenance.erase_within_secs",
        number("seconds", 1, 31_536_000),
        "How long the bytes of removed events may stay in the log's files. They are erased sooner while nothing is \
         appended.",
    ),
    key(
        "maintenance.checkpoint_rows",
        number("rows", 1000, 100_000_000),
        "Rows of the broker's tables that are kept in RAM before they are written to disk.",
    ),
    key(
        "maintenance.reclaim_bytes",
        number("bytes", 1, 1_000_000_000_000),
        "Finished claims, finished jobs, expired replies and other entries of the broker that are no longer needed \
         are reclaimed once entries of this size, and as many as are still needed, were appended; in any case once \
         a day.",
    ),
    key(
        "maintenance.reclaim_after_secs",
        number("seconds", 0, 31_536_000),
        "How long the broker's own entries stay in the log at least: as a record of the past, and because another \
         broker on the same database may not have read them yet.",
    ),
    key(
        "maintenance.max_clock_jump_secs",
        number("seconds", 1, 31_536_000),
        "How far the wall clock may jump ahead of the log's time at once. A longer jump must last this long before events \
         are stored with its time.",
    ),
];

/// The prefix of every key's environment variable.
pub const ENVIRONMENT_PREFIX: &str = "EVENT_BROKER__";

/// The environment variable that sets a key or a whole section.
#[must_use]
pub fn variable(name: &str) -> String {
    format!("{ENVIRONMENT_PREFIX}{}", name.to_ascii_uppercase().replace('.', "__"))
}

/// Whether there are keys below this path.
#[must_use]
pub fn is_section(path: &str) -> bool {
    KEYS.iter().any(|key| key.name.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

/// The paths that have keys below them.
pub(super) fn sections() -> impl Iterator<Item = &'static str> {
    KEYS.iter().flat_map(|key| key.name.match_indices('.').filter_map(|(at, _)| key.name.get(..at)))
}

/// The keys as a Markdown table, for the docs.
#[must_use]
pub fn table() -> String {
    let defaults = serde_json::to_value(Config::folder("./data")).unwrap_or_default();
    let mut table = String::from("| key | takes | default | meaning |\n|---|---|---|---|\n");
    for ConfigKey { name, expects, about, .. } in KEYS {
        let default = match defaults.pointer(&format!("/{}", name.replace('.', "/"))) {
            None | Some(serde_json::Value::Null) => "none".to_owned(),
            Some(serde_json::Value::String(text)) => format!("`{text}`"),
            Some(value) => format!("`{value}`"),
        };
        let _ = writeln!(table, "| `{name}` | {expects} | {default} | {about} |");
    }
    table
}
