//! Dead letters: claims and jobs that were given up, kept for an operator to redrive or discard.
//!
//! - A dead letter is resolved once. Who did it, when and why is in the log.
//! - A redriven event keeps its identity, and can be worked on even if later ones are finished. On request a new event replaces
//!   it: with a new id, the old one as its cause, and never taken for a duplicate.
//! - A dead letter is in the log of its event; lists merge all logs, oldest first.
//!
//! `claims` and `dispatch` decide when work becomes a dead letter.

mod decide;
mod letter_event;
mod redrivable;

use crate::dispatch::attempts_of;
use crate::events::{CallerContext, damage_detail, is_damage, removed};
use crate::ledger::{
    DeadLetterRange, DeadLetterRow, DeadLetterSortKey, Ledger, ReplyRecorder, answer_or_repeat, changed_concurrently,
    decide_until_known,
};
use crate::logs::LogRef;
use crate::secrets::InspectedParts;
use contract::{
    BulkResolveOutcome, BulkResolveRequest, Cursor, DeadLetter, DeadLetterCount, DeadLetterFilter, DeadLetterSummary,
    Error, Event, Kind, NewEvent, Page, RedriveOverride, RedriveRequest, Result, Sequence, StoredEvent, Timestamp,
    Violation, limits,
};
use decide::{CorrectedEvent, LetterAction, ResolveLetter, ResolveLetters, ResolveOutcome};
use letter_event::event_of;
use log::TopicNumber;
use redrivable::redrivable;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use uuid::Uuid;

/// Dead letters resolved by one decision.
const LETTERS_PER_DECISION: usize = 100;
/// The refusal to redrive a dead letter whose event is not stored.
const GONE: &str = "The event is not stored any more, so it cannot be tried again; discard the letter.";
/// The operator of a resolution if the request names none.
const UNKNOWN_CALLER: &str = "unknown";

/// The event of a dead letter that is shown.
#[derive(Clone)]
enum LetterEvent {
    Stored(StoredEvent),
    /// Why it cannot be read.
    Unreadable(String),
}

/// The dead letters of all logs, on behalf of one caller.
pub(crate) struct DeadLetters<'a> {
    pub(crate) context: CallerContext<'a>,
}

impl DeadLetters<'_> {
    /// Dead letters in the order in which they were given up, the page at `cursor`.
    pub(crate) async fn list(
        &self,
        filter: &DeadLetterFilter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<DeadLetter>> {
        self.context.reader.check_limit(limit)?;
        let most = limit.saturating_add(1);
        // The page itself, and one letter on the other side of the cursor, which tells whether there is a page on that side.
        let ranges = match cursor {
            None => vec![(DeadLetterRange::After(None), most)],
            Some(Cursor::After(text)) => {
                let place = place_of(text);
                vec![(DeadLetterRange::UpTo(place), 1), (DeadLetterRange::After(Some(place)), most)]
            }
            Some(Cursor::Before(text)) => {
                let place = place_of(text);
                vec![(DeadLetterRange::Before(place), most), (DeadLetterRange::From(place), 1)]
            }
        };
        let mut found = Vec::new();
        for ledger in self.context.logs.ledgers() {
            let dead_letters = ledger.dead_letters();
            for (range, max) in &ranges {
                let rows = dead_letters.in_range(filter, *range, *max);
                found.extend(rows.into_iter().map(|row| (row.sort_key(), Arc::clone(&ledger), row)));
            }
        }
        found.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let Page { items, next, prev } = Page::of(found.into_iter(), cursor, limit, |(place, ..)| place.clone());
        let mut page = Page { items: Vec::with_capacity(items.len()), next, prev };
        for (_, ledger, row) in items {
            page.items.push(self.view(&ledger, &row).await?);
        }
        Ok(page)
    }

    /// How many are open, by owner and topic.
    pub(crate) fn summary(&self) -> DeadLetterSummary {
        let mut counts = BTreeMap::new();
        for ledger in self.context.logs.ledgers() {
            for (owner, open, from, to) in ledger.dead_letters().owners() {
                let (from, to) = (Timestamp::from_millis(from), Timestamp::from_millis(to));
                let (count, oldest, newest) = counts.entry(owner.clone()).or_insert((0_u64, from, to));
                *count += open as u64;
                (*oldest, *newest) = (from.min(*oldest), to.max(*newest));
            }
        }
        let items = counts.into_iter().map(|((source, name, original_topic), (count, oldest, newest))| {
            DeadLetterCount { source, name, original_topic, count, oldest, newest }
        });
        let items: Vec<_> = items.collect();
        DeadLetterSummary { count: items.iter().map(|item| item.count).sum(), items }
    }

    /// One dead letter.
    pub(crate) async fn get(&self, id: Uuid) -> Result<DeadLetter> {
        let (ledger, row) = self.find(id).await?;
        self.view(&ledger, &row).await
    }

    /// Makes a dead letter's event available again, or publishes a corrected one in its place.
    pub(crate) async fn redrive(
        &self,
        id: Uuid,
        redrive: &RedriveRequest,
        recorder: &ReplyRecorder<DeadLetter>,
    ) -> Result<DeadLetter> {
        check_reason(redrive.reason.as_deref())?;
        decide_until_known((), |()| async move {
            let (ledger, row) = self.find(id).await?;
            decide::check_open(&row)?;
            check_lane(&ledger, &row)?;
            let stored = event_of(&ledger, &row.letter).await.map_err(|error| match is_damage(&error) {
                true => damaged(&row, error),
                false => error,
            })?;
            let Some(stored) = stored else {
                return Err(removed(&ledger, TopicNumber(row.letter.number), GONE).await);
            };
            let change = match redrive.changes.as_ref().and_then(|changes| corrected(&stored, changes).transpose()) {
                Some(event) => {
                    let has_new_data = redrive.changes.as_ref().is_some_and(|changes| changes.data.is_some());
                    let inspected = if has_new_data { InspectedParts::Data } else { InspectedParts::None };
                    let original = stored.event()?.republish_of;
                    Some(self.prepare_correction(&row, event?, (original, inspected)).await?)
                }
                None => None,
            };
            if redrive.dry_run {
                decide::check_open(&row)?;
                check_lane(&ledger, &row)?;
                let attempts = attempts_of(&ledger, &row);
                let shown = DeadLetter { attempts, ..letter_view(&row, &LetterEvent::Stored(stored)) };
                return Ok(ControlFlow::Break(shown));
            }
            let action = LetterAction::Redrive { reason: redrive.reason.clone(), change };
            self.resolve(&ledger, id, action, (LetterEvent::Stored(stored), recorder)).await.map(answer_or_repeat)
        })
        .await
    }

    /// Decides that a dead letter's event need not be worked on.
    pub(crate) async fn discard(
        &self,
        id: Uuid,
        reason: String,
        recorder: &ReplyRecorder<DeadLetter>,
    ) -> Result<DeadLetter> {
        check_needed(Some(&reason))?;
        let (ledger, row) = self.find(id).await?;
        let event = self.event_to_show(&ledger, &row).await?;
        self.resolve(&ledger, id, LetterAction::Discard { reason }, (event, recorder))
            .await?
            .ok_or_else(changed_concurrently)
    }

    /// Has a resolution decided; `None` if the corrected event must be prepared again.
    async fn resolve(
        &self,
        ledger: &Ledger,
        id: Uuid,
        action: LetterAction,
        (event, recorder): (LetterEvent, &ReplyRecorder<DeadLetter>),
    ) -> Result<Option<DeadLetter>> {
        // Read before the decision: a redriven job may be tried again at once.
        let known = ledger.dead_letters().get(id).cloned();
        let attempts = known.map(|row| attempts_of(ledger, &row)).unwrap_or_default();
        let view_of = move |outcome: &ResolveOutcome| match outcome {
            ResolveOutcome::Done(row) => Some(DeadLetter { attempts: attempts.clone(), ..letter_view(row, &event) }),
            ResolveOutcome::Stale => None,
        };
        let view_for_reply = view_of.clone();
        let recorder = recorder.map_answer(move |outcome| view_for_reply(outcome).map(Ok));
        Ok(view_of(&ledger.submit_recording(ResolveLetter { id, by: self.caller(), action }, recorder).await?))
    }

    /// Redrives every open dead letter that matches, except those that cannot be redriven; counts both.
    pub(crate) async fn redrive_all(
        &self,
        order: BulkResolveRequest,
        recorder: &ReplyRecorder<BulkResolveOutcome>,
    ) -> Result<BulkResolveOutcome> {
        check_reason(order.reason.as_deref())?;
        let reason = order.reason.clone();
        let action = || LetterAction::Redrive { reason: reason.clone(), change: None };
        self.resolve_all(order, true, action, recorder).await
    }

    /// Discards every open dead letter that matches; returns how many.
    pub(crate) async fn discard_all(
        &self,
        order: BulkResolveRequest,
        recorder: &ReplyRecorder<BulkResolveOutcome>,
    ) -> Result<BulkResolveOutcome> {
        check_needed(order.reason.as_deref())?;
        let reason = order.reason.clone().unwrap_or_default();
        self.resolve_all(order, false, || LetterAction::Discard { reason: reason.clone() }, recorder).await
    }

    /// Resolves dead letters in several decisions. The reply is stored with the last one: a request that was interrupted before is
    /// repeated for the rest.
    async fn resolve_all(
        &self,
        order: BulkResolveRequest,
        is_redrive: bool,
        action: impl Fn() -> LetterAction,
        recorder: &ReplyRecorder<BulkResolveOutcome>,
    ) -> Result<BulkResolveOutcome> {
        let BulkResolveRequest { source, name, topic, dry_run, .. } = order;
        let filter = DeadLetterFilter { source, name, topic, resolved_too: false };
        let (mut parts, mut resolved) = (Vec::new(), BulkResolveOutcome::default());
        for ledger in self.context.logs.ledgers() {
            let mut matching = ledger.dead_letters().in_range(&filter, DeadLetterRange::After(None), usize::MAX);
            if is_redrive {
                let all = matching.len();
                matching = redrivable(&ledger, matching).await?;
                resolved.skipped += (all - matching.len()) as u64;
            }
            let ids = |some: &[Arc<DeadLetterRow>]| some.iter().map(|row| row.letter.id).collect::<Vec<_>>();
            parts.extend(matching.chunks(LETTERS_PER_DECISION).map(|some| (Arc::clone(&ledger), ids(some))));
        }
        if dry_run {
            resolved.count = parts.iter().map(|(_, ids)| ids.len() as u64).sum();
            return Ok(resolved);
        }
        let last = parts.len();
        for (number, (ledger, ids)) in parts.into_iter().enumerate() {
            let recorder = if number + 1 == last { recorder.clone() } else { ReplyRecorder::disabled() };
            let recorder = recorder.map_answer(move |here: &BulkResolveOutcome| Some(Ok(sum(resolved, *here))));
            let here =
                ledger.submit_recording(ResolveLetters { ids, by: self.caller(), action: action() }, recorder).await?;
            resolved = sum(resolved, here);
        }
        Ok(resolved)
    }

    fn caller(&self) -> String {
        self.context.caller.map_or_else(|| UNKNOWN_CALLER.to_owned(), |by| by.0.clone())
    }

    async fn find(&self, id: Uuid) -> Result<(Arc<Ledger>, Arc<DeadLetterRow>)> {
        if let Some(found) = self.find_row(id) {
            return Ok(found);
        }
        // Another broker may have just appended it.
        self.context.logs.default_ledger().refresh().await?;
        self.find_row(id).ok_or_else(|| Error::not_found("dead letter"))
    }

    fn find_row(&self, id: Uuid) -> Option<(Arc<Ledger>, Arc<DeadLetterRow>)> {
        self.context.logs.ledgers().into_iter().find_map(|ledger| {
            let row = ledger.dead_letters().get(id).cloned()?;
            Some((ledger, row))
        })
    }

    /// The event of a dead letter that is shown or discarded: neither needs it, so a damaged one is left out.
    async fn event_to_show(&self, ledger: &Ledger, row: &DeadLetterRow) -> Result<LetterEvent> {
        match event_of(ledger, &row.letter).await {
            Ok(Some(event)) => Ok(LetterEvent::Stored(event)),
            Ok(None) => Ok(LetterEvent::Unreadable("The event was removed from the topic.".to_owned())),
            Err(error) if is_damage(&error) => Ok(LetterEvent::Unreadable(damage_detail(row.letter.sequence))),
            Err(error) => Err(error),
        }
    }

    /// The corrected event, prepared to be stored with the resolution.
    async fn prepare_correction(
        &self,
        row: &DeadLetterRow,
        event: NewEvent,
        (original, inspected): (Option<Sequence>, InspectedParts),
    ) -> Result<CorrectedEvent> {
        let found = self.context.logs.find(&row.letter.topic)?;
        let place: &LogRef = &found.log;
        let id = event.id.unwrap_or_default();
        let pointer = |_| "/override".to_owned();
        let produced = self.context.prepare_produced(vec![event], place, pointer, inspected).await?;
        Ok(CorrectedEvent { id, original, events: produced })
    }

    async fn view(&self, ledger: &Ledger, row: &DeadLetterRow) -> Result<DeadLetter> {
        let event = self.event_to_show(ledger, row).await?;
        Ok(DeadLetter { attempts: attempts_of(ledger, row), ..letter_view(row, &event) })
    }
}

/// The refusal to redrive a dead letter whose event is damaged.
fn damaged(row: &DeadLetterRow, error: Error) -> Error {
    let detail =
        format!("{} Until then it cannot be tried again; discard the letter.", damage_detail(row.letter.sequence));
    Error::new(Kind::Unavailable, detail).with_source(error).with_retry_after(60)
}

/// A dead letter as the API shows it, with its event.
fn letter_view(row: &DeadLetterRow, event: &LetterEvent) -> DeadLetter {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CorrelationMember {
        correlation_id: Option<String>,
    }
    let (text, event_error) = match event {
        LetterEvent::Stored(event) => (std::str::from_utf8(&event.text).ok(), None),
        LetterEvent::Unreadable(why) => (None, Some(why.clone())),
    };
    let correlated = text.and_then(|text| serde_json::from_str::<CorrelationMember>(text).ok());
    let dead_letter = &row.letter;
    DeadLetter {
        id: dead_letter.id,
        source: dead_letter.source,
        name: dead_letter.name.clone(),
        service: dead_letter.name.clone(),
        status: row.status,
        exc_class: dead_letter.error.class.clone(),
        exc_msg: dead_letter.error.message.clone(),
        original_topic: dead_letter.topic.clone(),
        sequence: dead_letter.sequence,
        event_id: dead_letter.event,
        correlation_id: correlated.and_then(|event| event.correlation_id),
        attempts: dead_letter.attempts.clone(),
        created_at: Timestamp::from_millis(row.at),
        resolution: row.resolution.clone(),
        event: text.and_then(|text| RawValue::from_string(text.to_owned()).ok()),
        event_error,
    }
}

/// The event that replaces the old one; `None` if nothing is changed.
fn corrected(stored: &StoredEvent, changes: &RedriveOverride) -> Result<Option<NewEvent>> {
    if changes.data.is_none() && !changes.new_event_id {
        return Ok(None);
    }
    let old: Event = stored.event()?;
    let causation_id = Some(old.id.to_string());
    let data = changes.data.clone().unwrap_or_else(|| old.data.clone());
    // With the members that make an event unique, this one would be a duplicate of the old one.
    let id = Some(Uuid::new_v4());
    let renamed = NewEvent { cloud_event_id: None, deduplication_id: None, ..NewEvent::from(old) };
    Ok(Some(NewEvent { id, causation_id, data, ..renamed }))
}

const fn sum(one: BulkResolveOutcome, other: BulkResolveOutcome) -> BulkResolveOutcome {
    BulkResolveOutcome { count: one.count + other.count, skipped: one.skipped + other.skipped }
}

/// The sort key of a cursor; one of another list is after all dead letters.
fn place_of(text: &str) -> DeadLetterSortKey {
    DeadLetterRow::parse_sort_key(text).unwrap_or((i64::MAX, Uuid::max()))
}

/// Refuses a dead letter whose subscription was deleted.
fn check_lane(ledger: &Ledger, row: &DeadLetterRow) -> Result<()> {
    let is_gone = row.letter.job.is_some_and(|job| ledger.dispatch().lane(job.lane).is_none());
    if is_gone { Err(decide::orphaned()) } else { Ok(()) }
}

fn check_reason(reason: Option<&str>) -> Result<()> {
    match reason {
        Some(reason) if reason.len() > limits::REASON_BYTES_MAX => {
            Err(Error::invalid("/reason", format!("may have at most {} bytes", limits::REASON_BYTES_MAX)))
        }
        Some(reason) if reason.contains('\0') => Err(Error::invalid("/reason", Violation::NUL)),
        _ => Ok(()),
    }
}

fn check_needed(reason: Option<&str>) -> Result<()> {
    match reason.map(str::trim) {
        None => Err(Error::invalid("/reason", "is missing: say why the work need not be done")),
        Some("") => Err(Error::invalid("/reason", "must not be empty: say why the work need not be done")),
        Some(_) => check_reason(reason),
    }
}
