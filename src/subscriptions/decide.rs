//! The decisions about subscriptions and pools.

use super::operational_events::{OperationalEvent, announce};
use super::{DEFAULT_POOL, validate};
use crate::ledger::{Command, Decision, DispatchFact, Entry, SubscriptionRow};
use contract::{Error, Kind, NewSubscription, Pool, PoolChange, Position, Result, Sequence};
use log::TopicNumber;
use std::collections::BTreeSet;
use uuid::Uuid;

/// Most users of a pool that a refusal names.
const USERS_NAMED: usize = 5;

/// Where a new subscription begins.
#[derive(Clone, Copy)]
pub(super) enum StartPoint {
    Tail,
    Behind(Sequence),
}

/// Creates a subscription.
pub(super) struct CreateSubscription {
    pub(super) id: Uuid,
    pub(super) definition: NewSubscription,
    pub(super) number: TopicNumber,
    pub(super) sealed: Option<String>,
    pub(super) auth_type: Option<String>,
    pub(super) start: StartPoint,
    /// Whether this log also holds the pools.
    pub(super) has_pools: bool,
}

impl Command for CreateSubscription {
    type Answer = SubscriptionRow;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<SubscriptionRow> {
        if decision.dispatch().by_code(&self.definition.code).is_some() {
            return Err(code_taken());
        }
        if self.has_pools {
            check_pool(decision, self.definition.pool.as_deref())?;
        }
        if !decision.dispatch().has_room() {
            let detail = "This broker has its maximum number of subscriptions; delete some.";
            return Err(Error::new(Kind::Overloaded, detail).with_retry_after(60));
        }
        let tail = decision.tail(self.number);
        let start = match self.start {
            StartPoint::Tail => tail,
            StartPoint::Behind(start) => start.min(tail),
        };
        put(decision, self.id, self.number.0, &self.definition, (&self.sealed, &self.auth_type), start)
    }

    fn bytes(&self) -> usize {
        size_of_definition(&self.definition)
    }
}

/// Replaces the definition of a subscription.
pub(super) struct ChangeSubscription {
    pub(super) id: Uuid,
    /// The version that the change is based on.
    pub(super) version: Position,
    pub(super) definition: NewSubscription,
    pub(super) sealed: Option<String>,
    pub(super) auth_type: Option<String>,
    /// Whether this is the log of the pools too.
    pub(super) has_pools: bool,
}

impl Command for ChangeSubscription {
    /// `None` if it was changed meanwhile.
    type Answer = Option<SubscriptionRow>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        let known = decision.dispatch().subscription_row(self.id)?;
        if known.version != self.version {
            return Ok(None);
        }
        if self.has_pools {
            check_pool(decision, self.definition.pool.as_deref())?;
        }
        let secrets = (&self.sealed, &self.auth_type);
        let tail = decision.tail(TopicNumber(known.number));
        put(decision, self.id, known.number, &self.definition, secrets, tail).map(Some)
    }

    fn bytes(&self) -> usize {
        size_of_definition(&self.definition)
    }
}

fn put(
    decision: &mut Decision<'_>,
    id: Uuid,
    number: u32,
    definition: &NewSubscription,
    (sealed, auth_type): (&Option<String>, &Option<String>),
    start: Sequence,
) -> Result<SubscriptionRow> {
    let what = DispatchFact::SubscriptionPut {
        id,
        number,
        definition: Box::new(definition.clone()),
        sealed: sealed.clone(),
        auth_type: auth_type.clone(),
        start,
    };
    decision.add_entry(Entry::Dispatch { what })?;
    decision.dispatch().subscription_row(id)
}

/// Refuses a pool that does not exist; `default` always does.
pub(crate) fn check_pool(decision: &Decision<'_>, pool: Option<&str>) -> Result<()> {
    match pool {
        Some(code) if code != DEFAULT_POOL && decision.dispatch().pool(code).is_none() => Err(unknown_pool()),
        _ => Ok(()),
    }
}

/// The refusal of a pool that does not exist.
pub(super) fn unknown_pool() -> Error {
    Error::invalid("/pool", "is not a pool of this broker; create it first, or choose another one")
}

fn size_of_definition(it: &NewSubscription) -> usize {
    size_of::<NewSubscription>() + it.target.len() + it.filter.as_ref().map_or(0, String::len)
}

pub(super) fn code_taken() -> Error {
    Error::new(Kind::AlreadyExists, "A subscription of this code exists; choose another code, or change that one.")
}

/// The refusal to make a key while other subscriptions have secrets that were sealed with the one that is missing.
pub(super) fn key_missing() -> Error {
    let detail = "The key file `secret.key` is missing from the data folder, and other subscriptions have secrets that were \
        sealed with it. Put it back; or, if it is lost, set `dispatch.secret_key` and give those subscriptions new secrets.";
    Error::new(Kind::Unavailable, detail)
}

/// Pauses, resumes or deletes a subscription, or closes its breaker.
pub(super) struct SetSubscriptionState {
    pub(super) id: Uuid,
    pub(super) to: SubscriptionTransition,
}

pub(super) enum SubscriptionTransition {
    Paused { by: String, reason: Option<String> },
    Active,
    BreakerClosed { by: String },
    Gone { by: String },
}

impl Command for SetSubscriptionState {
    /// `None` if it was deleted.
    type Answer = Option<SubscriptionRow>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        let known = decision.dispatch().subscription_row(self.id)?;
        let what = match (&self.to, &known.paused) {
            // Already so: nothing changes.
            (SubscriptionTransition::Paused { .. }, Some(_)) | (SubscriptionTransition::Active, None) => {
                return Ok(Some(known));
            }
            (SubscriptionTransition::Paused { by, reason }, None) => {
                DispatchFact::SubscriptionPaused { id: self.id, by: by.clone(), reason: reason.clone() }
            }
            (SubscriptionTransition::Active, Some(_)) => DispatchFact::SubscriptionResumed { id: self.id },
            (SubscriptionTransition::BreakerClosed { by }, _) => {
                DispatchFact::BreakerClosed { id: self.id, by: by.clone() }
            }
            (SubscriptionTransition::Gone { by }, _) => {
                let code = Some(known.definition.code.clone());
                DispatchFact::SubscriptionDeleted { id: self.id, code, by: Some(by.clone()) }
            }
        };
        decision.add_entry(Entry::Dispatch { what })?;
        if let SubscriptionTransition::Paused { by, reason } = &self.to {
            announce(&OperationalEvent::Paused { row: &known, by, reason: reason.as_deref() }, decision)?;
        }
        Ok(decision.dispatch().subscription_row(self.id).ok())
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// Starts a replay.
pub(super) struct StartReplay {
    pub(super) id: Uuid,
    pub(super) subscription: Uuid,
    pub(super) from: Sequence,
    pub(super) to: Sequence,
}

impl Command for StartReplay {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        decision.dispatch().subscription_row(self.subscription)?;
        if !decision.dispatch().has_room_for_replays(self.subscription) {
            let detail = "This subscription runs its maximum number of replays; retry when one has ended.";
            return Err(Error::new(Kind::Overloaded, detail).with_retry_after(60));
        }
        let Self { id, subscription, from, to } = *self;
        decision.add_entry(Entry::Dispatch { what: DispatchFact::ReplayOrdered { id, subscription, from, to } })?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// Starts several replays, all or none.
pub(super) struct StartReplays(pub(super) Vec<StartReplay>);

impl Command for StartReplays {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        self.0.iter().try_for_each(|replay| replay.decide(decision))
    }

    fn bytes(&self) -> usize {
        self.0.len() * size_of::<StartReplay>()
    }
}

/// Creates a pool.
pub(super) struct CreatePool(pub(super) Pool);

impl Command for CreatePool {
    type Answer = Pool;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Pool> {
        match decision.dispatch().pool(&self.0.code) {
            Some(known) if known == self.0 => return Ok(known),
            Some(_) => {
                let detail = "A pool of this code exists with another definition; change that one.";
                return Err(Error::new(Kind::AlreadyExists, detail));
            }
            None => (),
        }
        if !decision.dispatch().has_room_for_pools() {
            let detail = "This broker has its maximum number of pools; delete some.";
            return Err(Error::new(Kind::Overloaded, detail).with_retry_after(60));
        }
        put_pool(decision, self.0.clone())
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// Changes a pool. The change is applied inside the decision, so that of two changes at the same time neither is lost, and a
/// pool that was deleted meanwhile stays deleted.
pub(super) struct ChangePool {
    pub(super) code: String,
    pub(super) change: PoolChange,
    /// The pool if it is not stored: the default one exists always.
    pub(super) unstored: Option<Pool>,
}

impl Command for ChangePool {
    type Answer = Pool;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Pool> {
        let stored = decision.dispatch().pool(&self.code);
        let known = stored.or_else(|| self.unstored.clone()).ok_or_else(|| Error::not_found("pool"))?;
        let pool = Pool {
            concurrency: self.change.concurrency.unwrap_or(known.concurrency),
            rate_per_minute: self.change.rate_per_minute.unwrap_or(known.rate_per_minute),
            code: known.code.clone(),
        };
        validate::pool(&pool)?;
        if pool == known {
            return Ok(pool);
        }
        put_pool(decision, pool)
    }

    fn bytes(&self) -> usize {
        self.code.len()
    }
}

fn put_pool(decision: &mut Decision<'_>, pool: Pool) -> Result<Pool> {
    decision.add_entry(Entry::Dispatch { what: DispatchFact::PoolPut { pool: pool.clone() } })?;
    Ok(pool)
}

/// Deletes a pool.
pub(super) struct DeletePool {
    pub(super) code: String,
    /// Codes of the subscriptions in other logs that use it.
    pub(super) used_elsewhere: BTreeSet<String>,
}

impl Command for DeletePool {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        decision.dispatch().pool(&self.code).ok_or_else(|| Error::not_found("pool"))?;
        let (mut subscriptions, tasks) = decision.dispatch().pool_users(&self.code);
        subscriptions.extend(self.used_elsewhere.iter().cloned());
        if tasks > 0 || !subscriptions.is_empty() {
            return Err(pool_in_use(&subscriptions, tasks));
        }
        decision.add_entry(Entry::Dispatch { what: DispatchFact::PoolDeleted { code: self.code.clone() } })?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// The refusal to delete a pool in use; it names the users.
fn pool_in_use(subscriptions: &BTreeSet<String>, tasks: usize) -> Error {
    let mut users = Vec::new();
    if !subscriptions.is_empty() {
        let named: Vec<_> = subscriptions.iter().take(USERS_NAMED).map(String::as_str).collect();
        let more = if subscriptions.len() > named.len() { ", …" } else { "" };
        users.push(format!("{} subscription(s) ({}{more})", subscriptions.len(), named.join(", ")));
    }
    if tasks > 0 {
        users.push(format!("{tasks} task(s) that are not over"));
    }
    let detail = format!(
        "{} use this pool. Give the subscriptions another one; let the tasks end, or cancel them.",
        users.join(" and ")
    );
    Error::new(Kind::InvalidState, detail)
}
