//! Sending: one job becomes one delivery, with everything it needs, on a task of its own.

use super::Context;
use super::lane::{Job, LaneKey, Stored};
use crate::delivery::{Attempt, Delivery, ErrorClass, Outcome, Payload};
use crate::events::stored_at;
use crate::ledger::{JobSlot, Ledger, TASKS, TaskRow};
use crate::subscriptions::{Peek, Terms, Way};
use contract::Timestamp;
use futures_util::FutureExt;
use log::TopicNumber;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// What a lane delivers.
#[derive(Clone)]
pub(crate) enum Errand {
    Events {
        terms: Arc<Terms>,
        topic: TopicNumber,
        /// The replay it is, if it is one.
        replay: Option<Uuid>,
    },
    Tasks,
}

impl Errand {
    /// The subscription's code; tasks have none.
    pub(super) fn code(&self) -> Option<&str> {
        match self {
            Self::Events { terms, .. } => Some(&terms.code),
            Self::Tasks => None,
        }
    }
}

/// A delivery that came to something.
pub(crate) struct Landed {
    pub(super) key: LaneKey,
    pub(super) job: Job,
    pub(super) event: Uuid,
    pub(super) began_at: i64,
    pub(super) token: u64,
    pub(super) errand: Errand,
    pub(super) target: Arc<str>,
    pub(super) came: Came,
}

/// What a job that was sent, or expired, came to.
pub(super) enum Came {
    Attempted(Attempt),
    /// Its event is gone.
    Gone,
    /// It reached its maximum age, and was not sent.
    Expired,
}

/// How a job lands whose task panics. The panic would come again with the next try, so the job is given up, as one whose
/// delivery panics is, and a person hears of it.
pub(super) struct Broken(Landed);

impl Broken {
    pub(super) fn of(key: LaneKey, job: &Job, errand: &Errand, now: i64, token: u64) -> Self {
        let target: Arc<str> = match errand {
            Errand::Events { terms, .. } => terms.way.target.as_str().into(),
            Errand::Tasks => "".into(),
        };
        let event = job.stored.as_ref().map_or(Uuid::nil(), |stored| stored.id);
        // The event is not held twice while it is sent.
        let job = Job { stored: None, target: job.target.clone(), ..*job };
        let came = Came::Attempted(broken());
        Self(Landed { key, job, event, began_at: now, token, errand: errand.clone(), target, came })
    }

    /// What `flight` comes to, unless it panics.
    pub(super) async fn unless(self, flight: impl Future<Output = Landed>) -> Landed {
        AssertUnwindSafe(flight).catch_unwind().await.unwrap_or(self.0)
    }
}

pub(super) async fn send_event(
    ledger: Arc<Ledger>,
    context: Arc<Context>,
    key: LaneKey,
    mut job: Job,
    (terms, topic, replay): (Arc<Terms>, TopicNumber, Option<Uuid>),
    now: i64,
    token: u64,
) -> Landed {
    let target: Arc<str> = terms.way.target.as_str().into();
    let stored = match job.stored.take() {
        Some(stored) => Ok(Some(stored)),
        None => {
            let found = stored_at(&ledger, topic, job.sequence).await;
            found.map(|it| it.filter(|it| it.sequence == job.sequence).map(|it| Stored { id: it.id, text: it.text }))
        }
    };
    drop(ledger);
    let errand = Errand::Events { terms: Arc::clone(&terms), topic, replay };
    let landed = |event, came| Landed { key, job: job.clone(), event, began_at: now, token, errand, target, came };
    let stored = match stored {
        Ok(Some(stored)) => stored,
        Ok(None) => return landed(Uuid::nil(), Came::Gone),
        Err(_) => return landed(Uuid::nil(), Came::Attempted(unread())),
    };
    let peek = Peek::at(&stored.text);
    let (id, signing) = (stored.id.to_string(), terms.signing(now));
    let payload = Payload::Event { text: stored.text.clone(), shape: terms.way.shape };
    let delivery = Delivery {
        signing: &signing,
        attempt: job.tried.saturating_add(1),
        subscription: Some(&terms.code),
        topic: Some(&terms.topic),
        sequence: Some(job.sequence),
        replay,
        token: Some(token),
        trace_parent: peek.as_ref().and_then(|peek| peek.trace_parent.as_deref()),
        ..delivery_by(&terms.way, payload, &id, context.clock.now())
    };
    let attempt = attempt(&context, delivery).await;
    landed(stored.id, Came::Attempted(attempt))
}

pub(super) async fn send_task(
    ledger: Arc<Ledger>,
    context: Arc<Context>,
    key: LaneKey,
    job: Job,
    now: i64,
    token: u64,
) -> Landed {
    let row: Option<TaskRow> = ledger.dispatch().task_numbered(job.sequence).cloned();
    drop(ledger);
    let target: Arc<str> = row.as_ref().map_or("", |row| row.task.target.as_str()).into();
    let way = row.as_ref().and_then(|row| Way::to(&row.task.target).ok());
    let came = match (&row, way) {
        (Some(row), Some(way)) => {
            let id = row.id.to_string();
            let payload = Payload::Task(row.task.payload.clone().into_bytes().into());
            let delivery = Delivery {
                attempt: job.tried.saturating_add(1),
                token: Some(token),
                ..delivery_by(&way, payload, &id, context.clock.now())
            };
            Came::Attempted(attempt(&context, delivery).await)
        }
        _ => Came::Gone,
    };
    let event = row.map_or(Uuid::nil(), |row| row.id);
    Landed { key, job, event, began_at: now, token, errand: Errand::Tasks, target, came }
}

/// A job that reached its maximum age: nothing is sent, but which event it is about must be known.
pub(super) async fn expire(
    ledger: Arc<Ledger>,
    key: LaneKey,
    job: Job,
    errand: Errand,
    now: i64,
    token: u64,
) -> Landed {
    let known = known_event(&ledger, key, &job);
    let found = match (&errand, known) {
        (_, Some(event)) => Ok(Some(event)),
        (Errand::Tasks, None) => Ok(None),
        (Errand::Events { topic, .. }, None) => {
            let stored = stored_at(&ledger, *topic, job.sequence).await;
            stored.map(|it| it.filter(|it| it.sequence == job.sequence).map(|it| it.id))
        }
    };
    let (event, came) = match found {
        Ok(Some(event)) => (event, Came::Expired),
        Ok(None) => (Uuid::nil(), Came::Gone),
        Err(_) => (Uuid::nil(), Came::Attempted(unread())),
    };
    Landed { key, job, event, began_at: now, token, errand, target: "".into(), came }
}

/// The event, or the task, of a job, where that is known without reading the log.
fn known_event(ledger: &Ledger, key: LaneKey, job: &Job) -> Option<Uuid> {
    if let Some(stored) = &job.stored {
        return Some(stored.id);
    }
    let rows = ledger.dispatch();
    if key.lane == TASKS {
        return rows.task_numbered(job.sequence).map(|row| row.id);
    }
    match rows.lane(key.lane)?.slot(job.sequence)? {
        JobSlot::Open(row) => Some(row.event).filter(|event| !event.is_nil()),
        JobSlot::Ended(_) => None,
    }
}

/// A first attempt by this way, of nobody's order; not signed. Receivers compare its time with their own clocks, so it is
/// the wall clock's.
pub(super) fn delivery_by<'a>(way: &'a Way, payload: Payload, id: &'a str, wall: i64) -> Delivery<'a> {
    Delivery {
        target: &way.target,
        payload,
        signing: &[],
        auth: &way.auth,
        identity: way.identity.as_ref(),
        headers: &way.headers,
        timeout: way.timeout,
        id,
        at: Timestamp::from_millis(wall),
        attempt: 1,
        subscription: None,
        topic: None,
        sequence: None,
        replay: None,
        token: None,
        trace_parent: None,
    }
}

/// Makes the attempt. What panics would panic again: the job is given up, and a person hears of it.
async fn attempt(context: &Context, delivery: Delivery<'_>) -> Attempt {
    let made = AssertUnwindSafe(context.deliver.deliver(delivery)).catch_unwind().await;
    made.unwrap_or_else(|_| broken())
}

/// The broker failed, not the receiver.
fn broken() -> Attempt {
    let detail = "The broker failed over this delivery; see its log.";
    not_made(Outcome::Failed { retryable: false }, ErrorClass::Payload, detail)
}

/// The event could not be read: a failure of ours, which costs the job nothing.
fn unread() -> Attempt {
    let later = Outcome::Deferred { after: Duration::from_secs(5) };
    not_made(later, ErrorClass::Connect, "The event could not be read from the log.")
}

/// An attempt that came to nothing for a reason of our own.
fn not_made(outcome: Outcome, class: ErrorClass, detail: &str) -> Attempt {
    let error = Some((class, detail.to_owned()));
    Attempt { outcome, status: None, duration: Duration::ZERO, error, response: String::new() }
}
