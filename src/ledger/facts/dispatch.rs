//! The data dictionary of dispatch: every fact about subscriptions, jobs, tasks, replays and pools.
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
    /// A subscription was created or changed. A new one begins after `start`.
    SubscriptionPut {
        /// The subscription.
        id: Uuid,
        /// The topic's number in its log.
        number: u32,
        /// Its definition without secrets.
        definition: Box<NewSubscription>,
        /// Its secrets, sealed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sealed: Option<String>,
        /// The kind of credentials that it sends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        auth_type: Option<String>,
        /// The offset that a new one begins after; for a change, the topic's tail (0 in facts of older versions).
        start: Sequence,
    },
    /// A subscription was paused: its jobs wait.
    SubscriptionPaused {
        /// The subscription.
        id: Uuid,
        /// Who paused it.
        by: String,
        /// The reason that was given.
        reason: Option<String>,
    },
    /// A subscription was resumed.
    SubscriptionResumed {
        /// The subscription.
        id: Uuid,
    },
    /// A subscription was deleted, with its jobs and replays.
    SubscriptionDeleted {
        /// The subscription.
        id: Uuid,
        /// Its code: the open dead letters of that name are closed. Absent in facts of versions that left them open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        /// Who deleted it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// A pool was created or changed.
    PoolPut {
        /// The pool.
        pool: Pool,
    },
    /// A pool was deleted.
    PoolDeleted {
        /// Its code.
        code: String,
    },
    /// A task was created. Its number is the next one in the lane of tasks.
    TaskCreated {
        /// Its id.
        id: Uuid,
        /// Its definition.
        task: Box<StoredTask>,
    },
    /// A replay was ordered: a range of the topic is to be delivered again.
    ReplayOrdered {
        /// The replay.
        id: Uuid,
        /// Its subscription.
        subscription: Uuid,
        /// The first sequence.
        from: Sequence,
        /// The last one.
        to: Sequence,
    },
    /// Jobs ended, and a lane is settled up to a sequence, except for open jobs.
    JobsEnded {
        /// The lane.
        lane: Uuid,
        /// The settled offset.
        through: Sequence,
        /// The jobs that were delivered.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        done: Vec<DeliveredJob>,
        /// The jobs that were not delivered because their events are removed. In older logs: because of their age.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        expired: Vec<Sequence>,
    },
    /// An attempt failed.
    JobAttempted {
        /// The job.
        job: JobKey,
        /// The event.
        event: Uuid,
        /// Its result.
        attempt: JobAttempt,
        /// When the next attempt is due, in milliseconds; none: the job is given up, and a dead letter may follow.
        retry_at: Option<i64>,
        /// Whether it counts as one of the job's attempts.
        counts: bool,
        /// What the job's row keeps of the event, if it does not have it yet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<EventDigest>,
    },
    /// A job reached its maximum age before it was delivered: it is given up, and a dead letter may follow.
    JobExpired {
        /// The job.
        job: JobKey,
        /// The event.
        event: Uuid,
        /// What the job's row keeps of the event, if it does not have it yet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<EventDigest>,
    },
    /// The receiver asked for a later delivery.
    JobDeferred {
        /// The job.
        job: JobKey,
        /// The event.
        event: Uuid,
        /// When it is due, in milliseconds.
        until: i64,
        /// The reason in the receiver's response.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// What the job's row keeps of the event, if it does not have it yet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<EventDigest>,
    },
    /// An operator closed the circuit breaker of a subscription's target: it is called again at once.
    BreakerClosed {
        /// The subscription.
        id: Uuid,
        /// The operator.
        by: String,
    },
    /// An operator cancelled a job.
    JobCancelled {
        /// The job.
        job: JobKey,
        /// The operator.
        by: String,
    },
    /// An operator restarted a job, with all its attempts available again and a new age.
    JobRetried {
        /// The job.
        job: JobKey,
        /// The event.
        event: Uuid,
        /// The operator.
        by: String,
        /// What the job's row keeps of the event, if it does not have it yet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<EventDigest>,
    },
    /// An operator marked a job as completed: it need not be delivered any more.
    JobCompleted {
        /// The job.
        job: JobKey,
        /// The operator.
        by: String,
    },
    /// Dispatch was paused for the whole log. This happens when a log is restored from a backup: what the backup holds
    /// as pending may have been delivered since.
    DispatchPaused {
        /// Who paused it.
        by: String,
        /// The reason that was given.
        reason: Option<String>,
    },
    /// Dispatch was resumed.
    DispatchResumed {
        /// Who resumed it.
        by: String,
    },
    /// A process took the dispatch lease of this log. The position of this entry fences its attempts.
    DispatchTaken {
        /// The process.
        owner: Uuid,
        /// When the lease expires, in milliseconds.
        until: i64,
    },
}

/// A delivered job: sequence, number of the attempt, start time, duration, status. A JSON array, because
/// there are many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveredJob(pub Sequence, pub u32, pub i64, pub u32, pub u16);

/// What the row of a job keeps of its event: so the job can be planned without reading the event again, and it is known
/// which message group the job blocks when retention has removed the event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventDigest {
    /// When the event arrived, in milliseconds.
    pub arrived: i64,
    /// How long its text is.
    pub bytes: u32,
    /// Its message group, or its aggregate if it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}
