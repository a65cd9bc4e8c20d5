//! Claims: who is working on which event, so that an effect happens at most once per handler.
//!
//! - At most one live claim per (handler, event); the log's order decides races, on any engine, from any process.
//! - An event is identified by the sequence at which it was first stored, also if a republished copy is claimed.
//! - A finished claim is never reopened; one whose lease has expired can be taken over, with a higher token.
//! - A topic's claims are in its own log. A handler's policy is in the default log.
//! - The log is read on the caller's task; decisions look at the state alone.
//! - Time comes in with the decision, and never goes back; nothing here reads a clock or waits.
//!
//! Offsets are in `consumers`, the resolution of dead letters in `dead_letters`.

mod assign;
mod claim;
mod claim_decision;
mod claim_id;
mod complete;
mod complete_decision;
mod dead_letter;
mod delete_handler;
mod handlers;
mod order;
mod policy;
mod release;
mod stale_events;

pub(crate) use assign::{MemberOffer, OfferedEvent};
pub(crate) use policy::ClaimDefaults;
pub(crate) use release::{MemberDeparture, release_all};
pub(crate) use stale_events::StaleEvents;

use crate::events::CallerContext;
use crate::lag::LagCache;
use crate::ledger::{ClaimKey, ClaimRow, ClaimSlot, ClaimState, Entry, Ledger, ReplyRecorder, read_failed};
use crate::logs::LogRef;
use crate::secrets::redact;
use claim_id::ClaimId;
use complete_decision::{ExtendLease, FailClaim};
use contract::{
    Claim, ClaimError, ClaimFailure, ClaimStatus, Cursor, Error, FencingToken, Kind, NewHandler, Page, Result,
    Sequence, Timestamp, TopicId, Violation, limits,
};
use log::{LogError, ReadLimit, ReadRange, TopicNumber};
use release::ReleaseClaim;
use std::borrow::Cow;
use std::sync::Arc;
use uuid::Uuid;

/// The owner of a claim if the request names none.
pub(crate) const UNKNOWN_OWNER: &str = "unknown";

/// The claims of all logs, on behalf of one caller.
pub(crate) struct Claims<'a> {
    pub(crate) context: CallerContext<'a>,
    pub(crate) stale: &'a StaleEvents,
    pub(crate) lag: &'a LagCache,
}

/// A claim's key, and where it is decided.
#[derive(Clone)]
struct LocatedClaim {
    place: LogRef,
    key: ClaimKey,
    topic: TopicId,
}

impl Claims<'_> {
    /// Restarts a claim's lease.
    pub(crate) async fn heartbeat(
        &self,
        id: &str,
        token: FencingToken,
        recorder: ReplyRecorder<Claim>,
    ) -> Result<Claim> {
        let located = self.locate(id)?;
        let key = located.key.clone();
        let row = self
            .ledger(&located)
            .submit_recording(ExtendLease { key, token }, self.row_recorder(&located, &recorder))
            .await?;
        Ok(self.view(&located.key, &located.topic, &row))
    }

    /// Records that an attempt failed.
    pub(crate) async fn fail(&self, id: &str, failure: ClaimFailure, recorder: ReplyRecorder<Claim>) -> Result<Claim> {
        let ClaimFailure { token, error, retryable } = failure;
        let error = check_error(error)?;
        let located = self.locate(id)?;
        let LocatedClaim { place, key, topic } = &located;
        let fail = FailClaim {
            key: key.clone(),
            topic: topic.clone(),
            token,
            error,
            retryable: retryable.unwrap_or(true),
            policy: self.policy_for(place, &key.handler),
            defaults: self.defaults(),
        };
        let row = self.ledger(&located).submit_recording(fail, self.row_recorder(&located, &recorder)).await?;
        Ok(self.view(key, topic, &row))
    }

    /// Releases a claim, unfinished.
    pub(crate) async fn release(&self, id: &str, token: FencingToken, recorder: ReplyRecorder<Claim>) -> Result<Claim> {
        let located = self.locate(id)?;
        let key = located.key.clone();
        let row = self
            .ledger(&located)
            .submit_recording(ReleaseClaim { key, token }, self.row_recorder(&located, &recorder))
            .await?;
        Ok(self.view(&located.key, &located.topic, &row))
    }

    /// One claim that is not finished.
    pub(crate) async fn get(&self, id: &str) -> Result<Claim> {
        let located = self.locate(id)?;
        let ledger = self.ledger(&located);
        ledger.refresh().await?;
        let slot = ledger.claims().slot(&located.key);
        match slot {
            Some(ClaimSlot::Open(row)) => Ok(self.view(&located.key, &located.topic, &row)),
            _ => Err(Error::not_found("claim")),
        }
    }

    /// Claims of a handler that are not finished, by topic and sequence, the page at `cursor`.
    pub(crate) fn list(&self, handler: &str, cursor: Option<&Cursor>, limit: usize) -> Result<Page<Claim>> {
        self.context.reader.check_limit(limit)?;
        let mut found = Vec::new();
        for ledger in self.context.logs.ledgers() {
            let (registry, claims) = (ledger.registry(), ledger.claims());
            for number in claims.topics(handler) {
                let Some(topic) = registry.topic_numbered(TopicNumber(number)) else { continue };
                let id = &topic.topic.definition.id;
                found.extend(claims.open(handler, number).map(|(sequence, row)| {
                    let key = ClaimKey { handler: handler.to_owned(), topic: number, sequence };
                    (list_key(id, &key), key, id.clone(), row.clone())
                }));
            }
        }
        found.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let page = Page::of(found.into_iter(), cursor, limit, |(place, ..)| place.clone());
        Ok(page.map(|(_, key, topic, row)| self.view(&key, &topic, &row)))
    }

    /// The claim that an id names.
    fn locate(&self, id: &str) -> Result<LocatedClaim> {
        let ClaimId { handler, topic, sequence } = ClaimId::parse(id)?;
        let found = self.context.logs.find(&topic).map_err(|error| match error.kind() {
            Kind::NotFound => Error::not_found("claim"),
            _ => error,
        })?;
        let key = ClaimKey { handler, topic: found.topic.number.0, sequence };
        Ok(LocatedClaim { place: found.log, key, topic })
    }

    fn ledger<'a>(&'a self, located: &'a LocatedClaim) -> &'a Arc<Ledger> {
        self.context.logs.ledger(&located.place)
    }

    fn defaults(&self) -> ClaimDefaults {
        ClaimDefaults::of(&self.context.rules.config.claims)
    }

    /// A handler's policy in the default log, for decisions in another log; the default log uses its own state.
    fn policy_for(&self, place: &LogRef, handler: &str) -> Option<NewHandler> {
        match place {
            LogRef::Default => None,
            LogRef::Side(_) => self.context.logs.default_ledger().claims().policy(handler).cloned(),
        }
    }

    /// A claim as the API shows it.
    fn view(&self, key: &ClaimKey, topic: &TopicId, row: &ClaimRow) -> Claim {
        view(key, topic, row, self.defaults())
    }

    /// The reply to store with a decision about one claim.
    fn row_recorder(&self, located: &LocatedClaim, recorder: &ReplyRecorder<Claim>) -> ReplyRecorder<ClaimRow> {
        let (LocatedClaim { key, topic, .. }, defaults) = (located.clone(), self.defaults());
        recorder.map_answer(move |row| Some(Ok(view(&key, &topic, row, defaults))))
    }

    /// A claim that was done before, if the log has the entry that granted it with this token; else the token is lost.
    async fn done_before(&self, located: &LocatedClaim, token: FencingToken) -> Result<Claim> {
        let ledger = self.ledger(located);
        if token < ledger.claims().first_token(&located.key.handler, located.key.topic) {
            return Err(complete_decision::token_lost());
        }
        let row = match claim_at(ledger, &located.key, token).await? {
            Some(row) => row,
            None if is_reclaimed(ledger, token).await? => self.reclaimed_row(located, token).await?,
            None => return Err(complete_decision::token_lost()),
        };
        Ok(done_view(located, &row, self.defaults()))
    }

    /// A claim whose entry is reclaimed. It was the only one of its event, or its token is known to be the finishing one, so a
    /// token of that time finished it; the owner is not known any more.
    async fn reclaimed_row(&self, located: &LocatedClaim, token: FencingToken) -> Result<ClaimRow> {
        let ClaimKey { topic, sequence, .. } = located.key;
        let range = ReadRange::Topic(TopicNumber(topic), Sequence(sequence.get().saturating_sub(1)));
        let event = match self.ledger(located).log().headers(range, ReadLimit { records: 1, bytes: 0 }).await {
            Err(LogError::Trimmed(_)) => None,
            page => page.map_err(read_failed)?.into_iter().find(|header| header.sequence == sequence),
        };
        let stored_at = event.map_or(0, |event| event.time);
        Ok(ClaimRow {
            event: Uuid::from_u128(event.map_or(0, |event| event.id)),
            token,
            attempt: 1,
            claims: 1,
            owner: self.context.caller.map_or_else(|| "unknown".to_owned(), |producer| producer.0.clone()),
            lease_millis: policy::ClaimPolicy::of(None, self.defaults()).lease_millis,
            taken_at: stored_at,
            standing: ClaimState::Live { until: stored_at },
            redriven: false,
            attempts: Vec::new(),
        })
    }
}

/// A finished claim, as the API shows it.
fn done_view(located: &LocatedClaim, row: &ClaimRow, defaults: ClaimDefaults) -> Claim {
    let claim = view(&located.key, &located.topic, row, defaults);
    Claim { status: ClaimStatus::Done, lease_expires_at: None, retry_at: None, error: None, ..claim }
}

/// A claim as the API shows it.
pub(crate) fn view(key: &ClaimKey, topic: &TopicId, row: &ClaimRow, defaults: ClaimDefaults) -> Claim {
    let (mut lease_expires_at, mut retry_at, mut dead_letter) = (None, None, None);
    let status = match row.standing {
        ClaimState::Live { until } => {
            lease_expires_at = Some(Timestamp::from_millis(until));
            ClaimStatus::Claimed
        }
        ClaimState::Failed { retry_at: at } => {
            retry_at = Some(Timestamp::from_millis(at));
            ClaimStatus::Failed
        }
        ClaimState::Dead { letter, .. } => {
            dead_letter = Some(letter);
            ClaimStatus::Dead
        }
        ClaimState::Redriven => ClaimStatus::Redriven,
        ClaimState::Released => ClaimStatus::Released,
    };
    Claim {
        id: ClaimId::text(&key.handler, topic, key.sequence),
        handler: key.handler.clone(),
        topic: topic.clone(),
        sequence: key.sequence,
        event_id: row.event,
        token: row.token,
        attempt: row.attempt,
        owner: row.owner.clone(),
        status,
        lease: policy::span(row.lease_millis),
        heartbeat: policy::span(defaults.heartbeat(row.lease_millis)),
        claimed_at: Timestamp::from_millis(row.taken_at),
        lease_expires_at,
        retry_at,
        dead_letter,
        error: row.attempts.last().map(|attempt| attempt.error.clone()),
        committed_offset: None,
        open_sequence: None,
    }
}

/// Whether an entry at this position is reclaimed: it is before the first one that the log still has.
async fn is_reclaimed(ledger: &Ledger, token: FencingToken) -> Result<bool> {
    const ONE: ReadLimit = ReadLimit { records: 1, bytes: 0 };
    let entries = |after: u64| ReadRange::Topic(TopicNumber::LEDGER, Sequence(after));
    let earliest = match ledger.log().headers(entries(0), ONE).await {
        Err(LogError::Trimmed(earliest)) => earliest,
        page => return page.map(|_| false).map_err(read_failed),
    };
    let page = ledger.log().headers(entries(earliest.get().saturating_sub(1)), ONE).await.map_err(read_failed)?;
    Ok(page.first().is_some_and(|first| token.get() < first.position.get()))
}

/// The claim that the entry at this position granted, if it is this one.
async fn claim_at(ledger: &Ledger, key: &ClaimKey, token: FencingToken) -> Result<Option<ClaimRow>> {
    let Some(before) = token.get().checked_sub(1) else { return Ok(None) };
    let range = ReadRange::All(contract::Position(before));
    let page = ledger.log().read(range, ReadLimit { records: 1, bytes: 0 }).await.map_err(read_failed)?;
    let record = page.into_iter().next();
    let Some(record) = record.filter(|it| it.header.position.get() == token.get() && it.header.facets.is_none()) else {
        return Ok(None);
    };
    Ok(match serde_json::from_slice(&record.body) {
        Ok(Entry::ClaimTaken { claim, event, owner, lease_millis, attempt }) if claim == *key => Some(ClaimRow {
            event,
            token,
            attempt,
            claims: 1,
            owner,
            lease_millis,
            taken_at: record.header.time,
            standing: ClaimState::Live { until: record.header.time },
            redriven: false,
            attempts: Vec::new(),
        }),
        _ => None,
    })
}

/// A claim's key in the list of a handler's claims.
fn list_key(topic: &TopicId, key: &ClaimKey) -> String {
    format!("{topic} {:020}", key.sequence.get())
}

/// What is wrong with a handler's name, if anything.
fn check_name(name: &str, pointer: &str) -> Option<Violation> {
    let detail = match name {
        "" => "must not be empty".to_owned(),
        _ if name.len() > limits::LABEL_BYTES_MAX => format!("may have at most {} bytes", limits::LABEL_BYTES_MAX),
        _ if name.chars().any(char::is_control) => "must not hold control characters".to_owned(),
        _ => return None,
    };
    Some(Violation::new(pointer, detail))
}

/// Checks a failure, redacts secrets in its message, and cuts off a long one.
fn check_error(mut error: ClaimError) -> Result<ClaimError> {
    if error.class.is_empty() {
        return Err(Error::invalid("/error/class", "must not be empty"));
    }
    if error.class.len() > limits::LABEL_BYTES_MAX {
        let detail = format!("may have at most {} bytes", limits::LABEL_BYTES_MAX);
        return Err(Error::invalid("/error/class", detail));
    }
    if let Cow::Owned(redacted) = redact(&error.message) {
        error.message = redacted;
    }
    let most = error.message.floor_char_boundary(limits::FAILURE_MESSAGE_BYTES_MAX);
    error.message.truncate(most);
    Ok(error)
}
