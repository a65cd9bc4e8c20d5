//! Subscriptions: standing orders to deliver a topic's events to URLs, and the pools that they share.
//!
//! - A subscription lives in the log of its topic, with its jobs. Pools live in the default log.
//! - Secrets arrive with a definition and are sealed before the decision ([`vault`]). Only the response that creates a
//!   secret shows it.
//! - The log is read on the caller's task; decisions use only the state.
//!
//! Which job is sent when is the business of `dispatch`; how one attempt is made, of `delivery`.

mod compiled;
mod consent;
mod decide;
mod operational_events;
mod pools;
mod replay;
mod secrets;
mod validate;
mod vault;
mod view;

pub(crate) use compiled::{CompiledSubscription, DEFAULT_POOL, DeliverySettings, EventSummary, RetrySchedule};
pub(crate) use decide::check_pool;
pub(crate) use operational_events::{AnnounceTarget, OperationalEvent, announce};
pub(crate) use pools::pool_of;
pub(crate) use replay::{is_final, is_replaced};
pub(crate) use validate::{host as check_host, task as check_task};
pub use vault::KEY_FILE;
pub(crate) use vault::SecretVault;
pub(crate) use view::new_view;

use crate::delivery::{CircuitBreakers, Deliver, DeliveryTarget, WebhookSecret};
use crate::events::{CallerContext, before_earliest};
use crate::ledger::{
    LaneProgress, Ledger, ReplyRecorder, SubscriptionRow, answer_or_repeat, decide_until_known, read_failed,
};
use crate::logs::{LocatedTopic, LogRef};
use contract::{
    Cursor, Error, Kind, NewSecret, NewSubscription, Offset, Page, Result, SecretKind, Sequence, StartFrom,
    Subscription, SubscriptionChange, SubscriptionWithSecret, TargetBreaker, Timestamp, Violation, limits,
};
use decide::{
    ChangeSubscription, CreateSubscription, SetSubscriptionState, StartPoint, SubscriptionTransition, code_taken,
};
use log::RecordQuery;
use secrets::{ChangedSecrets, split_secrets};
use std::sync::Arc;
use tokio::sync::{RwLockReadGuard, RwLockWriteGuard};
use uuid::Uuid;
use validate::SecretExposure;
use vault::SigningSecret;
use view::SubscriptionProgress;

/// The actor if the request names none.
const UNKNOWN_CALLER: &str = "unknown";

/// The subscriptions of all logs, on behalf of one caller.
pub(crate) struct Subscriptions<'a> {
    pub(crate) context: CallerContext<'a>,
    pub(crate) vault: &'a SecretVault,
    pub(crate) deliver: &'a dyn Deliver,
    pub(crate) breakers: &'a CircuitBreakers,
    /// The id of this process in dispatch leases.
    pub(crate) owner: Uuid,
    /// Most events that are read to count a replay; a longer one is started without a full count.
    pub(crate) counted_max: u64,
}

/// The default of that: reading takes a few seconds, well within the time-out of a request.
pub(crate) const COUNTED_MAX: u64 = 1_000_000;

impl Subscriptions<'_> {
    /// Creates a subscription; returns it with the secret that was created for it, if any. The stored reply of an
    /// idempotency key is made from the row, which holds no secret.
    pub(crate) async fn create_keeping(
        &self,
        new: NewSubscription,
        recorder: ReplyRecorder<SubscriptionRow>,
    ) -> Result<(SubscriptionRow, SubscriptionWithSecret)> {
        validate::subscription(&new, self.allows_private())?;
        validate::new_code(&new.code)?;
        self.check_pool(new.pool.as_deref())?;
        operational_events::prepare(self.context.logs.default_ledger()).await?;
        let located = self.located(&new)?;
        let (mut definition, mut secrets) = split_secrets(new);
        let exposure = SecretExposure {
            target: &definition.target,
            has_secrets: !secrets.is_empty(),
            headers: definition.headers.keys().map(String::as_str).collect(),
        };
        validate::exposure(&exposure, &self.context.rules.config.dispatch)?;
        let policy = located.topic.topic.definition.secrets.unwrap_or_default();
        self.context.rules.secrets.inspect_headers(policy, definition.headers.iter())?;
        let wants_secret = secrets.signing.is_empty() && (definition.signing.is_some() || self.vault.has_key());
        let made = wants_secret.then(|| WebhookSecret::generate(SecretKind::Symmetric)).transpose()?;
        secrets.signing.extend(made.as_ref().map(SigningSecret::generated));
        definition.signing = None;
        let id = Uuid::new_v4();
        let compiled = CompiledSubscription::compile(id, &definition, &secrets, self.allows_private())?;
        self.check_free(&definition)?;
        if definition.handshake {
            self.check_consent(&compiled).await?;
        }
        let ledger = self.context.logs.ledger(&located.log);
        let start = start(ledger, &located, definition.start_from).await?;
        let (sealed, auth_type) = self.seal(id, &secrets)?;
        let _names = self.hold_names(&located.log).await;
        self.check_free(&definition)?;
        let has_pools = located.log == LogRef::Default;
        let create =
            CreateSubscription { id, definition, number: located.topic.number, sealed, auth_type, start, has_pools };
        let row = ledger.submit_recording(create, recorder).await?;
        let secret = made.map(|secret| NewSecret {
            secret: secret.expose().to_owned(),
            public_key: secret.public_key(),
            previous_until: None,
        });
        let made = SubscriptionWithSecret { subscription: self.view(ledger, &row), secret };
        Ok((row, made))
    }

    /// A subscription by its id or code.
    pub(crate) fn get(&self, id: &str) -> Result<Subscription> {
        let (ledger, row) = self.find(id)?;
        Ok(self.full_view(&ledger, &row))
    }

    /// The page of subscriptions at `cursor`, in order of their codes.
    pub(crate) fn list(&self, cursor: Option<&Cursor>, limit: usize) -> Result<Page<Subscription>> {
        self.context.reader.check_limit(limit)?;
        let mut found = Vec::new();
        for ledger in self.context.logs.ledgers() {
            let rows: Vec<_> = ledger.dispatch().subscriptions().cloned().collect();
            found.extend(rows.into_iter().map(|row| (Arc::clone(&ledger), row)));
        }
        found.sort_unstable_by(|one, other| one.1.definition.code.cmp(&other.1.definition.code));
        let page = Page::of(found.into_iter(), cursor, limit, |(_, row)| row.definition.code.clone());
        Ok(page.map(|(ledger, row)| self.full_view(&ledger, &row)))
    }

    /// A subscription as it is shown, with the reason why its jobs wait.
    fn full_view(&self, ledger: &Ledger, row: &SubscriptionRow) -> Subscription {
        Subscription { held: self.hold_reason(ledger, row), ..self.view(ledger, row) }
    }

    /// Why jobs of a subscription that were not attempted yet wait, if they do.
    fn hold_reason(&self, ledger: &Ledger, row: &SubscriptionRow) -> Option<String> {
        if let Err(error) = self.vault.unseal(row.id, row.sealed.as_deref()) {
            return Some(error.detail().to_owned());
        }
        let (rows, most) = (ledger.dispatch(), self.context.rules.config.dispatch.max_open_jobs);
        let open = rows.open_jobs();
        if open >= most as usize {
            return Some(format!(
                "{open} jobs of this log failed and wait, or were given up, and no more than {most} may \
                 (dispatch.max_open_jobs): resolve dead letters, or cancel jobs."
            ));
        }
        let own = rows.lane(row.id).map_or(0, LaneProgress::open_count);
        rows.is_over_share(row.id, most as usize).then(|| {
            format!(
                "{own} jobs of this subscription failed and wait, or were given up: its share of the {most} that may \
                 in this log (dispatch.max_open_jobs). Resolve dead letters, or cancel jobs."
            )
        })
    }

    /// Changes a subscription. Jobs that have not begun follow the new definition; settled jobs are not affected.
    pub(crate) async fn change(
        &self,
        id: &str,
        change: SubscriptionChange,
        recorder: ReplyRecorder<Subscription>,
    ) -> Result<Subscription> {
        let (change, recorder) = (&change, &recorder);
        decide_until_known((), |()| async move {
            let (ledger, row) = self.find(id)?;
            let (definition, given) = split_secrets(change.clone().applied_to(NewSubscription::clone(&row.definition)));
            let secrets = self.changed_secrets(&row, change, given)?;
            validate::subscription(&definition, self.allows_private())?;
            self.check_exposure(&row, &definition, change, &secrets)?;
            if definition.headers != row.definition.headers {
                let policy = self.context.logs.find(&row.definition.topic)?.topic.topic.definition.secrets;
                self.context.rules.secrets.inspect_headers(policy.unwrap_or_default(), definition.headers.iter())?;
            }
            self.check_pool(definition.pool.as_deref())?;
            let compiled =
                CompiledSubscription::compile(row.id, &definition, secrets.known_or_none(), self.allows_private())?;
            let has_consented = row.definition.handshake && row.definition.target == definition.target;
            if definition.handshake && !has_consented {
                secrets.check_known()?;
                self.check_consent(&compiled).await?;
            }
            let sealed = match &secrets {
                ChangedSecrets::Known(secrets) => self.seal(row.id, secrets)?,
                ChangedSecrets::Unreadable(_) => (row.sealed.clone(), row.auth_type.clone()),
            };
            let standing = self.progress(&ledger, &row);
            let recorder = recorder.map_answer(move |row| Some(Ok(standing.into_view(row))));
            let row = self.put(&ledger, &row, definition, sealed, recorder).await?;
            Ok(answer_or_repeat(row.map(|row| standing.into_view(&row))))
        })
        .await
    }

    /// Pauses a subscription: its jobs wait.
    pub(crate) async fn pause(
        &self,
        id: &str,
        reason: Option<String>,
        recorder: ReplyRecorder<Subscription>,
    ) -> Result<Subscription> {
        if reason.as_ref().is_some_and(|reason| reason.contains('\0')) {
            return Err(Error::invalid("/reason", Violation::NUL));
        }
        if reason.as_ref().is_some_and(|reason| reason.len() > limits::REASON_BYTES_MAX) {
            let detail = format!("may have at most {} bytes", limits::REASON_BYTES_MAX);
            return Err(Error::invalid("/reason", detail));
        }
        self.set_state(id, SubscriptionTransition::Paused { by: self.caller(), reason }, recorder).await
    }

    /// Resumes a subscription.
    pub(crate) async fn resume(&self, id: &str, recorder: ReplyRecorder<Subscription>) -> Result<Subscription> {
        self.set_state(id, SubscriptionTransition::Active, recorder).await
    }

    /// Closes the circuit breaker of a subscription's target: its jobs are sent at once.
    pub(crate) async fn close_breaker(&self, id: &str, recorder: ReplyRecorder<Subscription>) -> Result<Subscription> {
        let (_, row) = self.find(id)?;
        // The broker that delivers learns it from the log; if it is this one, the response shows it already.
        self.breakers.close(&target_of(&row));
        self.set_state(id, SubscriptionTransition::BreakerClosed { by: self.caller() }, recorder).await
    }

    /// Deletes a subscription with its jobs, and closes its open dead letters.
    pub(crate) async fn delete(&self, id: &str, recorder: ReplyRecorder<()>) -> Result<()> {
        let (ledger, row) = self.find(id)?;
        let recorder = recorder.map_answer(|_| Some(Ok(())));
        ledger
            .submit_recording(
                SetSubscriptionState { id: row.id, to: SubscriptionTransition::Gone { by: self.caller() } },
                recorder,
            )
            .await
            .map(drop)
    }

    fn caller(&self) -> String {
        self.context.caller.map_or_else(|| UNKNOWN_CALLER.to_owned(), |by| by.0.clone())
    }

    async fn set_state(
        &self,
        id: &str,
        to: SubscriptionTransition,
        recorder: ReplyRecorder<Subscription>,
    ) -> Result<Subscription> {
        let (ledger, row) = self.find(id)?;
        let standing = self.progress(&ledger, &row);
        let shown = move |row: &Option<SubscriptionRow>| {
            row.as_ref().map(|row| standing.into_view(row)).ok_or_else(|| Error::not_found("subscription"))
        };
        let recorder = recorder.map_answer(move |row| Some(shown(row)));
        shown(&ledger.submit_recording(SetSubscriptionState { id: row.id, to }, recorder).await?)
    }

    async fn put(
        &self,
        ledger: &Ledger,
        row: &SubscriptionRow,
        definition: NewSubscription,
        (sealed, auth_type): (Option<String>, Option<String>),
        recorder: ReplyRecorder<SubscriptionRow>,
    ) -> Result<Option<SubscriptionRow>> {
        let has_pools = std::ptr::eq(ledger, self.context.logs.default_ledger().as_ref());
        let _names = self.context.logs.names().read().await;
        if !has_pools {
            self.check_pool(definition.pool.as_deref())?;
        }
        let change = ChangeSubscription { id: row.id, version: row.version, definition, sealed, auth_type, has_pools };
        ledger.submit_recording(change, recorder.map_answer(|row: &Option<_>| row.clone().map(Ok))).await
    }

    /// A subscription and its log, by its id or code.
    pub(crate) fn find(&self, id: &str) -> Result<(Arc<Ledger>, SubscriptionRow)> {
        let uuid = Uuid::parse_str(id).ok();
        let found = self.context.logs.ledgers().into_iter().find_map(|ledger| {
            let row = {
                let rows = ledger.dispatch();
                uuid.and_then(|id| rows.subscription(id)).or_else(|| rows.by_code(id)).cloned()
            };
            row.map(|row| (ledger, row))
        });
        found.ok_or_else(|| Error::not_found("subscription"))
    }

    /// Refuses a code that a subscription of any log has, and a pool that does not exist.
    fn check_free(&self, definition: &NewSubscription) -> Result<()> {
        let is_taken =
            self.context.logs.ledgers().iter().any(|ledger| ledger.dispatch().by_code(&definition.code).is_some());
        if is_taken { Err(code_taken()) } else { self.check_pool(definition.pool.as_deref()) }
    }

    /// A guard under which a code may be used in a log; see [`crate::logs::Logs::names`].
    async fn hold_names(&self, place: &LogRef) -> NameGuard<'_> {
        match place {
            LogRef::Default => NameGuard::Shared { _held: self.context.logs.names().read().await },
            LogRef::Side(_) => NameGuard::Alone { _held: self.context.logs.names().write().await },
        }
    }

    /// A subscription as it is shown.
    fn view(&self, ledger: &Ledger, row: &SubscriptionRow) -> Subscription {
        self.progress(ledger, row).into_view(row)
    }

    /// The progress of a subscription, and the state of its target's breaker.
    fn progress(&self, ledger: &Ledger, row: &SubscriptionRow) -> SubscriptionProgress {
        SubscriptionProgress::of(ledger, row.id, self.breaker(ledger, row))
    }

    /// The state of the circuit breaker of a subscription's target, if this process delivers the log's jobs.
    fn breaker(&self, ledger: &Ledger, row: &SubscriptionRow) -> Option<TargetBreaker> {
        let now = ledger.clock().now();
        let lease = ledger.dispatch().lease().filter(|lease| lease.owner == self.owner && lease.until > now);
        lease.map(|_| self.breakers.state(&target_of(row), now))
    }

    fn located(&self, new: &NewSubscription) -> Result<LocatedTopic> {
        self.context.logs.find(&new.topic).map_err(|error| match error.kind() {
            Kind::NotFound => Error::invalid("/topic", "is not registered"),
            _ => error,
        })
    }

    const fn allows_private(&self) -> bool {
        self.context.rules.config.dispatch.allow_private_targets
    }
}

/// Guards the use of a code until it is dropped.
enum NameGuard<'a> {
    Shared { _held: RwLockReadGuard<'a, ()> },
    Alone { _held: RwLockWriteGuard<'a, ()> },
}

/// The start of a new subscription.
async fn start(ledger: &Ledger, located: &LocatedTopic, from: StartFrom) -> Result<StartPoint> {
    let topic = &located.topic;
    Ok(match from {
        StartFrom::Latest => StartPoint::Tail,
        StartFrom::Offset(Offset(offset)) => StartPoint::Behind(Sequence(offset)),
        StartFrom::Earliest => StartPoint::Behind(before_earliest(ledger, topic.number).await?.into()),
        StartFrom::Time(time) => {
            let tail = topic.tail();
            let found = ledger.log().find(RecordQuery::Time(Some(topic.number), millis_from(time))).await;
            let found = found.map_err(read_failed)?;
            StartPoint::Behind(found.map_or(tail, |header| Sequence(header.sequence.0.saturating_sub(1))))
        }
    })
}

/// Events have whole milliseconds, so a time between two of them is rounded up.
fn millis_from(time: Timestamp) -> i64 {
    let millis = (time.nanos() + 999_999).div_euclid(1_000_000);
    i64::try_from(millis).unwrap_or(if millis < 0 { i64::MIN } else { i64::MAX })
}

/// A subscription's target in the form of its breaker's key: the parsed URL.
fn target_of(row: &SubscriptionRow) -> String {
    let parsed = DeliveryTarget::parse("/target", &row.definition.target);
    parsed.map_or_else(|_| row.definition.target.clone(), |target| target.as_str().to_owned())
}
