//! Consumers: clients that read a topic through a filter, with a session that each poll extends.
//!
//! - Consumers are entries of the log: they survive a restart. When each was last seen is kept in RAM, and recorded at
//!   intervals ([`sessions`]), so that polling does not write.
//! - An expired consumer is not found, whether or not its row is removed already.
//! - A filter is compiled once per consumer and process, not once per poll.
//! - A poll of a member of a shared group is handled by `shared_groups`.
//! - A waiting poll keeps its consumer alive; if the consumer is deleted, the poll ends with 404.
//!
//! Offsets are in [`groups`], matching in `filters`, reading in `events`.

mod deletion;
mod expiry;
mod groups;
mod peers;
mod sessions;
mod unused_names;

pub(crate) use expiry::run_consumer_expiry;
pub(crate) use sessions::ConsumerSessions;
pub(crate) use unused_names::{forget_unused, unused_millis};

use crate::claims::{ClaimDefaults, MemberDeparture};
use crate::events::CallerContext;
use crate::filters::{self, CompiledFilter};
use crate::lag::LagCache;
use crate::ledger::{Command, ConsumerRow, Decision, Entry, Ledger, ReplyRecorder};
use crate::logs::LogRef;
use crate::shared_groups::{SharedGroups, SharedPoll};
use contract::{
    Consumer, Cursor, Distribution, Error, EventFilter, EventPage, IsoDuration, Kind, NewConsumer, Page, ReadOffset,
    Result, Timestamp, Violation, limits,
};
use peers::GroupPeers;
use sessions::ConsumerSession;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Most expired consumers removed by one entry.
const EXPIRED_PER_ENTRY_MAX: usize = 1000;

/// The consumers of all logs, on behalf of callers. Each is in the log of its topic.
pub(crate) struct Consumers<'a> {
    pub(crate) context: CallerContext<'a>,
    pub(crate) sessions: &'a ConsumerSessions,
    /// The default session timeout, in seconds.
    pub(crate) default_session: i64,
    pub(crate) groups: &'a SharedGroups,
    /// The default policy of shared groups' work.
    pub(crate) terms: ClaimDefaults,
    pub(crate) lag: &'a LagCache,
}

/// A live consumer, and the log that has it.
struct LiveConsumer {
    ledger: Arc<Ledger>,
    entry: ConsumerRow,
}

impl Consumers<'_> {
    /// Creates a consumer.
    pub(crate) async fn create(&self, consumer: NewConsumer, recorder: ReplyRecorder<Consumer>) -> Result<Consumer> {
        let filter = check(&consumer)?;
        let unknown = |_| Error::invalid("/topic", "is not registered");
        let found = self.context.logs.find(&consumer.topic).map_err(unknown)?;
        let create = CreateConsumer { id: Uuid::new_v4(), consumer, default_session: self.default_session };
        let consumer = self.context.logs.ledger(&found.log).submit_recording(create, recorder).await?;
        self.sessions.open(consumer.id, filter, consumer.created_at.millis());
        Ok(consumer)
    }

    /// One consumer.
    pub(crate) fn get(&self, id: Uuid) -> Result<Consumer> {
        let LiveConsumer { ledger, entry } = self.find(id)?;
        Ok(self.view(&entry, ledger.now()))
    }

    /// Consumers in order of their ids, of one group or of all, the page at `cursor`.
    pub(crate) fn list(&self, group: Option<&str>, cursor: Option<&Cursor>, limit: usize) -> Result<Page<Consumer>> {
        self.context.reader.check_limit(limit)?;
        let mut live = Vec::new();
        for ledger in self.context.logs.ledgers() {
            let (now, readers) = (ledger.now(), ledger.consumers());
            let rows: Box<dyn Iterator<Item = &ConsumerRow>> = match group {
                Some(group) => Box::new(readers.members(group)),
                None => Box::new(readers.consumers()),
            };
            live.extend(rows.filter(|entry| self.sessions.is_live(entry, now)).map(|entry| (entry.clone(), now)));
        }
        live.sort_unstable_by_key(|(entry, _)| entry.consumer.id);
        let bytes = |(entry, _): &&(ConsumerRow, i64)| entry.bytes();
        let key = |(entry, _): &&(ConsumerRow, i64)| entry.consumer.id.to_string();
        let page = Page::of_rows_with_sizes(live.iter(), cursor, limit, bytes, key);
        Ok(page.map(|(entry, now)| self.view(entry, *now)))
    }

    /// Deletes a consumer.
    pub(crate) async fn delete(&self, id: Uuid, recorder: ReplyRecorder<()>) -> Result<()> {
        let LiveConsumer { ledger, .. } = self.find(id)?;
        ledger.submit_recording(DeleteConsumer(id), recorder).await?;
        self.sessions.end(id);
        Ok(())
    }

    /// The events for a consumer that are stored now.
    pub(crate) async fn read(&self, id: Uuid, offset: ReadOffset, limit: usize) -> Result<EventPage> {
        self.context.reader.check_limit(limit)?;
        let (known, session) = self.touch_session(id)?;
        self.record(&known, SeenReason::Arrived).await?;
        let consumer = &known.entry.consumer;
        match consumer.distribution {
            Distribution::Broadcast => {
                self.context.reader.read_filtered(&consumer.topic, offset, limit, &session.filter).await
            }
            Distribution::Shared => {
                let peers = GroupPeers { consumers: self, ledger: &known.ledger, consumer };
                self.poll(&known, &session, limit, &peers)?.read(offset).await
            }
        }
    }

    /// The same, but waits for events until the timeout.
    pub(crate) async fn wait(
        &self,
        id: Uuid,
        offset: ReadOffset,
        limit: usize,
        timeout: Duration,
    ) -> Result<EventPage> {
        self.context.reader.check_timeout(timeout)?;
        self.context.reader.check_limit(limit)?;
        let (known, session) = self.touch_session(id)?;
        let waiting = session.wait(known.ledger.clock());
        self.record(&known, SeenReason::Arrived).await?;
        let page = tokio::select! {
            page = self.wait_in(&known, &session, offset, limit, timeout) => page?,
            error = self.keep_alive(&known, &session) => return Err(error),
        };
        self.record_waiting(&known).await?;
        drop(waiting);
        Ok(page)
    }

    async fn wait_in(
        &self,
        known: &LiveConsumer,
        session: &ConsumerSession,
        offset: ReadOffset,
        limit: usize,
        timeout: Duration,
    ) -> Result<EventPage> {
        let consumer = &known.entry.consumer;
        match consumer.distribution {
            Distribution::Broadcast => {
                self.context.reader.wait_filtered(&consumer.topic, offset, limit, &session.filter, timeout).await
            }
            Distribution::Shared => {
                let peers = GroupPeers { consumers: self, ledger: &known.ledger, consumer };
                self.poll(known, session, limit, &peers)?.wait(offset, timeout).await
            }
        }
    }

    /// A poll of a member of a shared group.
    fn poll<'a>(
        &'a self,
        known: &'a LiveConsumer,
        session: &'a ConsumerSession,
        limit: usize,
        peers: &'a GroupPeers<'a>,
    ) -> Result<SharedPoll<'a>> {
        let consumer = Arc::clone(&known.entry.consumer);
        let found = self.context.logs.find(&consumer.topic)?;
        let policy = match found.log {
            LogRef::Default => None,
            LogRef::Side(_) => self.context.logs.default_ledger().claims().policy(&consumer.consumer_group).cloned(),
        };
        Ok(SharedPoll {
            groups: self.groups,
            ledger: &known.ledger,
            topic: found.topic,
            consumer,
            filter: &session.filter,
            reader: &self.context.reader,
            defaults: self.terms,
            policy,
            peers,
            limit,
        })
    }

    /// A live consumer.
    fn find(&self, id: Uuid) -> Result<LiveConsumer> {
        let known = self.context.logs.ledgers().into_iter().find_map(|ledger| {
            let entry = ledger.consumers().consumer(id).cloned()?;
            Some(LiveConsumer { ledger, entry })
        });
        let is_live = |known: &LiveConsumer| self.sessions.is_live(&known.entry, known.ledger.now());
        known.filter(is_live).ok_or_else(|| Error::not_found("consumer"))
    }

    /// Restarts the session of a live consumer.
    fn touch_session(&self, id: Uuid) -> Result<(LiveConsumer, Arc<ConsumerSession>)> {
        let known = self.find(id)?;
        let now = known.ledger.now();
        let session = self.sessions.of(&known.entry.consumer, now)?;
        session.touch(now);
        Ok((known, session))
    }

    /// Records that a consumer was seen, if the last record is too old. If nothing can be written, reading continues and only
    /// this process knows the session.
    async fn record(&self, LiveConsumer { ledger, entry }: &LiveConsumer, presence: SeenReason) -> Result<()> {
        if !entry.is_due(ledger.now()) {
            return Ok(());
        }
        let id = entry.consumer.id;
        match ledger.submit(RecordSeen { id, presence }).await {
            Err(error) if error.kind() == Kind::NotFound => {
                self.sessions.end(id);
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Keeps a consumer alive while it waits; returns only when it is deleted.
    async fn keep_alive(&self, known: &LiveConsumer, session: &ConsumerSession) -> Error {
        let every = Duration::from_millis(known.entry.unrecorded_millis().unsigned_abs().max(1));
        loop {
            tokio::select! {
                () = tokio::time::sleep(every) => (),
                () = session.ended() => return Error::not_found("consumer"),
            }
            if let Err(error) = self.record_waiting(known).await {
                return error;
            }
        }
    }

    /// Records that a consumer was seen now, after waiting.
    async fn record_waiting(&self, LiveConsumer { ledger, entry }: &LiveConsumer) -> Result<()> {
        let entry = ledger.consumers().consumer(entry.consumer.id).cloned();
        let entry = entry.ok_or_else(|| Error::not_found("consumer"))?;
        self.record(&LiveConsumer { ledger: Arc::clone(ledger), entry }, SeenReason::Waited).await
    }

    /// A consumer as the API shows it, with the session that this process knows.
    fn view(&self, entry: &ConsumerRow, now: i64) -> Consumer {
        let seen_at = self.sessions.seen_at(entry, now);
        Consumer {
            last_seen_at: Timestamp::from_millis(seen_at),
            expires_at: Timestamp::from_millis(seen_at.saturating_add(entry.session_millis())),
            ..Consumer::clone(&entry.consumer)
        }
    }
}

/// Checks a consumer and compiles its filter; reports everything that is wrong with it.
fn check(consumer: &NewConsumer) -> Result<CompiledFilter> {
    let mut violations = Vec::new();
    violations.extend(groups::check_name(&consumer.consumer_group));
    for (pointer, patterns) in [("/types", &consumer.types), ("/subjectTypes", &consumer.subject_types)] {
        if patterns.len() > limits::CONSUMER_TYPES_MAX {
            violations.push(Violation::new(pointer, format!("may name at most {}", limits::CONSUMER_TYPES_MAX)));
        }
    }
    let seconds = limits::SESSION_SECONDS_MIN..=limits::SESSION_SECONDS_MAX;
    let bounds = seconds.start() * 1000..=seconds.end() * 1000;
    if consumer.session_timeout.as_ref().is_some_and(|session| !bounds.contains(&session.millis())) {
        let detail = format!("must be between {} and {} seconds", seconds.start(), seconds.end());
        violations.push(Violation::new("/sessionTimeout", detail));
    }
    match (consumer.distribution, consumer.max_in_flight) {
        (_, None) => (),
        (Some(Distribution::Shared), Some(count)) if (1..=limits::IN_FLIGHT_MAX).contains(&count) => (),
        (Some(Distribution::Shared), Some(_)) => {
            violations.push(Violation::new("/maxInFlight", format!("must be between 1 and {}", limits::IN_FLIGHT_MAX)));
        }
        _ => violations.push(Violation::new("/maxInFlight", "is for `shared` distribution only")),
    }
    let filter = filters::compile(&filter_of(&consumer.types, &consumer.subject_types, consumer.cel.as_ref()));
    if let Err(error) = &filter {
        violations.push(Violation::new("/CEL", error.detail()));
    }
    match filter {
        Ok(filter) if violations.is_empty() => Ok(filter),
        _ => {
            Err(Error::new(Kind::Validation, "The consumer breaks the rules; see `errors`.")
                .with_violations(violations))
        }
    }
}

fn filter_of(
    types: &[contract::IdPattern],
    subject_types: &[contract::IdPattern],
    cel: Option<&String>,
) -> EventFilter {
    let (types, subject_types) = (types.to_vec(), subject_types.to_vec());
    EventFilter { types, subject_types, cel: cel.cloned(), ..EventFilter::default() }
}

/// Why a consumer is recorded as seen.
#[derive(Clone, Copy)]
enum SeenReason {
    /// It polled: then it must not be past its deadline.
    Arrived,
    /// It was waiting all the time: then only its removal or deletion ends it.
    Waited,
}

struct CreateConsumer {
    id: Uuid,
    consumer: NewConsumer,
    default_session: i64,
}

impl CreateConsumer {
    fn at(&self, now: i64) -> Consumer {
        let NewConsumer { consumer_group, topic, types, subject_types, cel, .. } = self.consumer.clone();
        let requested = self.consumer.session_timeout.clone();
        let session_timeout = requested.unwrap_or_else(|| IsoDuration::seconds(self.default_session));
        Consumer {
            id: self.id,
            consumer_group,
            topic,
            types,
            subject_types,
            cel,
            distribution: self.consumer.distribution.unwrap_or_default(),
            max_in_flight: self.consumer.max_in_flight,
            created_at: Timestamp::from_millis(now),
            last_seen_at: Timestamp::from_millis(now),
            expires_at: Timestamp::from_millis(now.saturating_add(session_timeout.millis())),
            session_timeout,
        }
    }
}

impl Command for CreateConsumer {
    type Answer = Consumer;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Consumer> {
        if decision.registry().topic(&self.consumer.topic).is_none() {
            return Err(Error::invalid("/topic", "is not registered; register the topic first"));
        }
        groups::check_peers(&self.consumer, decision)?;
        let consumer = self.at(decision.now());
        if !decision.consumers().has_room_for_consumer(&consumer) {
            let expired = decision.consumers().overdue(EXPIRED_PER_ENTRY_MAX);
            if !expired.is_empty() {
                expiry::end_sessions(expired, decision)?;
            }
            // Removing expired consumers may not free enough bytes.
            if !decision.consumers().has_room_for_consumer(&consumer) {
                let detail = "The log holds its maximum of consumers, in number or in bytes of their definitions and of the \
                    filters of their groups; delete consumers or groups that are no longer used.";
                return Err(Error::new(Kind::Overloaded, detail).with_retry_after(30));
            }
        }
        decision.add_entry(Entry::ConsumerCreated { consumer: consumer.clone() })?;
        Ok(consumer)
    }

    fn bytes(&self) -> usize {
        let patterns = self.consumer.types.iter().chain(&self.consumer.subject_types);
        let cel = self.consumer.cel.as_ref().map_or(0, String::len);
        self.consumer.consumer_group.len() + cel + patterns.map(|pattern| pattern.as_str().len()).sum::<usize>()
    }
}

struct DeleteConsumer(Uuid);

impl Command for DeleteConsumer {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        let entry = decision.consumers().get(self.0)?;
        expiry::release_held(&entry.consumer, MemberDeparture::Deleted, decision)?;
        decision.add_entry(Entry::ConsumerDeleted { id: self.0 })?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        0
    }
}

struct RecordSeen {
    id: Uuid,
    presence: SeenReason,
}

impl Command for RecordSeen {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        let entry = match self.presence {
            SeenReason::Arrived => decision.consumers().live(self.id)?,
            SeenReason::Waited => decision.consumers().get(self.id)?,
        };
        // Several polls of one consumer may find it due at the same time; one entry is enough. It is not written to a full disk:
        // this process knows the session.
        if entry.is_due(decision.now()) && !decision.is_full() {
            decision.add_entry(Entry::ConsumerSeen { id: self.id })?;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        0
    }
}
