//! Random histories whose entries are reclaimed: whatever is left, a fold of it comes to the state of a fold of everything.
//! In memory, alone and shared, and in files, which are erased and opened again in between.

mod facts;

use crate::clock::{Clock, LogClock, ManualClock, TrustedClock};
use crate::ledger::testing::{FoldedState, fold_on, fold_records, folded, follow_on, take_snapshot};
use crate::ledger::{Command, Decision, Entry, EventDraft, IdempotentRequest, Ledger, ReplyPiece, StoredReply};
use crate::topics;
use contract::{Position, Result, Sequence};
use facts::{TOPICS, registered};
use log::file::{FileLog, FileLogOptions};
use log::testing::SeededRandom;
use log::{IdempotencyMark, Log, LogError, MemoryLog, ReadLimit, ReadRange, Record, RecordQuery, TopicNumber};
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
    random: SeededRandom,
    letter_count: u64,
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

    async fn on(seed: u64, log: Arc<dyn Log>, folder: Option<TempDir>) -> Self {
        let clock = Arc::new(ManualClock::at(1_764_763_200_000));
        let ledger = open(&log, &clock).await;
        let (archive, random, letter_count, reclaimable) = (Vec::new(), SeededRandom::new(seed), 0, Sequence::ZERO);
        let mut world = Self { log, folder, ledger, clock, archive, random, letter_count, reclaimable };
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
            _ => {
                let count = self.random.through(4);
                let facts = (0..=count).map(|_| facts::any(&mut self.random, &mut self.letter_count)).collect();
                self.say(facts).await;
            }
        }
        self.note().await;
    }

    async fn publish(&mut self) {
        let random = &mut self.random;
        let draft = EventDraft {
            topic: TopicNumber(u32::try_from(random.through(u64::from(TOPICS) - 1)).unwrap() + 1),
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
        // An aggregate lies in one topic.
        let aggregate = draft.aggregate.map(|key| key * 10 + u128::from(draft.topic.0));
        self.ledger.submit(AppendEvent(EventDraft { aggregate, ..draft })).await.unwrap();
    }

    async fn keep_answer(&mut self) {
        let (key, digest) = (u128::from(1000 + self.random.through(9)), self.random.through(1));
        let body = vec![ReplyPiece::Text("told".to_owned())];
        let answer = StoredReply { status: 200, headers: Vec::new(), body };
        // Refused where the key has its answer already.
        let _ =
            self.ledger.record_reply(Arc::new(IdempotentRequest::new(key, digest, WINDOW_MILLIS)), answer, None).await;
    }

    async fn trim(&mut self) {
        let number = u32::try_from(self.random.through(u64::from(TOPICS) - 1)).unwrap() + 1;
        let Some(topic) = self.ledger.registry().topic_numbered(TopicNumber(number)).cloned() else { return };
        let through = Sequence(self.random.through(topic.tail().get()));
        if self.random.once_in(2) {
            topics::trim(&self.ledger, &topic, through).await.unwrap();
        } else {
            // Refused where the topic is not one that is compacted.
            let _ = topics::compact_now(&self.ledger, &topic, None, &topics::tombstones(&self.ledger.registry())).await;
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

/// A history of so many steps; whether entries were removed in it.
async fn live(mut world: ReclaimFixture, steps: u64, name: &str) -> bool {
    for step in 0..steps {
        world.step().await;
        if world.folder.is_some() && world.random.once_in(20) {
            world.reopen().await;
        }
        if step % 10 == 9 {
            world.compare(&format!("{name} step {step}")).await;
        }
    }
    let first = world.log.find(RecordQuery::Time(Some(TopicNumber::LEDGER), 0)).await.unwrap();
    world.ledger.close().await;
    first.is_some_and(|first| first.sequence > Sequence(1))
}

#[tokio::test]
async fn a_fold_of_what_is_left_comes_to_the_state_of_a_fold_of_everything() {
    let mut reclaimed = 0;
    for seed in 0..histories() {
        let log = if seed % 2 == 0 { MemoryLog::new() } else { MemoryLog::shared() };
        reclaimed += u64::from(live(ReclaimFixture::new(seed, log).await, 120, &format!("seed {seed}")).await);
    }
    assert!(reclaimed * 2 > histories(), "only {reclaimed} histories lost entries");
}

#[tokio::test]
async fn a_fold_of_what_is_left_in_files_comes_to_the_state_of_a_fold_of_everything() {
    let (histories, mut reclaimed) = (histories() / 4, 0);
    for seed in 0..histories {
        reclaimed += u64::from(live(ReclaimFixture::in_files(seed).await, 120, &format!("files, seed {seed}")).await);
    }
    assert!(reclaimed * 2 > histories, "only {reclaimed} histories lost entries");
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
