//! Facts about tasks and jobs, folded.

use super::*;
use crate::ledger::facts::dispatch::DispatchFact;
use crate::ledger::facts::entry::Entry;
use crate::ledger::state::table::StateTable as _;
use contract::{DispatchMode, limits};
use log::RecordHeader;

fn say(rows: &mut DispatchRows, at: u64, what: DispatchFact) {
    let header = RecordHeader {
        position: Position(at),
        topic: log::TopicNumber(0),
        sequence: Sequence(at),
        time: 0,
        id: 0,
        facets: None,
    };
    DispatchFold::apply(rows, &Entry::Dispatch { what }, &header);
}

fn task() -> StoredTask {
    StoredTask {
        code: "t".to_owned(),
        target: "http://tasks/".to_owned(),
        payload: "{}".to_owned(),
        message_group: None,
        mode: DispatchMode::Immediate,
        pool: None,
        scheduled_for: None,
    }
}

/// The limit of open jobs holds after a restart too.
#[test]
fn open_jobs_are_counted_again_when_a_checkpoint_is_loaded() {
    let (mut rows, id) = (DispatchRows::default(), Uuid::from_u128(1));
    say(&mut rows, 1, DispatchFact::TaskCreated { id, task: Box::new(task()) });
    let job = JobKey { lane: TASKS, sequence: Sequence(1) };
    say(&mut rows, 2, DispatchFact::JobRetried { job, event: id, by: "ops".to_owned(), digest: None });
    let text = serde_json::to_string(&rows).unwrap();
    let again = DispatchRows::restore(serde_json::from_str(&text).unwrap());
    assert_eq!((rows.open_jobs(), again.open_jobs()), (1, 1));
}

/// The last finished tasks are kept. A finished task that was retried counts as open again.
#[test]
fn a_task_that_is_tried_again_is_not_forgotten_with_those_that_are_over() {
    let (mut rows, task) = (DispatchRows::default(), task());
    let job = |number| JobKey { lane: TASKS, sequence: Sequence(number) };
    let (all, by) = (limits::TASKS_KEPT as u64 + 2, || "ops".to_owned());
    for number in 1..=all {
        let id = Uuid::from_u128(number.into());
        say(&mut rows, number, DispatchFact::TaskCreated { id, task: Box::new(task.clone()) });
    }
    say(&mut rows, all + 1, DispatchFact::JobCancelled { job: job(1), by: by() });
    say(
        &mut rows,
        all + 2,
        DispatchFact::JobRetried { job: job(1), event: Uuid::from_u128(1), by: by(), digest: None },
    );
    for number in 2..=all {
        say(&mut rows, all + 1 + number, DispatchFact::JobCancelled { job: job(number), by: by() });
    }
    let left: Vec<_> = rows.tasks().map(|task| task.number.get()).take(2).collect();
    assert_eq!((left, rows.tasks().count()), (vec![1, 3], limits::TASKS_KEPT + 1));
    assert_eq!(rows.tasks_behind(Sequence(all - 1)).count(), 1);
}

/// Receivers often repeat the event: what they said stayed in every snapshot and checkpoint after the event was erased.
#[test]
fn what_receivers_said_of_an_event_goes_with_it() {
    let attempt = |number| contract::JobAttempt {
        number,
        at: contract::Timestamp::from_millis(0),
        duration_ms: 1,
        status: Some(500),
        error: None,
        response: Some("echo".to_owned()),
        token: contract::FencingToken::ZERO,
    };
    let mut lane = LaneProgress::behind(Sequence::ZERO);
    for sequence in 1..=4 {
        let mut row = lane::JobRow::new(Uuid::from_u128(sequence.into()), 0);
        row.tried(attempt(1), true);
        row.defer(0, 1, Some("echo"));
        row.standing = JobState::Dead { letter: None, expired: false };
        lane.put(Sequence(sequence), JobSlot::Open(row));
        if sequence % 2 == 0 {
            lane.put(Sequence(sequence), JobSlot::Ended(JobEnd::Completed));
        }
    }
    let echoes = |lane: &LaneProgress| serde_json::to_string(lane).unwrap().matches("echo").count();
    assert_eq!(echoes(&lane), 6);
    lane.trim(Sequence(2));
    assert_eq!(echoes(&lane), 3, "{}", serde_json::to_string(&lane).unwrap());
}

/// A hundred thousand tasks of 256 KiB would be 25 GB of memory.
#[test]
fn payloads_of_tasks_are_counted_and_finished_tasks_are_forgotten_when_they_are_too_large() {
    let mut rows = DispatchRows::default();
    let large = StoredTask { payload: "x".repeat(limits::TASKS_BYTES_MAX / 4), ..task() };
    for number in 1..=4 {
        let id = Uuid::from_u128(number.into());
        say(&mut rows, number, DispatchFact::TaskCreated { id, task: Box::new(large.clone()) });
    }
    assert_eq!(rows.task_bytes, 4 * large.bytes());
    for number in 1..=4 {
        let job = JobKey { lane: TASKS, sequence: Sequence(number) };
        say(&mut rows, 4 + number, DispatchFact::JobCancelled { job, by: "ops".to_owned() });
    }
    let left: Vec<_> = rows.tasks().map(|task| task.number.get()).collect();
    assert_eq!((left, rows.task_bytes), (vec![4], large.bytes()));
    let again = DispatchRows::restore(serde_json::from_str(&serde_json::to_string(&rows).unwrap()).unwrap());
    assert_eq!(again.task_bytes, rows.task_bytes);
}
