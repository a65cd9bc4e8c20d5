//! Dead letters: work given up, kept for a person to redrive or discard.
//!
//! - A letter is dealt with once. Who did it, when and why is a fact of the log.
//! - A redriven event keeps its identity, and may be worked on even where later ones are finished. Only who asks for it
//!   gets a new event in the place of the old one: under a new id, caused by the old one, never taken for a duplicate.
//! - A letter lives in the log of its event; lists go over all logs, oldest first.
//!
//! What leads to a letter is decided where the work is (`claims`).

mod decide;

use crate::clock::Clock;
use crate::events::{Intake, Policy, Reader, stored_at};
use crate::ledger::{Keep, Ledger, LetterRow};
use crate::logs::{Logs, Place};
use contract::{
    Cursor, DeadLetter, Error, Event, Kind, LetterCount, LetterFilter, LetterOrder, LetterSummary, NewEvent, Page,
    ProducerId, Redrive, RedriveOverride, Result, StoredEvent, Timestamp, Violation, limits,
};
use decide::{Change, Deal, Dealt, Deed, Many};
use log::TopicNumber;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// How often a request is decided anew because definitions changed under it, before it is told to come back.
const TRIES_MAX: usize = 8;
/// Letters dealt with by one decision.
const LETTERS_PER_DECISION: usize = 100;
/// Who deals with a letter where nobody says.
const NOBODY: &str = "unknown";

/// The dead letters of all logs, on behalf of one caller.
pub(crate) struct DeadLetters<'a> {
    pub(crate) logs: &'a Logs,
    pub(crate) policy: &'a Policy,
    pub(crate) reader: Reader<'a>,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) by: Option<&'a ProducerId>,
}

impl DeadLetters<'_> {
    /// Letters in the order they were given up, the page at `cursor`.
    pub(crate) async fn list(
        &self,
        filter: &LetterFilter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<DeadLetter>> {
        self.reader.check_limit(limit)?;
        let mut found = Vec::new();
        for ledger in self.logs.ledgers() {
            let letters = ledger.letters();
            let fitting = letters.all().filter(|row| row.fits(filter));
            found.extend(fitting.map(|row| (row.place(), Arc::clone(&ledger), Arc::clone(row))));
        }
        found.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let Page { items, next, prev } = Page::of(found.into_iter(), cursor, limit, |(place, ..)| place.clone());
        let mut page = Page { items: Vec::with_capacity(items.len()), next, prev };
        for (_, ledger, row) in items {
            page.items.push(self.view(&ledger, &row).await?);
        }
        Ok(page)
    }

    /// How many are open, and whose they are.
    pub(crate) fn summary(&self) -> LetterSummary {
        let mut counts = BTreeMap::new();
        let filter = LetterFilter::default();
        for ledger in self.logs.ledgers() {
            for row in ledger.letters().all().filter(|row| row.fits(&filter)) {
                let (letter, at) = (&row.letter, Timestamp::from_millis(row.at));
                let key = (letter.source, letter.name.clone(), letter.topic.clone());
                let (count, oldest, newest) = counts.entry(key).or_insert((0_u64, at, at));
                *count += 1;
                (*oldest, *newest) = (at.min(*oldest), at.max(*newest));
            }
        }
        let items = counts.into_iter().map(|((source, name, original_topic), (count, oldest, newest))| LetterCount {
            source,
            name,
            original_topic,
            count,
            oldest,
            newest,
        });
        let items: Vec<_> = items.collect();
        LetterSummary { count: items.iter().map(|item| item.count).sum(), items }
    }

    /// One letter.
    pub(crate) async fn get(&self, id: Uuid) -> Result<DeadLetter> {
        let (ledger, row) = self.find(id).await?;
        self.view(&ledger, &row).await
    }

    /// Lets a letter's event be worked on again, or publishes a corrected one in its place.
    pub(crate) async fn redrive(&self, id: Uuid, redrive: &Redrive, keep: &Keep<DeadLetter>) -> Result<DeadLetter> {
        check_reason(redrive.reason.as_deref())?;
        for _ in 0..TRIES_MAX {
            let (ledger, row) = self.find(id).await?;
            let stored = self.event_of(&ledger, &row).await?.ok_or_else(gone)?;
            let change = match redrive.changes.as_ref().and_then(|changes| corrected(&stored, changes).transpose()) {
                Some(event) => Some(self.change(&row, event?).await?),
                None => None,
            };
            if redrive.dry_run {
                decide::check_open(&row)?;
                return Ok(shown(&row, Some(&stored)));
            }
            let deed = Deed::Redrive { reason: redrive.reason.clone(), change };
            if let Some(letter) = self.deal(&ledger, id, deed, (Some(stored), keep)).await? {
                return Ok(letter);
            }
        }
        Err(changing())
    }

    /// Decides that a letter's event need not be worked on.
    pub(crate) async fn discard(&self, id: Uuid, reason: String, keep: &Keep<DeadLetter>) -> Result<DeadLetter> {
        check_needed(Some(&reason))?;
        let (ledger, row) = self.find(id).await?;
        let event = self.event_of(&ledger, &row).await?;
        self.deal(&ledger, id, Deed::Discard { reason }, (event, keep)).await?.ok_or_else(changing)
    }

    /// Has a deed decided about the letter of an event; nothing where it must be prepared again.
    async fn deal(
        &self,
        ledger: &Ledger,
        id: Uuid,
        deed: Deed,
        (event, keep): (Option<StoredEvent>, &Keep<DeadLetter>),
    ) -> Result<Option<DeadLetter>> {
        let told = move |dealt: &Dealt| match dealt {
            Dealt::Done(row) => Some(shown(row, event.as_ref())),
            Dealt::Stale => None,
        };
        let seen = told.clone();
        let keep = keep.seen_through(move |dealt| seen(dealt).map(Ok));
        Ok(told(&ledger.submit_keeping(Deal { id, by: self.by(), deed }, keep).await?))
    }

    /// Redrives every open letter that is meant, but for those whose events are gone; answers how many.
    pub(crate) async fn redrive_all(&self, order: LetterOrder, keep: &Keep<u64>) -> Result<u64> {
        check_reason(order.reason.as_deref())?;
        let reason = order.reason.clone();
        self.deal_with_all(
            order,
            |row, ledger| !is_trimmed(row, ledger),
            || Deed::Redrive { reason: reason.clone(), change: None },
            keep,
        )
        .await
    }

    /// Discards every open letter that is meant; answers how many.
    pub(crate) async fn discard_all(&self, order: LetterOrder, keep: &Keep<u64>) -> Result<u64> {
        check_needed(order.reason.as_deref())?;
        let reason = order.reason.clone().unwrap_or_default();
        self.deal_with_all(order, |_, _| true, || Deed::Discard { reason: reason.clone() }, keep).await
    }

    /// Deals with some letters after the other. The answer is kept with the last of them: a request that broke off before
    /// is carried out on what is left.
    async fn deal_with_all(
        &self,
        order: LetterOrder,
        may: impl Fn(&LetterRow, &Ledger) -> bool,
        deed: impl Fn() -> Deed,
        keep: &Keep<u64>,
    ) -> Result<u64> {
        let LetterOrder { source, name, topic, dry_run, .. } = order;
        let filter = LetterFilter { source, name, topic, resolved_too: false };
        let mut parts = Vec::new();
        for ledger in self.logs.ledgers() {
            let rows: Vec<_> = ledger.letters().all().filter(|row| row.fits(&filter)).cloned().collect();
            let mut meant: Vec<_> = rows.iter().filter(|row| may(row, &ledger)).collect();
            meant.sort_unstable_by_key(|row| (row.at, row.letter.id));
            let ids = |some: &[&Arc<LetterRow>]| some.iter().map(|row| row.letter.id).collect::<Vec<_>>();
            parts.extend(meant.chunks(LETTERS_PER_DECISION).map(|some| (Arc::clone(&ledger), ids(some))));
        }
        if dry_run {
            return Ok(parts.iter().map(|(_, ids)| ids.len() as u64).sum());
        }
        let (mut count, last) = (0, parts.len());
        for (number, (ledger, ids)) in parts.into_iter().enumerate() {
            let keep = if number + 1 == last { keep.clone() } else { Keep::nothing() };
            let keep = keep.seen_through(move |here: &u64| Some(Ok(count + here)));
            count += ledger.submit_keeping(Many { ids, by: self.by(), deed: deed() }, keep).await?;
        }
        Ok(count)
    }

    fn by(&self) -> String {
        self.by.map_or_else(|| NOBODY.to_owned(), |by| by.0.clone())
    }

    async fn find(&self, id: Uuid) -> Result<(Arc<Ledger>, Arc<LetterRow>)> {
        if let Some(found) = self.look_for(id) {
            return Ok(found);
        }
        // Another broker may have given it up a moment ago.
        self.logs.default_ledger().refresh().await?;
        self.look_for(id).ok_or_else(|| Error::not_found("dead letter"))
    }

    fn look_for(&self, id: Uuid) -> Option<(Arc<Ledger>, Arc<LetterRow>)> {
        self.logs.ledgers().into_iter().find_map(|ledger| {
            let row = ledger.letters().get(id).cloned()?;
            Some((ledger, row))
        })
    }

    async fn event_of(&self, ledger: &Ledger, row: &LetterRow) -> Result<Option<StoredEvent>> {
        let stored = stored_at(ledger, TopicNumber(row.letter.number), row.letter.sequence).await?;
        Ok(stored.filter(|event| event.sequence == row.letter.sequence))
    }

    /// The corrected event, ready to be stored with the letter's end.
    async fn change(&self, row: &LetterRow, event: NewEvent) -> Result<Change> {
        let found = self.logs.find(&row.letter.topic)?;
        let place: &Place = &found.place;
        let id = event.id.unwrap_or_default();
        let intake = Intake { logs: self.logs, policy: self.policy, clock: self.clock, producer: self.by };
        let bundle = intake.bundle(vec![event], place, |_| "/override".to_owned()).await?;
        Ok(Change { id, bundle })
    }

    async fn view(&self, ledger: &Ledger, row: &LetterRow) -> Result<DeadLetter> {
        Ok(shown(row, self.event_of(ledger, row).await?.as_ref()))
    }
}

/// A letter as it is shown, with its event.
fn shown(row: &LetterRow, event: Option<&StoredEvent>) -> DeadLetter {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Correlated {
        correlation_id: Option<String>,
    }
    let text = event.and_then(|event| std::str::from_utf8(&event.text).ok());
    let correlated = text.and_then(|text| serde_json::from_str::<Correlated>(text).ok());
    let letter = &row.letter;
    DeadLetter {
        id: letter.id,
        source: letter.source,
        name: letter.name.clone(),
        service: letter.name.clone(),
        status: row.status,
        exc_class: letter.error.class.clone(),
        exc_msg: letter.error.message.clone(),
        original_topic: letter.topic.clone(),
        sequence: letter.sequence,
        event_id: letter.event,
        correlation_id: correlated.and_then(|event| event.correlation_id),
        attempts: letter.attempts.clone(),
        created_at: Timestamp::from_millis(row.at),
        resolution: row.resolution.clone(),
        event: text.and_then(|text| RawValue::from_string(text.to_owned()).ok()),
    }
}

fn changing() -> Error {
    Error::new(Kind::Overloaded, "Topics or types keep changing under this request; try again.").with_retry_after(1)
}

/// The event that takes the place of one given up; `None` where nothing is to be different.
fn corrected(stored: &StoredEvent, changes: &RedriveOverride) -> Result<Option<NewEvent>> {
    if changes.data.is_none() && !changes.new_event_id {
        return Ok(None);
    }
    let old: Event = stored.event()?;
    let causation_id = Some(old.id.to_string());
    let data = changes.data.clone().unwrap_or_else(|| old.data.clone());
    // What made the old one unlike any other would make this one its duplicate.
    let id = Some(Uuid::new_v4());
    Ok(Some(NewEvent { id, causation_id, data, deduplication_id: None, ..NewEvent::from(old) }))
}

/// Whether a letter's event is gone, as far as the state can tell.
fn is_trimmed(row: &LetterRow, ledger: &Ledger) -> bool {
    ledger.claims().trimmed(&row.letter.name, row.letter.number) >= row.letter.sequence
}

fn gone() -> Error {
    let detail = "Retention has removed the event, so it cannot be tried again; discard the letter.";
    Error::new(Kind::Trimmed, detail)
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
