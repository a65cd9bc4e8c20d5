//! Every key of the configuration: its name, what it takes, and what it is for.
//!
//! - [`KEYS`] is the one list. The loader refuses what is not in it, and [`table`] writes the docs from it.
//! - A key is named by its path below `modules.event_broker`, with dots. In the environment it is the same path in
//!   capitals behind `EVENT_BROKER`, with two underscores before each level.

use super::Config;
pub use super::key::{ConfigKey, ValueType};
use super::key::{key, number};
use std::fmt::Write;

/// Every key, in the order of the docs.
pub const KEYS: &[ConfigKey] = &[
    key(
        "storage.type",
        ValueType::Word(&["memory", "file", "database"]),
        "What keeps the log. `database` is the PostgreSQL database at `storage.url`, which several brokers may share.",
    ),
    key(
        "storage.path",
        ValueType::Text("a folder"),
        "The folder of the file engine, from where the program is started; made when missing. With `database` it holds \
         the broker's tables, a cache.",
    ),
    key("storage.segment_bytes", number("bytes", 1024, 4_000_000_000), "Files of the log are sealed at this size."),
    key(
        "storage.free_space_warn_bytes",
        number("bytes", 0, 1 << 50),
        "Less free space on a volume of the log is warned of; at most a tenth of the volume counts. 0: never.",
    ),
    key(
        "storage.free_space_refuse_bytes",
        number("bytes", 0, 1 << 50),
        "With less nothing is stored that makes the log grow; at most a twentieth of the volume counts. 0: off.",
    ),
    key(
        "storage.retention_days",
        number("days", 1, 36_500),
        "How long events stay in topics that name no retention. Absent: for ever.",
    )
    .optional(),
    key(
        "storage.locations",
        ValueType::Texts("folders"),
        "Folders outside `storage.path` where topics may have a log of their own.",
    ),
    key(
        "storage.side_logs",
        ValueType::Flag,
        "Whether a new topic may begin another log in memory or in `storage.path`; each takes threads and open files. If not, \
         only in `storage.locations`. Logs that are there stay in use.",
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
        "A file that holds `storage.url` and nothing else, so that the password stands neither in the configuration nor on \
         the command line.",
    )
    .optional(),
    key(
        "storage.owner_url",
        ValueType::Text("a database URL"),
        "The same database as its owner, who creates and updates the schema at start. Absent: `storage.url` does.",
    )
    .optional(),
    key(
        "storage.maintenance_url",
        ValueType::Text("a database URL"),
        "The same database as the role that removes what retention lets go. Absent: `storage.url` tries.",
    )
    .optional(),
    key(
        "storage.require_tls",
        ValueType::Flag,
        "Refuse a database beyond this machine that does not prove its name by a certificate (`sslmode=verify-full`). \
         Otherwise that is a warning at start.",
    ),
    key("batch.max_size", number("events", 1, 10_000), "Most events in one batch."),
    key("batch.max_payload_bytes", number("bytes", 1024, 32 * 1024 * 1024), "Largest batch: the body of the request."),
    key(
        "polling.default_timeout_secs",
        number("seconds", 0, 3600),
        "How long a poll waits that names no `timeout`. Default: the smaller of 30 and `polling.max_timeout_secs`.",
    ),
    key("polling.max_timeout_secs", number("seconds", 1, 3600), "The longest `timeout` a poll may name."),
    key(
        "polling.poll_interval_ms",
        number("milliseconds", 1, 3_600_000),
        "Without effect: a poll is woken by the append itself, never by an interval. Taken so that files \
         written for it load.",
    ),
    key(
        "consumer.default_limit",
        number("events", 1, 10_000),
        "Events in an answer to a request that names no `limit`. Default: the smaller of 100 and `consumer.max_limit`.",
    ),
    key("consumer.max_limit", number("events", 1, 10_000), "The largest `limit` a request may name."),
    key(
        "consumer.session_timeout_secs",
        number("seconds", 1, 86_400),
        "How long a consumer lives without polling, unless it says otherwise.",
    ),
    key(
        "claims.lease_secs",
        number("seconds", 1, 86_400),
        "How long a claim holds without a heartbeat, unless its handler or itself says otherwise.",
    ),
    key(
        "claims.heartbeat_secs",
        number("seconds", 1, 86_399),
        "How often workers are told to send a heartbeat; shorter than the lease. A claim says at most a third of its own \
         lease, whatever stands here.",
    ),
    key(
        "claims.max_attempts",
        number("attempts", 1, 100),
        "After this many failed attempts an event is a dead letter, unless its handler says otherwise.",
    ),
    key(
        "claims.backoff_secs",
        number("seconds", 0, 3600),
        "The wait after a first failure; it doubles with every further one, up to an hour.",
    ),
    key(
        "claims.unused_days",
        number("days", 0, 36_500),
        "After so many days handlers and groups that nobody uses are forgotten, where everything they have done or seen is \
         gone from their topics. 0: never.",
    ),
    key(
        "claims.order",
        ValueType::Word(&["latest", "gapless"]),
        "How events of one aggregate are ordered. `latest`: if a later event is already done, this event is skipped \
         (`stale`). `gapless`: an event waits for the one before it.",
    ),
    key("dispatch.enabled", ValueType::Flag, "Whether this broker pushes events to subscribers."),
    key(
        "dispatch.allow_private_targets",
        ValueType::Flag,
        "Whether subscribers in private networks, and on this machine, may be called.",
    ),
    key(
        "dispatch.allowed_hosts",
        ValueType::Texts("host names"),
        "Hosts that subscriptions and tasks may name, as `hooks.example.com`, or `*.example.com` for all below it. Empty: all.",
    ),
    key(
        "dispatch.concurrency",
        number("deliveries", 1, 10_000),
        "Most deliveries at a time in the default pool, unless the pool was changed.",
    ),
    key(
        "dispatch.max_open_jobs",
        number("jobs", 1, 10_000_000),
        "Most jobs of one log that failed and wait, or were given up; at the limit jobs that were not tried yet wait until \
         others are delivered, or their dead letters resolved.",
    ),
    key(
        "dispatch.lease_secs",
        number("seconds", 1, 3600),
        "Of several brokers on one log one delivers; when it falls silent another takes over after this time.",
    ),
    key(
        "dispatch.origin",
        ValueType::Text("a name"),
        "What the broker calls itself, by its DNS name, when it asks a receiver for its consent.",
    ),
    key(
        "dispatch.ca_file",
        ValueType::Text("a path"),
        "A PEM file with root certificates that are trusted besides the machine's when events are pushed.",
    )
    .optional(),
    key(
        "dispatch.secret_key",
        ValueType::Text("a secret"),
        "What the secrets of subscriptions are sealed with, the same for all brokers of a database: 32 random bytes in base64 \
         or hex (`openssl rand -base64 32`); any other text is stretched by PBKDF2 and warned of. Absent: a key file in \
         `storage.path`; with `database` no secrets can be kept.",
    )
    .optional(),
    key(
        "server.listen",
        ValueType::Text("an address and a port"),
        "Where the server listens, as `127.0.0.1:8087` or `[::1]:8087`. Port 0 takes a free one.",
    ),
    key("server.insecure", ValueType::Flag, "Listen beyond loopback without authentication."),
    key(
        "server.allowed_hosts",
        ValueType::Texts("hosts"),
        "Names in `Host` (`:authority`) that the server answers for, on any port: `broker.example.com`, or \
         `*.example.com` for all names below one. Always: `localhost`, loopback addresses and the address of \
         `server.listen`; any IP address where that is `0.0.0.0` or `[::]`. Others are refused with 421.",
    ),
    key("server.max_connections", number("connections", 1, 1_000_000), "Most open connections; more are turned away."),
    key(
        "server.max_connections_per_address",
        number("connections", 1, 1_000_000),
        "Most from one address (of IPv6: one /64 network; a proxy is one address). Default: at most half of all connections.",
    ),
    key(
        "server.max_waits",
        number("requests", 1, 10_000_000),
        "Most polls, streams and other requests that wait at the same time, over all connections; more are refused with 429.",
    ),
    key("server.max_waits_per_address", number("requests", 1, 10_000_000), "Most of them from one address."),
    key(
        "server.header_timeout_secs",
        number("seconds", 1, 3600),
        "How long the head of a request may take, from the end of the last one on; a connection may idle this long.",
    ),
    key(
        "server.body_timeout_secs",
        number("seconds", 1, 3600),
        "The longest wait between two pieces of a body. A whole body has this long, and a second more for every 32 KiB.",
    ),
    key(
        "server.request_timeout_secs",
        number("seconds", 1, 3600),
        "How long a request may take altogether; not for polls and streams.",
    ),
    key(
        "server.write_timeout_secs",
        number("seconds", 1, 86_400),
        "How long a client may take nothing of what is sent to it, and send nothing.",
    ),
    key(
        "server.import_unread_timeout_secs",
        number("seconds", 1, 86_400),
        "How long an import goes on whose report the client does not read.",
    ),
    key("server.max_header_bytes", number("bytes", 8192, 1024 * 1024), "The largest head of a request."),
    key(
        "server.max_inflight_bytes",
        number("bytes", 2 * 1024 * 1024, 1 << 40),
        "Bytes of request bodies held at the same time, over all connections. Imports hold up to a quarter of that in \
         addition, at least 4 MiB.",
    ),
    key(
        "server.max_answer_bytes",
        number("bytes", 4 * 1024 * 1024, 1 << 40),
        "Bytes of events in answers that are being sent at the same time, over all connections. Where little is left, pages \
         are shorter; where nothing is left, reads are refused with 429.",
    ),
    key(
        "server.address_share_percent",
        number("percent", 1, 100),
        "How much of the bytes of bodies, of imports and of answers the requests of one address (of IPv6: one /64 network) \
         may hold, in percent; one body of the largest size in any case. A proxy in front of the server is one address: \
         set 100 there.",
    ),
    key(
        "server.drain_timeout_secs",
        number("seconds", 0, 3600),
        "How long a stopping server waits for what is in flight.",
    ),
    key(
        "server.cors.allowed_origins",
        ValueType::Texts("origins"),
        "Web pages of other origins that may call the server, as `https://example.com`. `\"*\"` is refused while there is \
         no authentication.",
    ),
    key("server.compression", ValueType::Flag, "Compress answers for clients that take it."),
    key(
        "server.threads",
        number("threads", 1, 1024),
        "Threads that serve requests. Absent: one for each core; with `database` one less, which is left to the database.",
    )
    .optional(),
    key(
        "logging.level",
        ValueType::Text("a level"),
        "`off`, `error`, `warn`, `info`, `debug` or `trace`, or levels by target: `info,event_broker=debug`.",
    ),
    key("logging.format", ValueType::Word(&["text", "json"]), "How log lines are written."),
    key(
        "types.unregistered",
        ValueType::Word(&["refuse", "accept"]),
        "What happens to events of types nobody registered; accepted ones are stored without validation.",
    ),
    key(
        "gts.profile",
        ValueType::Word(&["relaxed", "strict"]),
        "Which identifiers are taken. `relaxed`: codes and GTS identifiers. `strict`: only GTS identifiers as their \
         specification has them.",
    ),
    key("tenant.required", ValueType::Flag, "Whether an event must name its tenant."),
    key(
        "idempotency.key_retention_hours",
        number("hours", 24, 2160),
        "How long the answer to a request with an `Idempotency-Key` is kept.",
    ),
    key("topics", ValueType::Items("topics"), "Topics registered at start, members as in the API."),
    key("event_types", ValueType::Items("event types"), "Event types registered at start, members as in the API."),
    key(
        "routes",
        ValueType::Items("routes"),
        "Where events go whose type names no topic: `{type, topic}`, `type` a pattern; the most specific \
         wins.",
    ),
    key(
        "default_topic",
        ValueType::Text("an identifier"),
        "Where all other events go; registered at start. `null`: nowhere, they must name their topic.",
    )
    .optional(),
    key(
        "maintenance.retention_check_secs",
        number("seconds", 1, 86_400),
        "How often events past their retention are looked for.",
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
        "Rows of the broker's tables kept in RAM before they go to disk.",
    ),
    key(
        "maintenance.reclaim_bytes",
        number("bytes", 1, 1_000_000_000_000),
        "Finished claims, finished jobs, expired answers and other entries of the broker's own that say nothing any more are \
         reclaimed once entries of this size were appended, and as many as are still needed; in any case once a day.",
    ),
    key(
        "maintenance.reclaim_after_secs",
        number("seconds", 0, 31_536_000),
        "How long the broker's own entries stay in the log at least: what they say of the past, and what another broker on \
         the same database may not have read yet.",
    ),
    key(
        "maintenance.max_clock_jump_secs",
        number("seconds", 1, 31_536_000),
        "How far the wall clock may jump ahead of the log's time at once. A longer jump must last this long before events \
         are stored with its time.",
    ),
];

/// The start of every key's environment variable.
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
