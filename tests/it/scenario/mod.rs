//! The scenario language: a test is a text with one command per line and the expected result after `->`.
//!
//! The same text runs on every engine. Names are short (`orders`, `placed`, `order`) and stand for GTS ids.
//!
//! ```text
//! topic orders retention=P1D                      -> created
//! type placed topic=orders subjects=order         -> created
//! delete-topic orders                             -> deleted                           by force
//! publish placed a id=1                           -> created 1 aggregate 1
//! batch placed a ; placed b                       -> created 2 aggregate 2 | created 3 aggregate 1
//! read orders after=1                             -> 2 3 next 3 tail 3
//! reopen      crash      rebuild                  close and open; open a copy taken now; open without the tables
//!                                                 (side logs in memory begin again)
//! advance 90000                                   milliseconds pass
//! step -90000                                     the wall clock alone is set ahead or back, in milliseconds
//! ```

mod claims;
mod consumers;
mod projections;

use contract::api::*;
use contract::{
    AggregateRead, AggregateSequence, Atomicity, CleanupPolicy, Error, EventFilter, FencingToken, LogRead, NewEvent,
    NewEventType, NewTopic, Offset, Position, ProducerId, PublishOutcome, PublishedEvent, ReadOffset, RegisterOutcome,
    RepublishRequest, RepublishTarget, Result, Sequence, SubjectTypeId, Timestamp, TopicChange, TopicId, TopicRead,
    TrimRequest,
};
use event_broker::{Broker, Clock, Config, ManualClock, StorageConfig};
use log::{Log, MemoryLog};
use log_postgres::testing::TestServer as PostgreSql;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use uuid::Uuid;

/// Runs a scenario on every engine.
pub(crate) fn check(text: &str) {
    check_with(&Config::default(), text);
}

/// Runs a scenario on every engine, with the given configuration.
pub(crate) fn check_with(config: &Config, text: &str) {
    check_on(&[ScenarioEngine::Memory, ScenarioEngine::File, ScenarioEngine::Database], config, text);
}

/// Runs a scenario on the engines from which a topic may move to its own log.
pub(crate) fn check_alone(text: &str) {
    check_on(&[ScenarioEngine::Memory, ScenarioEngine::File], &Config::default(), text);
}

fn check_on(engines: &[ScenarioEngine], config: &Config, text: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for engine in engines.iter().copied() {
        runtime.block_on(async {
            let mut world = Box::pin(ScenarioFixture::new(engine, config.clone())).await;
            for (number, line) in text.lines().enumerate() {
                world.run(number + 1, line).await;
            }
        });
    }
}

pub(crate) fn topic_id(name: &str) -> TopicId {
    if name == "default" {
        return "gts.hx.core.events.topic.v1~".parse().unwrap();
    }
    if is_code(name) {
        return name.parse().unwrap();
    }
    format!("gts.hx.core.events.topic.v1~vendor.{name}.v1").parse().unwrap()
}

/// Whether a name of a scenario is already an identifier.
fn is_code(name: &str) -> bool {
    name.contains(['.', ':'])
}

pub(crate) fn type_id(name: &str) -> String {
    if is_code(name) {
        return name.to_owned();
    }
    format!("gts.hyperspot.core.events.type.v1~vendor.app.{name}.v1")
}

pub(crate) fn subject_type_id(name: &str) -> SubjectTypeId {
    if is_code(name) {
        return name.parse().unwrap();
    }
    format!("gts.vendor.app.{name}.v1").parse().unwrap()
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum ScenarioEngine {
    Memory,
    File,
    Database,
}

struct ScenarioFixture {
    engine: ScenarioEngine,
    config: Config,
    clock: Arc<ManualClock>,
    memory: Arc<MemoryLog>,
    folder: TempDir,
    database: Option<String>,
    broker: Option<Broker>,
    /// Consumers by their names in the scenario.
    consumers: Mutex<BTreeMap<String, Uuid>>,
    /// Claims by their names in the scenario: id and token.
    claims: Mutex<BTreeMap<String, (String, FencingToken)>>,
}

/// The words of a line: plain words, and `name=value` options.
struct CommandWords<'a> {
    plain: Vec<&'a str>,
    named: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> CommandWords<'a> {
    fn of(text: &'a str) -> Self {
        let (mut plain, mut named) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some((name, value)) => named.entry(name).or_default().push(value),
                None => plain.push(word),
            }
        }
        Self { plain, named }
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.named.get(name)?.first().copied()
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.named.get(name).cloned().unwrap_or_default().into_iter()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name).map(|value| value.parse().unwrap())
    }

    /// Where a read starts: `after=2`, `after=earliest`; the default is the beginning.
    fn read_offset(&self) -> ReadOffset {
        self.get("after").map_or(ReadOffset::Behind(Offset::ZERO), |text| text.parse().unwrap())
    }
}

impl ScenarioFixture {
    async fn new(engine: ScenarioEngine, config: Config) -> Self {
        let mut world = Self {
            engine,
            config,
            clock: Arc::new(ManualClock::at(1_764_763_200_000)),
            memory: Arc::new(MemoryLog::new()),
            folder: TempDir::new().unwrap(),
            database: (engine == ScenarioEngine::Database).then(|| PostgreSql::shared().create_database()),
            broker: None,
            consumers: Mutex::default(),
            claims: Mutex::default(),
        };
        world.open().await;
        world
    }

    async fn open(&mut self) {
        let clock = self.clock.clone();
        let broker = match self.engine {
            ScenarioEngine::Memory => {
                let log: Arc<dyn Log> = self.memory.clone();
                let mut config = self.config.clone();
                self.folder.path().clone_into(&mut config.storage.path);
                Broker::on_log(config, log, None, clock).await
            }
            ScenarioEngine::File => {
                let mut config = self.config.clone();
                let retention_days = config.storage.retention_days;
                // Small segments, so that every scenario crosses several.
                config.storage =
                    StorageConfig { segment_bytes: 2000, retention_days, ..StorageConfig::folder(self.folder.path()) };
                Broker::open_at(config, clock).await
            }
            ScenarioEngine::Database => {
                let mut config = self.config.clone();
                let retention_days = config.storage.retention_days;
                let url = self.database.as_deref().unwrap();
                config.storage = StorageConfig { retention_days, ..StorageConfig::database(url, self.folder.path()) };
                Broker::open_at(config, clock).await
            }
        };
        self.broker = Some(broker.unwrap());
    }

    fn broker(&self) -> &Broker {
        self.broker.as_ref().unwrap()
    }

    async fn run(&mut self, number: usize, line: &str) {
        let (command, expected) = line.split_once("->").unwrap_or((line, ""));
        let (verb, rest) = command.trim().split_once(' ').unwrap_or((command.trim(), ""));
        let answer = match verb {
            "" => return,
            "reopen" | "crash" | "rebuild" => self.reopen(verb).await,
            "advance" => {
                self.clock.advance(rest.trim().parse().unwrap());
                String::new()
            }
            "step" => {
                self.clock.step(rest.trim().parse().unwrap());
                String::new()
            }
            _ => self.ask(verb, rest).await.unwrap_or_else(|error| describe(&error)),
        };
        let (answer, expected) = (squeeze(&answer), squeeze(expected));
        assert_eq!(answer, expected, "on {:?}, line {number}: {}", self.engine, line.trim());
    }

    async fn ask(&self, verb: &str, rest: &str) -> Result<String> {
        let words = CommandWords::of(rest);
        match verb {
            "topic" => self.topic(&words).await,
            "change" => self.change(&words).await,
            "delete-topic" => {
                self.broker().delete_topic(&topic_id(words.plain[0]), true).await.map(|()| "deleted".to_owned())
            }
            "type" => self.event_type(&words, rest).await,
            "publish" => self.publish(rest).await,
            "batch" => self.batch(rest, Atomicity::PerTopic).await,
            "batch-all" => self.batch(rest, Atomicity::All).await,
            "read" => self.read(&words, rest).await,
            "log" => self.log(&words).await,
            "event" => self.event(&words).await,
            "aggregate" => self.aggregate(&words).await,
            "history" => self.history(&words).await,
            "topics" => self.topics(&words).await,
            "types" => self.types(&words).await,
            "segments" => self.segments(&words).await,
            "expire" => Ok(format!("removed {}", self.broker().expire().await?)),
            "reclaim" => {
                let reclaimed = self.broker().reclaim_now().await?;
                Ok(if reclaimed.iter().any(|log| log.removed_through.get() > 0) { "removed" } else { "nothing" }
                    .to_owned())
            }
            "forget-unused" => self.broker().forget_unused().await.map(|()| String::new()),
            "trim" => {
                let through = Sequence(words.plain[1].parse().unwrap());
                Ok(format!("removed {}", self.broker().trim(&topic_id(words.plain[0]), through).await?))
            }
            "republish" => self.republish(&words).await,
            "let-go" => self.let_go(&words).await,
            "caused" => {
                let offset = Offset(words.plain[1].parse::<u64>().unwrap() - 1);
                let page = self.broker().read(TopicRead::all(topic_id(words.plain[0])).after(offset)).await?;
                let cause = page.items[0].event()?.causation_id.unwrap_or_default();
                Ok(cause.parse::<Uuid>().unwrap().as_u128().to_string())
            }
            "compact" => Ok(self
                .broker()
                .compact_topic(&topic_id(words.plain[0]), contract::CompactRequest::default())
                .await?
                .count
                .to_string()),
            _ => {
                let mut answer = self.ask_about_consumers(verb, &words, rest).await;
                if answer.is_none() {
                    answer = self.ask_about_projections(verb, &words, rest).await;
                }
                if answer.is_none() {
                    answer = self.ask_about_claims(verb, &words, rest).await;
                }
                answer.unwrap_or_else(|| panic!("unknown verb {verb}"))
            }
        }
    }

    /// `republish orders 1 3`, and `group=g`, `subscription=s`, `dry`.
    async fn republish(&self, words: &CommandWords<'_>) -> Result<String> {
        let number = |at: usize| Sequence(words.plain[at].parse().unwrap());
        let mut order = RepublishRequest::to_topic(number(1), number(2));
        order.dry_run = words.plain.contains(&"dry");
        order.name = words.get("group").or(words.get("subscription")).map(|name| name.replace("(none)", ""));
        if words.get("group").is_some() {
            order.target = RepublishTarget::Group;
            order.name = order.name.filter(|name| !name.is_empty());
        } else if words.get("subscription").is_some() {
            order.target = RepublishTarget::Subscriptions;
        }
        Ok(self.broker().republish(&topic_id(words.plain[0]), order).await?.count.to_string())
    }

    /// `let-go orders through=3`, or `before=-1000`, in milliseconds relative to now.
    async fn let_go(&self, words: &CommandWords<'_>) -> Result<String> {
        let before = words.get("before").map(|millis| self.clock.now() + millis.parse::<i64>().unwrap());
        let trim = TrimRequest {
            through: words.number("through").map(Sequence),
            before: before.map(Timestamp::from_millis),
            erase: false,
        };
        Ok(self.broker().trim_topic(&topic_id(words.plain[0]), trim).await?.count.to_string())
    }

    async fn reopen(&mut self, how: &str) -> String {
        let before = self.broker.take().unwrap();
        match (how, self.engine) {
            ("crash", ScenarioEngine::File) => {
                // The state that a process killed now would leave.
                let copy = image_of(self.folder.path());
                drop(before);
                self.folder = copy;
            }
            _ => {
                before.close().await;
                drop(before);
            }
        }
        if how == "rebuild" {
            remove_states(self.folder.path());
        }
        self.open().await;
        String::new()
    }

    async fn topic(&self, words: &CommandWords<'_>) -> Result<String> {
        let mut topic = NewTopic::new(topic_id(words.plain[0]));
        topic.description = words.get("description").map(str::to_owned);
        topic.retention = words.get("retention").map(str::parse).transpose()?;
        topic.idempotent_retention = words.get("window").map(str::parse).transpose()?;
        topic.on_payload_mismatch =
            words.get("mismatch").map(|text| serde_json::from_value(serde_json::json!(text)).unwrap());
        topic.secrets = words.get("secrets").map(|text| serde_json::from_value(serde_json::json!(text)).unwrap());
        topic.deduplicate_by =
            words.get("deduplicate").map(|text| serde_json::from_value(serde_json::json!(text)).unwrap());
        topic.aggregate_normalisation =
            words.all("normalise").map(|text| serde_json::from_value(serde_json::json!(text)).unwrap()).collect();
        topic.cleanup = words.plain.contains(&"compact").then_some(CleanupPolicy::Compact);
        topic.internal = words.plain.contains(&"internal");
        if let Some(streaming) = words.get("streaming") {
            topic.streaming = serde_json::from_str(streaming).unwrap();
        }
        Ok(registered(&self.broker().register_topic(topic).await?))
    }

    async fn change(&self, words: &CommandWords<'_>) -> Result<String> {
        let change = TopicChange {
            description: words.get("description").map(|text| Some(text.to_owned())),
            retention: words.get("retention").map(|text| text.parse().map(Some)).transpose()?,
            idempotent_retention: words.get("window").map(|text| text.parse().map(Some)).transpose()?,
            on_payload_mismatch: None,
            secrets: words.get("secrets").map(|text| serde_json::from_value(serde_json::json!(text)).unwrap()),
        };
        let topic = self.broker().change_topic(&topic_id(words.plain[0]), change).await?;
        Ok(topic.definition.description.unwrap_or_default())
    }

    async fn event_type(&self, words: &CommandWords<'_>, rest: &str) -> Result<String> {
        let mut event_type = NewEventType::new(type_id(words.plain[0]).parse().unwrap());
        event_type.topic = words.get("topic").map(topic_id);
        event_type.allowed_subject_types = words.all("subjects").map(subject_type_id).collect();
        event_type.tombstone = words.plain.contains(&"tombstone");
        event_type.subject_optional = words.plain.contains(&"subject-optional");
        event_type.data_schema = json_after(rest, "schema=").map(|text| serde_json::from_str(text).unwrap());
        Ok(registered(&self.broker().register_event_type(event_type).await?))
    }

    async fn publish(&self, rest: &str) -> Result<String> {
        let (event, producer) = new_event(rest);
        Ok(published(&self.broker().publish(event, producer.as_ref()).await?))
    }

    async fn batch(&self, rest: &str, atomicity: Atomicity) -> Result<String> {
        let events = rest.split(';').filter(|part| !part.trim().is_empty()).map(|part| new_event(part).0).collect();
        let outcomes = self.broker().publish_batch(events, atomicity, None).await?;
        let texts: Vec<_> = outcomes
            .iter()
            .map(|outcome| match outcome {
                Ok(outcome) => published(outcome),
                Err(error) => describe(error),
            })
            .collect();
        Ok(texts.join(" | "))
    }

    async fn read(&self, words: &CommandWords<'_>, rest: &str) -> Result<String> {
        let read = TopicRead {
            topic: topic_id(words.plain[0]),
            offset: words.read_offset(),
            limit: words.number("limit").map_or(100, |limit| usize::try_from(limit).unwrap()),
            filter: filter(words, rest)?,
        };
        let page = match words.number("wait") {
            Some(millis) => self.broker().wait(read, std::time::Duration::from_millis(millis)).await?,
            None => self.broker().read(read).await?,
        };
        let items: Vec<_> = page.items.iter().map(|event| event.sequence.to_string()).collect();
        Ok(format!("{} next {} tail {}", items.join(" "), page.next_offset, page.tail))
    }

    async fn log(&self, words: &CommandWords<'_>) -> Result<String> {
        let read = LogRead {
            after: Position(words.number("after").unwrap_or(0)),
            limit: words.number("limit").map_or(100, |limit| usize::try_from(limit).unwrap()),
            filter: EventFilter::default(),
        };
        let page = self.broker().read_log(read).await?;
        let items = page.items.iter().map(|event| {
            let topic = event.event().unwrap().topic;
            let name = topic.as_str().rsplit('~').next().unwrap().split('.').nth(1).unwrap_or("default").to_owned();
            format!("{name}/{}", event.sequence)
        });
        Ok(items.collect::<Vec<_>>().join(" "))
    }

    async fn event(&self, words: &CommandWords<'_>) -> Result<String> {
        let event = self.broker().event(Uuid::from_u128(words.plain[0].parse().unwrap())).await?;
        Ok(format!("{} {}", event.sequence, event.event()?.data.get()))
    }

    fn aggregate_read(words: &CommandWords<'_>) -> AggregateRead {
        AggregateRead {
            topic: topic_id(words.plain[0]),
            subject_type: Some(words.get("of").unwrap_or("order")).filter(|of| *of != "-").map(subject_type_id),
            subject: words.plain[1].to_owned(),
            after: AggregateSequence(words.number("after").unwrap_or(0)),
            limit: words.number("limit").map_or(100, |limit| usize::try_from(limit).unwrap()),
        }
    }

    async fn aggregate(&self, words: &CommandWords<'_>) -> Result<String> {
        let aggregate = self.broker().aggregate(Self::aggregate_read(words)).await?;
        let last = if aggregate.last_event.is_some() { "there" } else { "gone" };
        Ok(format!("{} at {} {last}", aggregate.aggregate_sequence, aggregate.sequence))
    }

    async fn history(&self, words: &CommandWords<'_>) -> Result<String> {
        let events = self.broker().read_aggregate(Self::aggregate_read(words)).await?;
        let items: Vec<_> =
            events.items.iter().map(|event| format!("{}@{}", event.aggregate_sequence, event.sequence)).collect();
        Ok(format!("{} next {} of {}", items.join(" "), events.next_after, events.aggregate_sequence))
    }

    async fn topics(&self, words: &CommandWords<'_>) -> Result<String> {
        let pattern = words.get("pattern").map(str::parse).transpose()?;
        let limit = words.number("limit").map_or(100, |limit| usize::try_from(limit).unwrap());
        let cursor = words.get("after").map(|key| contract::Cursor::After(key.to_owned()));
        let page = self.broker().topics(pattern.as_ref(), cursor.as_ref(), limit).await?;
        let names: Vec<_> = page.items.iter().map(|topic| topic.definition.id.as_str()).collect();
        Ok(format!("{} {}", names.join(" "), page.next.map_or("end", |_| "more")))
    }

    async fn types(&self, words: &CommandWords<'_>) -> Result<String> {
        let pattern = words.get("pattern").map(str::parse).transpose()?;
        let page = self.broker().event_types(pattern.as_ref(), None, None, 100).await?;
        let names: Vec<_> = page.items.iter().map(|known| known.definition.id.as_str()).collect();
        Ok(names.join(" "))
    }

    /// First and last sequence of the whole result; checks that there are no gaps.
    async fn segments(&self, words: &CommandWords<'_>) -> Result<String> {
        let segments = self.broker().segments(&topic_id(words.plain[0])).await?.segments;
        for pair in segments.windows(2) {
            assert_eq!(pair[0].end_sequence.next(), pair[1].start_sequence);
        }
        let amount: u64 = segments.iter().map(|segment| segment.amount).sum();
        match (segments.first(), segments.last()) {
            (Some(first), Some(last)) => {
                Ok(format!("{} to {} amount {amount}", first.start_sequence, last.end_sequence))
            }
            _ => Ok("none".to_owned()),
        }
    }
}

/// `TYPE SUBJECT|- name=value…`; the default tenant is 1, and `tenant=-` sets none.
fn new_event(text: &str) -> (NewEvent, Option<ProducerId>) {
    let words = CommandWords::of(text);
    let data = json_after(text, "data=").unwrap_or("{}");
    let data = RawValue::from_string(data.to_owned()).unwrap();
    let mut event =
        NewEvent::new(type_id(words.plain[0]).parse().unwrap(), words.get("source").unwrap_or("test"), data);
    let subject = words.plain.get(1).copied().filter(|subject| *subject != "-");
    event.subject = subject.map(str::to_owned);
    event.subject_type =
        subject.and_then(|_| Some(words.get("of").unwrap_or("order")).filter(|of| *of != "-")).map(subject_type_id);
    event.tenant = Some(words.get("tenant").unwrap_or("1"))
        .filter(|tenant| *tenant != "-")
        .map(|tenant| Uuid::from_u128(tenant.parse().unwrap()));
    event.id = words.get("id").map(|id| Uuid::from_u128(id.parse().unwrap()));
    event.topic = words.get("topic").map(topic_id);
    event.occurred_at = words.get("at").map(|time| time.parse().unwrap());
    event.sequence = words.get("sequence").map(|sequence| sequence.parse().unwrap());
    event.expected_aggregate_sequence = words.number("expected").map(AggregateSequence);
    event.deduplication_id = words.get("dedup").map(str::to_owned);
    event.correlation_id = words.get("correlation").map(str::to_owned);
    event.data_version = words.get("version").map(str::to_owned);
    for pair in words.all("context") {
        let (key, value) = pair.split_once(':').unwrap();
        event.context.insert(key.to_owned(), value.to_owned());
    }
    (event, words.get("producer").map(|producer| ProducerId(producer.to_owned())))
}

fn filter(words: &CommandWords<'_>, rest: &str) -> Result<EventFilter> {
    let strings = |name: &str| words.all(name).map(str::to_owned).collect::<Vec<_>>();
    Ok(EventFilter {
        types: words.all("type").map(str::parse).collect::<Result<_>>()?,
        subject_types: words.all("subject-type").map(str::parse).collect::<Result<_>>()?,
        subjects: strings("subject"),
        tenants: words.all("tenant").map(|tenant| Uuid::from_u128(tenant.parse().unwrap())).collect(),
        sources: strings("source"),
        correlation_ids: strings("correlation"),
        context: words
            .all("context")
            .map(|pair| pair.split_once(':').map(|(key, value)| (key.to_owned(), value.to_owned())).unwrap())
            .collect(),
        occurred_from: words.get("from").map(str::parse).transpose()?,
        occurred_to: words.get("to").map(str::parse).transpose()?,
        cel: rest.split_once("cel=").map(|(_, cel)| cel.trim().to_owned()),
    })
}

/// The JSON object after `marker`; it must contain no blanks, or be last on the line.
fn json_after<'a>(text: &'a str, marker: &str) -> Option<&'a str> {
    let (_, behind) = text.split_once(marker)?;
    let mut depth = 0;
    for (index, letter) in behind.char_indices() {
        match letter {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => (),
        }
        if depth == 0 {
            return Some(&behind[..index + letter.len_utf8()]);
        }
    }
    Some(behind.trim())
}

fn registered<T>(outcome: &RegisterOutcome<T>) -> String {
    match outcome {
        RegisterOutcome::Created(_) => "created".to_owned(),
        RegisterOutcome::Unchanged(_) => "unchanged".to_owned(),
    }
}

fn published(outcome: &PublishedEvent) -> String {
    let event = &outcome.event;
    let parsed = event.event().unwrap();
    assert_eq!((parsed.sequence, parsed.position, parsed.id), (event.sequence, event.position, event.id));
    let text = match outcome.outcome {
        PublishOutcome::Created if event.aggregate_sequence.0 == 0 => format!("created {}", event.sequence),
        PublishOutcome::Created => format!("created {} aggregate {}", event.sequence, event.aggregate_sequence),
        PublishOutcome::Duplicate { payload_mismatch: false } => format!("duplicate {}", event.sequence),
        PublishOutcome::Duplicate { payload_mismatch: true } => format!("mismatch {}", event.sequence),
    };
    match outcome.secret_suspected.as_slice() {
        [] => text,
        pointers => format!("{text} suspected {}", pointers.join(" ")),
    }
}

/// The code without its prefix, then the pointers, then the numbers in the error.
pub(crate) fn describe(error: &Error) -> String {
    let mut text = error.kind().code().trim_start_matches("EVENT_BROKER_").to_owned();
    for violation in error.violations().iter().filter(|violation| !violation.pointer.is_empty()) {
        text += &format!(" {}", violation.pointer);
    }
    if let Some(actual) = error.actual() {
        text += &format!(" actual {actual}");
    }
    if let Some(earliest) = error.earliest() {
        text += &format!(" earliest {earliest}");
    }
    text
}

fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Copies a live folder as it was at one moment, which is what a killed process leaves. Files that are created or
/// removed during the copy (the log frees space in the background) would mix several moments, so the copy is then
/// repeated.
fn image_of(folder: &Path) -> TempDir {
    for _ in 0..1000 {
        let copy = TempDir::new().unwrap();
        let before = files_in(folder);
        if before.is_ok() && copy_folder(folder, copy.path()).is_ok() && files_in(folder).ok() == before.ok() {
            return copy;
        }
    }
    panic!("{} keeps changing", folder.display());
}

/// Removes the tables of every log below a folder.
fn remove_states(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_name().to_str() {
            Some("state") => std::fs::remove_dir_all(entry.path()).unwrap(),
            _ if entry.file_type().unwrap().is_dir() => remove_states(&entry.path()),
            _ => (),
        }
    }
}

/// Every file below a folder with its length.
fn files_in(folder: &Path) -> io::Result<BTreeMap<PathBuf, u64>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => files.append(&mut files_in(&entry.path())?),
            false => drop(files.insert(entry.path(), entry.metadata()?.len())),
        }
    }
    Ok(files)
}

pub(crate) fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir_all(&target)?;
            copy_folder(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
