//! The data dictionary of dispatch: every fact about subscriptions, jobs, tasks, replays and pools, one doc comment each.
//!
//! A job that was delivered at its first try has no fact of its own: it is one of many in [`DispatchFact::JobsEnded`].

use crate::ledger::state::dispatch::{JobKey, StoredTask};
use contract::{JobAttempt, NewSubscription, Pool, Sequence};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// One fact about dispatch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "did", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum DispatchFact {
    /// A subscription is defined so from here on. One that is new begins behind `start`.
    SubscriptionPut {
        /// Which one.
        id: Uuid,
        /// The topic's number in its log.
        number: u32,
        /// What it is, without secrets.
        definition: Box<NewSubscription>,
        /// Its secrets, sealed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sealed: Option<String>,
        /// How it is authorised, in one word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        auth_type: Option<String>,
        /// Where a new one begins; of one that is changed, the topic's last sequence (0 in facts of older versions).
        start: Sequence,
    },
    /// A subscription's jobs wait from here on.
    SubscriptionPaused {
        /// Which one.
        id: Uuid,
        /// Who says so.
        by: String,
        /// Why.
        reason: Option<String>,
    },
    /// A subscription's jobs go on.
    SubscriptionResumed {
        /// Which one.
        id: Uuid,
    },
    /// A subscription is gone, with its jobs and replays.
    SubscriptionDeleted {
        /// Which one.
        id: Uuid,
        /// Its code: the open dead letters of that name are closed. Absent in facts of versions that left them open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        /// Who deleted it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// A pool is so from here on.
    PoolPut {
        /// The pool.
        pool: Pool,
    },
    /// A pool is gone.
    PoolDeleted {
        /// Which one.
        code: String,
    },
    /// A task is to be delivered. Its number is the next of its lane.
    TaskCreated {
        /// Its id.
        id: Uuid,
        /// What it is.
        task: Box<StoredTask>,
    },
    /// A part of the topic is to be delivered once more.
    ReplayOrdered {
        /// The replay.
        id: Uuid,
        /// Whose.
        subscription: Uuid,
        /// The first sequence.
        from: Sequence,
        /// The last one.
        to: Sequence,
    },
    /// Jobs are over, and a lane is settled up to a sequence, but for open jobs.
    JobsEnded {
        /// Whose.
        lane: Uuid,
        /// Settled up to here.
        through: Sequence,
        /// Delivered.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        done: Vec<DeliveredJob>,
        /// Not delivered, because their events are gone. Older logs: because they reached their maximum age.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        expired: Vec<Sequence>,
    },
    /// An attempt failed.
    JobAttempted {
        /// Which job.
        job: JobKey,
        /// The event.
        event: Uuid,
        /// What came of it.
        attempt: JobAttempt,
        /// When the next one is due, in milliseconds; none: it is given up, and a dead letter may follow.
        retry_at: Option<i64>,
        /// Whether it counts against the job's attempts.
        counts: bool,
    },
    /// A job reached its maximum age before it was delivered: it is given up, and a dead letter may follow.
    JobExpired {
        /// Which job.
        job: JobKey,
        /// The event.
        event: Uuid,
    },
    /// The receiver wants it later.
    JobDeferred {
        /// Which job.
        job: JobKey,
        /// The event.
        event: Uuid,
        /// When it is due, in milliseconds.
        until: i64,
        /// What the receiver said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A person closed the breaker of a subscription's target: it is called again at once.
    BreakerClosed {
        /// Which subscription.
        id: Uuid,
        /// Who.
        by: String,
    },
    /// A person called a job off.
    JobCancelled {
        /// Which job.
        job: JobKey,
        /// Who.
        by: String,
    },
    /// A person wants a job tried again, with all its attempts before it and a new age.
    JobRetried {
        /// Which job.
        job: JobKey,
        /// The event.
        event: Uuid,
        /// Who.
        by: String,
    },
    /// A person says that a job need not be delivered any more.
    JobCompleted {
        /// Which job.
        job: JobKey,
        /// Who.
        by: String,
    },
    /// Nothing of this log is delivered from here on. In a log that was restored from a backup: what the backup holds as
    /// pending may have been delivered since.
    DispatchPaused {
        /// Who says so.
        by: String,
        /// Why.
        reason: Option<String>,
    },
    /// Deliveries go on.
    DispatchResumed {
        /// Who says so.
        by: String,
    },
    /// This process dispatches the log's jobs until then. The position of this entry fences its attempts.
    DispatchTaken {
        /// Which process.
        owner: Uuid,
        /// In milliseconds.
        until: i64,
    },
}

/// A job that was delivered: sequence, number of the attempt, when it began, how long it took, the status. A list, for
/// there are many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveredJob(pub Sequence, pub u32, pub i64, pub u32, pub u16);
