//! The limits of the contract, with their units. Other bounds are defined beside the queue that they bound.

/// Longest GTS identifier (event type, topic, subject type), in bytes.
pub const ID_BYTES_MAX: usize = 512;
/// Longest code (event type, topic, subject type), in bytes.
pub const CODE_BYTES_MAX: usize = 200;
/// Longest `subject` and `source`, in bytes.
pub const SUBJECT_BYTES_MAX: usize = 1024;
/// Longest `correlationId`, `causationId`, `messageGroup`, `deduplicationId`, `requestId`, actor id, producer id,
/// `consumerGroup`, the name of a projection or a handler, the owner of a claim and the class of a failure, in bytes.
pub const LABEL_BYTES_MAX: usize = 512;
/// Most pairs in `context`.
pub const CONTEXT_PAIRS_MAX: usize = 64;
/// Longest key or value in `context`, in bytes.
pub const CONTEXT_BYTES_MAX: usize = 1024;
/// Deepest nesting of `data`, in levels of object or array.
pub const DATA_DEPTH_MAX: usize = 64;
/// Largest event as it is stored, in bytes.
pub const EVENT_BYTES_MAX: usize = 1024 * 1024;
/// Most events in one batch.
pub const BATCH_EVENTS_MAX: usize = 100;
/// Largest batch: the sum of its events' `data`, in bytes.
pub const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// Default and largest number of events in one answer.
pub const READ_EVENTS_MAX: usize = 100;
/// Most bytes of rows in one page of event types or consumers; a page always has one row.
pub const LIST_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Most records a filtered read looks at before it answers with how far it came.
pub const SCAN_EVENTS_MAX: usize = 100_000;
/// Longest wait of a long poll, in seconds.
pub const WAIT_SECONDS_MAX: u64 = 30;
/// Longest CEL expression, in bytes.
pub const CEL_BYTES_MAX: usize = 4096;
/// Most errors listed for one refused event.
pub const VIOLATIONS_MAX: usize = 100;
/// Longest description of a topic, an event type or a subscription, in characters (Unicode code points).
pub const DESCRIPTION_CHARS_MAX: usize = 2048;
/// Largest schema (JSON Schema, proto file or XML Schema), in bytes.
pub const SCHEMA_BYTES_MAX: usize = 256 * 1024;
/// Most regular expressions in one schema.
pub const SCHEMA_PATTERNS_MAX: usize = 200;
/// Largest sum of the automata of one schema's regular expressions, by an estimate, in bytes.
pub const SCHEMA_PATTERN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most bytes of compiled schemas kept in RAM, by an estimate; the least recently used go first.
pub const COMPILED_SCHEMAS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest wait for schemas that are compiled first, and for the compilation itself, in seconds each.
pub const SCHEMA_COMPILE_SECONDS_MAX: u64 = 10;
/// Most schema versions of one event type.
pub const VERSIONS_MAX: usize = 100;
/// Largest sum of the schemas of one event type, in bytes.
pub const VERSIONS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Deepest nesting of a proto file, in brackets of any kind.
pub const PROTO_DEPTH_MAX: usize = 32;
/// Most messages, fields and enum values in one proto file.
pub const PROTO_PARTS_MAX: usize = 10_000;
/// Deepest nesting of an XML document, in elements.
pub const XML_DEPTH_MAX: usize = 64;
/// Most elements, attributes and texts in one XML document.
pub const XML_NODES_MAX: usize = 50_000;
/// Most allowed subject types of one event type.
pub const SUBJECT_TYPES_MAX: usize = 256;
/// Most topics of one broker, in all its logs.
pub const TOPICS_MAX: usize = 10_000;
/// Most logs beside the default one; each has threads, a lock and tables of its own.
pub const LOGS_MAX: usize = 64;
/// Longest `streaming.location`, in bytes.
pub const LOCATION_BYTES_MAX: usize = 1024;
/// Most event types of one broker.
pub const EVENT_TYPES_MAX: usize = 10_000;
/// Largest sum of the schemas of all event types, in bytes. Definitions are in RAM.
pub const EVENT_TYPES_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Rows of the broker's tables kept in RAM before they go to disk.
pub const CHECKPOINT_ROWS_DEFAULT: usize = 100_000;
/// How often events past their topic's retention are looked for, in seconds.
pub const RETENTION_CHECK_SECONDS_DEFAULT: u64 = 60;
/// Less free space than this on a volume of the log is warned of, in bytes. Of a small volume: a tenth.
pub const FREE_SPACE_WARN_BYTES_DEFAULT: u64 = 1024 * 1024 * 1024;
/// With less free space than this on its volume a log stores nothing that makes it grow, in bytes. Of a small volume: a
/// twentieth.
pub const FREE_SPACE_REFUSE_BYTES_DEFAULT: u64 = 256 * 1024 * 1024;
/// So many bytes of the broker's own entries are appended before old ones are reclaimed.
pub const RECLAIM_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;
/// The broker's own entries stay at least this long, in seconds.
pub const RECLAIM_AFTER_SECONDS_DEFAULT: u64 = 600;
/// How long the bytes of removed events, and the broker's own entries that say nothing any more, may stay in files of the
/// log, in seconds.
pub const ERASE_WITHIN_SECONDS_DEFAULT: u64 = 86_400;
/// How far the wall clock may step ahead of a log's time at once; a longer step must last this long. In seconds.
pub const CLOCK_JUMP_SECONDS_DEFAULT: u64 = 300;
/// An idempotency key is remembered this long unless the topic says otherwise, in hours.
pub const IDEMPOTENT_HOURS_DEFAULT: i64 = 24;
/// The longest a topic may remember idempotency keys, in days.
pub const IDEMPOTENT_DAYS_MAX: i64 = 90;
/// The answer to a request with an `Idempotency-Key` is kept this long unless the configuration says longer, in hours.
pub const KEY_HOURS_DEFAULT: u32 = 24;
/// The longest such an answer may be kept, in hours.
pub const KEY_HOURS_MAX: u32 = 90 * 24;
/// Longest `Idempotency-Key`, in characters.
pub const KEY_BYTES_MAX: usize = 255;
/// A consumer lives this long without polling unless it says otherwise, in seconds.
pub const SESSION_SECONDS_DEFAULT: i64 = 30;
/// The shortest session of a consumer, in seconds.
pub const SESSION_SECONDS_MIN: i64 = 1;
/// The longest session of a consumer, in seconds.
pub const SESSION_SECONDS_MAX: i64 = 86_400;
/// Most consumers in one log.
pub const CONSUMERS_MAX: usize = 100_000;
/// Most bytes of the definitions of all consumers, and of the filters of all groups, in one log; the broker needs up to four times as much memory for them.
pub const CONSUMERS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most type patterns, and most subject type patterns, of one consumer.
pub const CONSUMER_TYPES_MAX: usize = 256;
/// Most projections in one log.
pub const PROJECTIONS_MAX: usize = 10_000;
/// Most names of deleted projections whose generation one log remembers each by itself.
pub const DELETED_PROJECTIONS_MAX: usize = 1_000;
/// Most projections one request may wait for.
pub const WAIT_FOR_MAX: usize = 16;
/// Most offsets of groups in one log, one per group and topic.
pub const GROUP_OFFSETS_MAX: usize = 100_000;
/// A claim holds this long without a heartbeat unless its handler or itself says otherwise, in seconds.
pub const LEASE_SECONDS_DEFAULT: u64 = 900;
/// The longest a claim may hold without a heartbeat, in seconds.
pub const LEASE_SECONDS_MAX: i64 = 86_400;
/// How often a worker should send a heartbeat, in seconds.
pub const HEARTBEAT_SECONDS_DEFAULT: u64 = 30;
/// After this many failed attempts an event is a dead letter, unless the handler says otherwise.
pub const ATTEMPTS_DEFAULT: u32 = 5;
/// The most attempts a handler may ask for.
pub const ATTEMPTS_MAX: u32 = 100;
/// Failed attempts of one event that are remembered, the last ones.
pub const ATTEMPTS_KEPT: usize = 20;
/// The wait after a first failure unless the handler says otherwise, in seconds.
pub const BACKOFF_SECONDS_DEFAULT: u64 = 1;
/// Handlers and groups that nobody uses are forgotten after so many days, unless the configuration says otherwise.
pub const UNUSED_DAYS_DEFAULT: u64 = 30;
/// Doubled or not, no wait for the next attempt is longer, in seconds.
pub const BACKOFF_SECONDS_MAX: i64 = 3600;
/// A failure's message is cut off after so many bytes.
pub const FAILURE_MESSAGE_BYTES_MAX: usize = 4096;
/// Most claims, or completions, in one request.
pub const CLAIMS_BATCH_MAX: usize = 100;
/// Most handlers in one log, known or only claiming.
pub const HANDLERS_MAX: usize = 10_000;
/// Most claims in one log that are not finished, dead letters among them.
pub const OPEN_CLAIMS_MAX: usize = 1_000_000;
/// A consumer of a shared group has at most so many events in hand unless it says otherwise.
pub const IN_FLIGHT_DEFAULT: u32 = 100;
/// The most events a consumer of a shared group may ask to have in hand.
pub const IN_FLIGHT_MAX: u32 = 10_000;
/// Events that one broker process keeps ready for a shared group and topic, found but not finished. Beyond it the process
/// looks no further until some are finished.
pub const GROUP_BACKLOG_MAX: usize = 1_000_000;
/// Most events one request may publish again, or hand to a group again.
pub const REPUBLISH_EVENTS_MAX: u64 = 100_000;
/// Most damaged events that the response to one such request names.
pub const DAMAGED_NAMED_MAX: usize = 100;
/// Finishing tokens remembered per handler and topic, of events that were claimed more than once.
pub const FINISHING_TOKENS_KEPT: usize = 10_000;
/// Sequences below a topic's trim for which a handler's finished events are remembered, for republished copies of them: at most
/// 8 MiB per handler and topic, and a few bytes if the handler has done all of them.
pub const FINISHED_BELOW_TRIM_KEPT: u64 = 1 << 26;
/// Dead letters remembered per log after somebody dealt with them, the last ones.
pub const RESOLVED_LETTERS_KEPT: usize = 10_000;
/// Longest reason for redriving or discarding, in bytes.
pub const REASON_BYTES_MAX: usize = 2048;
/// Longest URL that is called (a subscription's target, a token endpoint), in bytes.
pub const TARGET_BYTES_MAX: usize = 2048;
/// Most headers of its own a subscription may have sent.
pub const HEADERS_MAX: usize = 32;
/// Longest name of such a header, in bytes.
pub const HEADER_NAME_BYTES_MAX: usize = 128;
/// Longest value of such a header, in bytes.
pub const HEADER_VALUE_BYTES_MAX: usize = 2048;
/// Most secrets that sign the deliveries of one subscription at a time.
pub const SIGNING_SECRETS_MAX: usize = 8;
/// Longest user name, password, token or other credential a delivery is sent with, in bytes.
pub const CREDENTIAL_BYTES_MAX: usize = 8 * 1024;
/// Longest certificate chain or private key in PEM a delivery is sent with, in bytes.
pub const PEM_BYTES_MAX: usize = 64 * 1024;
/// The longest a receiver can put off a delivery by one answer, in seconds.
pub const DEFER_SECONDS_MAX: u64 = 86_400;
/// A receiver that puts a delivery off without saying for how long gets it again after this, in seconds.
pub const DEFER_SECONDS_DEFAULT: u64 = 30;
/// Most subscriptions in one log.
pub const SUBSCRIPTIONS_MAX: usize = 20_000;
/// Most pools of a broker.
pub const POOLS_MAX: usize = 1000;
/// The most deliveries a pool may run at a time.
pub const POOL_CONCURRENCY_MAX: u32 = 10_000;
/// Most deliveries at a time in a pool that nobody has changed.
pub const POOL_CONCURRENCY_DEFAULT: u32 = 64;
/// The most deliveries a pool may begin in a minute.
pub const POOL_RATE_MAX: u32 = 10_000_000;
/// Most type patterns of one subscription.
pub const TYPE_BINDINGS_MAX: usize = 100;
/// The longest an attempt may take, in seconds.
pub const DELIVERY_SECONDS_MAX: u32 = 300;
/// Bytes of events that the deliveries under way of one log hold; more wait.
pub const DELIVERY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The age at which a job expires unless its subscription says otherwise; of tasks always. In seconds.
pub const JOB_AGE_SECONDS_DEFAULT: u32 = 86_400;
/// The longest a job may live, or wait before its first attempt, in seconds.
pub const JOB_SECONDS_MAX: u32 = 30 * 86_400;
/// Most waits in a schedule.
pub const SCHEDULE_MAX: usize = 100;
/// Jobs of one log that failed and wait, or were given up, unless the configuration says otherwise; jobs that were not
/// tried yet wait then.
pub const OPEN_JOBS_MAX: u32 = 1_000_000;
/// What is kept of the answer to a job's last attempt, in bytes.
pub const RESPONSE_BYTES_KEPT: usize = 1024;
/// And of the answers before it.
pub const EARLIER_RESPONSE_BYTES_KEPT: usize = 64;
/// Jobs of one log that may wait in memory for their turn; what is behind them is read later.
pub const JOBS_AHEAD_MAX: usize = 1_000_000;
/// Completed jobs of one subscription whose attempts are remembered, the last ones.
pub const COMPLETED_JOBS_KEPT: usize = 100;
/// Most tasks in one log that are not over.
pub const TASKS_MAX: usize = 100_000;
/// Most bytes of the payloads of all tasks in one log.
pub const TASKS_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Tasks remembered after they are over, the last ones, while the payloads of all tasks fit into half of
/// [`TASKS_BYTES_MAX`].
pub const TASKS_KEPT: usize = 10_000;
/// Replays of one subscription that may run at a time.
pub const REPLAYS_MAX: usize = 8;
/// Longest payload of a task, in bytes.
pub const TASK_BYTES_MAX: usize = 256 * 1024;
/// How long old secrets sign beside a new one unless the rotation says otherwise, in seconds.
pub const GRACE_SECONDS_DEFAULT: u32 = 86_400;
/// The longest they may, in seconds.
pub const GRACE_SECONDS_MAX: u32 = 30 * 86_400;
