//! Random histories whose entries are reclaimed: whatever is left, a fold of it comes to the state of a fold of everything.
//! In memory, alone and shared; in files, which are erased and opened again in between; and on PostgreSQL.

mod facts;

use crate::clock::{Clock, LogClock, ManualClock, TrustedClock};
use crate::ledger::testing::{FoldedState, fold_on, fold_records, folded, follow_on, row_key, take_snapshot};
use crate::ledger::{
    CarriedKey, CarriedRows, Command, Decision, Entry, EventDraft, IdempotencyRow, IdempotentRequest, Ledger,
    ReplyPiece, StoredReply,
};
use crate::topics;
use contract::{Position, Result, Sequence};
use facts::{FactRandom, TOPICS, registered, topic_id};
use log::file::{FileLog, FileLogOptions};
use log::{IdempotencyMark, Log, LogError, MemoryLog, ReadLimit, ReadRange, Record, RecordQuery, TopicNumber};
use log_postgres::testing::TestServer;
use log_postgres::{PostgresLog, PostgresOptions};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// How long keys and kept answers live.
const WINDOW_MILLIS: i64 = 3_600_000;
const ALL: ReadLimit = ReadLimit { records: usize::MAX, bytes: usize::MAX };

/// So small that a history fills many.
const SEGMENT_BYTES: u64 = 4096;

/// A ledger, and everything that was ever in its log.
struct ReclaimFixture {
    log: Arc<dyn Log>,
    /// Where the log is, if it is in files.
    folder: Option<TempDir>,
    ledger: Ledger,
    clock: Arc<ManualClock>,
    archive: Vec<Record>,
    random: FactRandom,
    /// What the last snapshot stands for.
    reclaimable: Sequence,
}

impl ReclaimFixture {
    async fn new(seed: u64, log: MemoryLog) -> Self {
        Self::on(seed, Arc::new(log), None).await
    }

    async fn in_files(seed: u64) -> Self {
        let folder = TempDir::new().unwrap();
        let log = open_files(&folder);
        Self::on(seed, log, Some(folder)).await
    }

    async fn on_postgresql(seed: u64) -> Self {
        let url = TestServer::shared().create_database();
        Self::on(seed, Arc::new(PostgresLog::open(&url, PostgresOptions::default()).await.unwrap()), None).await
    }

    async fn on(seed: u64, log: Arc<dyn Log>, folder: Option<TempDir>) -> Self {
        let clock = Arc::new(ManualClock::at(1_764_763_200_000));
        let ledger = open(&log, &clock).await;
        let (archive, random, reclaimable) = (Vec::new(), FactRandom::new(seed), Sequence::ZERO);
        let mut world = Self { log, folder, ledger, clock, archive, random, reclaimable };
        world.say((1..=TOPICS).map(registered).collect()).await;
        world
    }

    /// Ends the ledger and opens it anew from the files, without a checkpoint.
    async fn reopen(&mut self) {
        let Some(folder) = &self.folder else { return };
        self.ledger.close().await;
        // Somebody else's, so that nobody has the folder.
        self.log = Arc::new(MemoryLog::new());
        self.ledger = open(&self.log, &self.clock).await;
        self.log = open_files(folder);
        self.ledger = open(&self.log, &self.clock).await;
    }

    /// Has these facts written, and notes what is new in the log.
    async fn say(&mut self, facts: Vec<Entry>) {
        self.ledger.submit(AppendEntries(facts)).await.unwrap();
        self.note().await;
    }

    async fn note(&mut self) {
        let after = self.archive.last().map(|record| record.header.position).unwrap_or_default();
        self.archive.extend(self.log.read(ReadRange::All(after), ALL).await.unwrap());
    }

    async fn step(&mut self) {
        self.clock.advance(i64::try_from(self.random.through(20_000)).unwrap());
        match self.random.through(19) {
            0 => self.clock.advance(WINDOW_MILLIS / 4),
            1..=5 => self.publish().await,
            6 | 7 => self.keep_answer().await,
            8 => self.trim().await,
            9 => self.reclaim().await,
            10 => self.delete_topic().await,
            11 => self.carry_state().await,
            _ => {
                let count = self.random.through(4);
                let facts = (0..=count).map(|_| facts::any(&mut self.random)).collect();
                self.say(facts).await;
            }
        }
        self.note().await;
    }

    async fn publish(&mut self) {
        let random = &mut self.random;
        let draft = EventDraft {
            topic: TopicNumber(random.topic()),
            id: random.wide(),
            type_tag: 1,
            subject_type_tag: 2,
            tenant: 0,
            aggregate: random.once_in(2).then(|| u128::from(random.through(5))),
            idempotency: random
                .once_in(2)
                .then(|| IdempotencyMark { key: u128::from(100 + random.through(9)), digest: random.number() }),
            text: "{}".into(),
            splice: 1,
        };
        // Aggregates and keys belong to one topic.
        let of_topic = |key: u128| row_key(key, draft.topic.0);
        let aggregate = draft.aggregate.map(of_topic);
        let idempotency = draft.idempotency.map(|mark| IdempotencyMark { key: of_topic(mark.key), ..mark });
        self.ledger.submit(AppendEvent(EventDraft { aggregate, idempotency, ..draft })).await.unwrap();
    }

    async fn keep_answer(&mut self) {
        let (key, digest) = (row_key(u128::from(self.random.through(9)), 0), self.random.through(1));
        let body = vec![ReplyPiece::Text("told".to_owned())];
        let answer = StoredReply { status: 200, headers: Vec::new(), body };
        // Refused where the key has its answer already.
        let _ =
            self.ledger.record_reply(Arc::new(IdempotentRequest::new(key, digest, WINDOW_MILLIS)), answer, None).await;
    }

    async fn trim(&mut self) {
        let number = self.random.topic();
        let Some(topic) = self.ledger.registry().topic_numbered(TopicNumber(number)).cloned() else { return };
        let through = Sequence(self.random.through(topic.tail().get()));
        if self.random.once_in(2) {
            topics::trim(&self.ledger, &topic, through).await.unwrap();
        } else {
            // Refused where the topic is not one that is compacted.
            let _ = topics::compact_now(&self.ledger, &topic, None, &topics::tombstones(&self.ledger.registry())).await;
        }
    }

    /// Deletes a topic and registers another in its place; the events are removed now or later.
    async fn delete_topic(&mut self) {
        let slot = self.random.slot();
        let (number, next) = (self.random.topics[slot], self.ledger.registry().next_topic_number());
        let through = self.ledger.registry().topic_numbered(TopicNumber(number)).unwrap().tail();
        let deleted = Entry::TopicDeleted { topic: topic_id(number), number, through };
        self.say(vec![deleted, registered(next)]).await;
        self.random.topics[slot] = next;
        if self.random.once_in(2) {
            topics::remove_deleted(&self.ledger).await.unwrap();
        }
    }

    /// Writes all tables again, as a repair does.
    async fn carry_state(&mut self) {
        if self.random.once_in(3) {
            self.ledger.submit(CarryState).await.unwrap();
        }
    }

    /// Takes a snapshot, or removes what the last one stands for, or some of it.
    async fn reclaim(&mut self) {
        if self.random.once_in(2) {
            let part_bytes = usize::try_from(self.random.through(2000)).unwrap();
            self.reclaimable = take_snapshot(&self.ledger, part_bytes).await.unwrap();
            self.note().await;
        }
        if self.random.once_in(2) {
            let through = Sequence(self.random.through(self.reclaimable.get()));
            let through = if self.random.once_in(2) { self.reclaimable } else { through };
            self.log.remove(TopicNumber::LEDGER, through).await.unwrap();
        }
        if self.folder.is_some() && self.random.once_in(3) {
            self.log.erase().await.unwrap();
        }
    }

    /// Every fold there is.
    async fn compare(&mut self, at: &str) {
        let everything = fold_records(&self.archive, WINDOW_MILLIS);
        assert_same(&folded(&self.ledger).await, &everything, &format!("{at}: the running ledger"));
        let left = fold_on(&[], self.log.as_ref(), WINDOW_MILLIS).await.unwrap();
        assert_same(&left, &everything, &format!("{at}: what is left"));
        let through = usize::try_from(self.random.through(self.archive.len() as u64)).unwrap();
        let before = &self.archive[..through];
        let on = fold_on(before, self.log.as_ref(), WINDOW_MILLIS).await.unwrap();
        assert_same(&on, &everything, &format!("{at}: a checkpoint of {through} of {} records", self.archive.len()));
        match follow_on(before, self.log.as_ref(), WINDOW_MILLIS).await {
            Ok(followed) if self.log.is_shared() => {
                assert_same(&followed, &everything, &format!("{at}: a broker that was behind"));
            }
            Err(LogError::Reclaimed(_)) if self.log.is_shared() => (),
            outcome => assert!(!self.log.is_shared(), "{outcome:?}"),
        }
    }
}

fn open_files(folder: &TempDir) -> Arc<dyn Log> {
    let options = FileLogOptions { segment_bytes: SEGMENT_BYTES, ..FileLogOptions::default() };
    Arc::new(FileLog::open_folder(folder.path(), options).unwrap())
}

async fn open(log: &Arc<dyn Log>, clock: &Arc<ManualClock>) -> Ledger {
    let believed = TrustedClock::new(Arc::clone(clock) as Arc<dyn Clock>, Duration::from_secs(31_536_000));
    let clock = LogClock::new(Arc::new(believed));
    Ledger::open(Arc::clone(log), clock, None, usize::MAX, WINDOW_MILLIS, Arc::default()).await.unwrap()
}

fn assert_same(one: &FoldedState, other: &FoldedState, what: &str) {
    assert_eq!(one.checkpoint, other.checkpoint, "{what}");
    assert_eq!(one, other, "{what}");
}

struct AppendEntries(Vec<Entry>);

impl Command for AppendEntries {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        self.0.iter().try_for_each(|fact| decision.add_entry(fact.clone()).map(drop))
    }

    fn bytes(&self) -> usize {
        0
    }
}

struct CarryState;

impl Command for CarryState {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        decision.carry_state()
    }

    fn bytes(&self) -> usize {
        0
    }
}

struct AppendEvent(EventDraft);

impl Command for AppendEvent {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        decision.add_event(&self.0).map(drop)
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// How many histories: `EVENT_BROKER_HISTORIES=1000` for the long test.
fn histories() -> u64 {
    std::env::var("EVENT_BROKER_HISTORIES").map_or(24, |text| text.parse().unwrap())
}

/// A history of so many steps; whether entries were removed in it. Adds the kinds of its facts.
async fn live(mut world: ReclaimFixture, steps: u64, name: &str, kinds: &mut BTreeSet<String>) -> bool {
    for step in 0..steps {
        world.step().await;
        if world.folder.is_some() && world.random.once_in(20) {
            world.reopen().await;
        }
        if step % 10 == 9 {
            world.compare(&format!("{name} step {step}")).await;
        }
    }
    let entries = world.archive.iter().filter(|record| record.header.topic == TopicNumber::LEDGER);
    kinds.extend(entries.flat_map(|record| facts::kinds_of(&record.body)));
    let first = world.log.find(RecordQuery::Time(Some(TopicNumber::LEDGER), 0)).await.unwrap();
    world.ledger.close().await;
    first.is_some_and(|first| first.sequence > Sequence(1))
}

#[tokio::test]
async fn a_fold_of_what_is_left_comes_to_the_state_of_a_fold_of_everything() {
    let (mut reclaimed, mut kinds) = (0, BTreeSet::new());
    for seed in 0..histories() {
        let log = if seed % 2 == 0 { MemoryLog::new() } else { MemoryLog::shared() };
        let world = ReclaimFixture::new(seed, log).await;
        reclaimed += u64::from(live(world, 120, &format!("seed {seed}"), &mut kinds).await);
    }
    assert!(reclaimed * 2 > histories(), "only {reclaimed} histories lost entries");
    // A kind of fact that no history contains is not tested: add it to `facts`.
    assert_eq!(facts::all_kinds().difference(&kinds).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[tokio::test]
async fn a_fold_of_what_is_left_in_files_comes_to_the_state_of_a_fold_of_everything() {
    let (histories, mut reclaimed) = (histories() / 4, 0);
    for seed in 0..histories {
        let world = ReclaimFixture::in_files(seed).await;
        reclaimed += u64::from(live(world, 120, &format!("files, seed {seed}"), &mut BTreeSet::new()).await);
    }
    assert!(reclaimed * 2 > histories, "only {reclaimed} histories lost entries");
}

#[tokio::test]
async fn a_fold_of_what_is_left_on_postgresql_comes_to_the_state_of_a_fold_of_everything() {
    let (histories, mut reclaimed) = (histories().div_ceil(4), 0);
    for seed in 0..histories {
        let world = ReclaimFixture::on_postgresql(seed).await;
        reclaimed += u64::from(live(world, 120, &format!("PostgreSQL, seed {seed}"), &mut BTreeSet::new()).await);
    }
    assert!(reclaimed > 0, "no history lost entries");
}

#[tokio::test]
async fn an_answer_that_is_written_again_lives_no_longer_for_that_and_then_goes() {
    let mut world = ReclaimFixture::new(1, MemoryLog::new()).await;
    let answer = StoredReply { status: 200, headers: Vec::new(), body: vec![ReplyPiece::Text("secret".to_owned())] };
    let recorder = async |world: &ReclaimFixture, digest| {
        let ticket = Arc::new(IdempotentRequest::new(1, digest, WINDOW_MILLIS));
        world.ledger.record_reply(ticket, StoredReply { body: Vec::new(), ..answer.clone() }, None).await.is_ok()
    };
    let ticket = Arc::new(IdempotentRequest::new(1, 5, WINDOW_MILLIS));
    world.ledger.record_reply(ticket, answer.clone(), None).await.unwrap();
    let holds_secret = async |world: &ReclaimFixture| {
        let left = world.log.read(ReadRange::All(Position::ZERO), ALL).await.unwrap();
        left.iter().any(|record| String::from_utf8_lossy(&record.body).contains("secret"))
    };
    for (passed, lives) in [(WINDOW_MILLIS / 2, true), (WINDOW_MILLIS / 2 - 1, true), (1, false)] {
        world.clock.advance(passed);
        world.reclaimable = take_snapshot(&world.ledger, 1000).await.unwrap();
        world.log.remove(TopicNumber::LEDGER, world.reclaimable).await.unwrap();
        assert_eq!(holds_secret(&world).await, lives, "{passed}");
        // Another request under the key is refused while the answer lives.
        assert_eq!(recorder(&world, 6).await, !lives, "{passed}");
    }
}

/// The topics of the keys that are carried in a log, `None` for a key of an older version.
async fn carried_topics(log: &dyn Log) -> BTreeSet<Option<u32>> {
    let left = log.read(ReadRange::All(Position::ZERO), ALL).await.unwrap();
    let entries = left.iter().filter(|record| record.header.topic == TopicNumber::LEDGER);
    let carried = entries.filter_map(|record| match serde_json::from_slice(&record.body).unwrap() {
        Entry::HistoryCarried { carried } => Some(carried.keys),
        _ => None,
    });
    carried.flatten().map(|carried| carried.topic.map(|topic| topic.0)).collect()
}

/// Every run wrote the keys of removed events again for the longest window of any topic, a day, whatever their own
/// topic said.
#[tokio::test]
async fn a_key_of_a_removed_event_is_carried_for_the_window_of_its_own_topic() {
    // Topic 1 has a window of an hour, topic 2 one of ten minutes, topic 3 the default of a day.
    let mut world = ReclaimFixture::new(1, MemoryLog::new()).await;
    for number in 1..=TOPICS {
        let idempotency = Some(IdempotencyMark { key: row_key(7, number), digest: 1 });
        let topic = TopicNumber(number);
        let (text, id) = ("{}".into(), u128::from(number));
        let (type_tag, subject_type_tag, tenant, aggregate, splice) = (1, 2, 0, None, 1);
        let draft = EventDraft { topic, id, type_tag, subject_type_tag, tenant, aggregate, idempotency, text, splice };
        world.ledger.submit(AppendEvent(draft)).await.unwrap();
        let topic = world.ledger.registry().topic_numbered(topic).cloned().unwrap();
        topics::trim(&world.ledger, &topic, Sequence(1)).await.unwrap();
    }
    // An older version did not write the topic of a key.
    let row = IdempotencyRow { position: Position(1), time: world.ledger.now(), digest: 1 };
    let keys = vec![CarriedKey { key: row_key(8, 2), row, topic: None }];
    world.say(vec![Entry::HistoryCarried { carried: CarriedRows { heads: Vec::new(), keys } }]).await;
    assert_eq!(carried_topics(world.log.as_ref()).await, [None, Some(1), Some(2), Some(3)].into());
    for (passed, carried) in [
        (WINDOW_MILLIS / 6, BTreeSet::from([None, Some(1), Some(3)])),
        (WINDOW_MILLIS, [None, Some(3)].into()),
        (24 * WINDOW_MILLIS, BTreeSet::new()),
    ] {
        world.clock.advance(passed);
        let through = take_snapshot(&world.ledger, 1000).await.unwrap();
        world.log.remove(TopicNumber::LEDGER, through).await.unwrap();
        assert_eq!(carried_topics(world.log.as_ref()).await, carried, "{passed}");
    }
}
