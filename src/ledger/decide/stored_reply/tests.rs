//! Stored replies: one append with the decision, one decision per key, and what a replayed command does.

use super::super::overlay::Overlay;
use super::*;
use crate::ledger::disk::table::DiskTables;
use crate::ledger::state::LedgerState;
use contract::{NewTopic, Offset, Timestamp, Topic, TopicId};

const DAY: i64 = 86_400_000;

fn topic() -> TopicId {
    "gts.hx.core.events.topic.v1~".parse().unwrap()
}

fn offset_committed() -> Entry {
    Entry::OffsetCommitted { group: "billing".to_owned(), topic: topic(), offset: Offset(1) }
}

/// Appends a fact, and returns 7 or is refused.
struct Write {
    refused: bool,
}

impl Command for Write {
    type Answer = u8;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<u8> {
        decision.add_entry(offset_committed())?;
        if self.refused { Err(Error::not_found("thing")) } else { Ok(7) }
    }

    fn bytes(&self) -> usize {
        0
    }
}

fn answer(status: u16) -> StoredReply {
    StoredReply { status, headers: Vec::new(), body: vec![ReplyPiece::Text("told".to_owned())] }
}

fn ticket(digest: u64) -> Arc<IdempotentRequest> {
    Arc::new(IdempotentRequest::new(1, digest, DAY))
}

fn keyed(digest: u64, refused: bool) -> IdempotentCommand<Write> {
    let recorder = ReplyRecorder::new(ticket(digest), |told: Result<&u8, &Error>| {
        Some(answer(told.map_or_else(|error| error.kind().status(), |_| 200)))
    });
    recorder.wrap(Write { refused }).ok().unwrap()
}

fn state() -> LedgerState {
    LedgerState::new(DiskTables::in_memory(|_| 0))
}

fn facts(overlay: &mut Overlay) -> Vec<Entry> {
    overlay.take_records().iter().map(|record| serde_json::from_slice(&record.body).unwrap()).collect()
}

#[test]
fn what_was_decided_and_its_answer_are_written_together() {
    let (state, mut overlay) = (state(), Overlay::default());
    let kept = keyed(5, false).decide(&mut Decision::new(&state, &mut overlay, 1)).unwrap();
    assert!(kept.is_kept && kept.answer.unwrap() == 7);
    let answered = Entry::AnswerKept { key: 1, digest: 5, answer: answer(200), kept_at: None };
    assert_eq!(facts(&mut overlay), [offset_committed(), answered]);
}

#[test]
fn a_refusal_leaves_its_answer_and_no_trace_of_what_it_tried() {
    let (state, mut overlay) = (state(), Overlay::default());
    let kept = keyed(5, true).decide(&mut Decision::new(&state, &mut overlay, 1)).unwrap();
    assert!(kept.is_kept && kept.answer.is_err());
    assert_eq!(facts(&mut overlay), [Entry::AnswerKept { key: 1, digest: 5, answer: answer(404), kept_at: None }]);
}

#[test]
fn an_answer_that_is_not_rendered_is_not_kept() {
    let (state, mut overlay) = (state(), Overlay::default());
    let recorder = ReplyRecorder::new(ticket(5), |_: Result<&u8, &Error>| None);
    let keyed = recorder.wrap(Write { refused: false }).ok().unwrap();
    assert!(!keyed.decide(&mut Decision::new(&state, &mut overlay, 1)).unwrap().is_kept);
    assert_eq!(facts(&mut overlay), [offset_committed()]);
    let passing = keep_through_nothing().wrap(Look).ok().unwrap();
    assert!(!passing.decide(&mut Decision::new(&state, &mut overlay, 1)).unwrap().is_kept);
    assert!(facts(&mut overlay).is_empty());
}

/// Returns that the caller has to read again.
struct Look;

impl Command for Look {
    type Answer = Option<u8>;

    fn decide(&self, _: &mut Decision<'_>) -> Result<Option<u8>> {
        Ok(None)
    }

    fn bytes(&self) -> usize {
        0
    }
}

fn keep_through_nothing() -> ReplyRecorder<Option<u8>> {
    let recorder = ReplyRecorder::new(ticket(5), |_: Result<&u8, &Error>| Some(answer(200)));
    recorder.map_answer(|answer: &Option<u8>| answer.map(Ok))
}

#[test]
fn a_key_counts_once_decided_not_once_undone_and_still_when_durable() {
    let (mut state, mut overlay) = (state(), Overlay::default());
    let mut decision = Decision::new(&state, &mut overlay, 1);
    let mark = decision.mark();
    keyed(5, false).decide(&mut decision).unwrap();
    let again = |decision: &mut Decision<'_>, digest| keyed(digest, false).decide(decision).err().map(|it| it.kind());
    assert_eq!(again(&mut decision, 5), Some(Kind::IdempotencyKeyInFlight));
    assert_eq!(again(&mut decision, 6), Some(Kind::IdempotencyKeyReuse));
    decision.undo(mark);
    assert_eq!(again(&mut decision, 6), None);
    for record in overlay.take_records() {
        state.apply(&record).unwrap();
        overlay.remove_durable(&record);
    }
    assert_eq!(overlay.tables.reply(1), None);
    let mut decision = Decision::new(&state, &mut overlay, 1);
    assert_eq!(again(&mut decision, 6), Some(Kind::IdempotencyKeyInFlight));
    assert_eq!(again(&mut decision, 5), Some(Kind::IdempotencyKeyReuse));
    // A day later the key has expired, and the row is that of the newer request.
    let mut decision = Decision::new(&state, &mut overlay, 1 + DAY);
    assert_eq!(again(&mut decision, 5), None);
    assert_eq!(again(&mut decision, 6), Some(Kind::IdempotencyKeyReuse));
}

#[test]
fn when_another_process_was_faster_its_answer_stands() {
    let (mut state, mut overlay) = (state(), Overlay::default());
    let (mine, mut theirs) = (keyed(5, false), Overlay::default());
    assert!(mine.decide(&mut Decision::new(&state, &mut overlay, 1)).is_ok());
    keyed(5, false).decide(&mut Decision::new(&state, &mut theirs, 1)).unwrap();
    // The append failed its compare: the other process's records are read, and the same command is decided on them.
    overlay.clear();
    theirs.take_records().iter().for_each(|record| state.apply(record).unwrap());
    let again = mine.decide(&mut Decision::new(&state, &mut overlay, 1));
    assert_eq!(again.err().map(|error| error.kind()), Some(Kind::IdempotencyKeyInFlight));
    assert!(facts(&mut overlay).is_empty());
}

#[test]
fn a_refusal_is_kept_only_while_what_it_rests_on_is_in_force() {
    let (mut state, mut overlay) = (state(), Overlay::default());
    let recorder = |version| RecordReply { ticket: ticket(5), answer: answer(422), rests_on: Some(version) };
    let topic = Topic { definition: NewTopic::new(topic()), created_at: Timestamp::from_millis(1) };
    let mut decision = Decision::new(&state, &mut overlay, 1);
    decision.add_entry(Entry::TopicRegistered { number: 1, topic }).unwrap();
    overlay.take_records().iter().for_each(|record| state.apply(record).unwrap());
    overlay.clear();
    recorder(Position::ZERO).decide(&mut Decision::new(&state, &mut overlay, 1)).unwrap();
    assert!(facts(&mut overlay).is_empty());
    recorder(Position(1)).decide(&mut Decision::new(&state, &mut overlay, 1)).unwrap();
    assert_eq!(facts(&mut overlay).len(), 1);
}
