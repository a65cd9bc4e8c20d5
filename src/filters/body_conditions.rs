//! Conditions on the members in an event's body.
//!
//! - The body is parsed at most once per record, only when a condition needs it, and borrows from the text.

use contract::{EventFilter, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// The body of one record, parsed on first use.
pub(super) struct ParsedBody<'r> {
    text: &'r [u8],
    members: OnceCell<Option<FilterMembers<'r>>>,
}

impl<'r> ParsedBody<'r> {
    /// A body that was not parsed yet.
    pub(super) fn new(text: &'r [u8]) -> Self {
        Self { text, members: OnceCell::new() }
    }

    /// The event's JSON.
    pub(super) fn text(&self) -> &'r [u8] {
        self.text
    }

    /// The event's type.
    pub(super) fn event_type(&self) -> Option<&str> {
        Some(&self.members()?.event_type.as_ref()?.0)
    }

    /// The type of its subject.
    pub(super) fn subject_type(&self) -> Option<&str> {
        Some(&self.members()?.subject_type.as_ref()?.0)
    }

    fn members(&self) -> Option<&FilterMembers<'r>> {
        let parse = || serde_json::from_str(str::from_utf8(self.text).ok()?).ok();
        self.members.get_or_init(parse).as_ref()
    }
}

/// The members that filters use; all others are skipped.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FilterMembers<'r> {
    #[serde(borrow, rename = "type")]
    event_type: Option<BorrowedText<'r>>,
    #[serde(borrow)]
    subject_type: Option<BorrowedText<'r>>,
    #[serde(borrow)]
    subject: Option<BorrowedText<'r>>,
    #[serde(borrow)]
    source: Option<BorrowedText<'r>>,
    #[serde(borrow)]
    correlation_id: Option<BorrowedText<'r>>,
    #[serde(borrow)]
    occurred_at: Option<BorrowedText<'r>>,
    /// Parsed only if a filter has labels.
    #[serde(borrow)]
    context: Option<&'r RawValue>,
}

/// A text; an `Option<Cow>` alone would always be copied.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct BorrowedText<'r>(#[serde(borrow)] Cow<'r, str>);

/// The conditions of a filter on the body.
pub(super) struct BodyConditions {
    subjects: ValueSet,
    sources: ValueSet,
    correlation_ids: ValueSet,
    labels: BTreeMap<String, ValueSet>,
    occurred_from: Option<Timestamp>,
    occurred_to: Option<Timestamp>,
}

impl BodyConditions {
    /// The conditions of a filter; `None` if it has none.
    pub(super) fn of(filter: &EventFilter) -> Option<Self> {
        let mut labels: BTreeMap<String, ValueSet> = BTreeMap::new();
        for (key, value) in &filter.context {
            labels.entry(key.clone()).or_default().0.push(value.clone());
        }
        labels.values_mut().for_each(|values| values.0.sort_unstable());
        let any = !(filter.subjects.is_empty()
            && filter.sources.is_empty()
            && filter.correlation_ids.is_empty()
            && labels.is_empty()
            && filter.occurred_from.is_none()
            && filter.occurred_to.is_none());
        any.then(|| Self {
            subjects: ValueSet::new(&filter.subjects),
            sources: ValueSet::new(&filter.sources),
            correlation_ids: ValueSet::new(&filter.correlation_ids),
            labels,
            occurred_from: filter.occurred_from,
            occurred_to: filter.occurred_to,
        })
    }

    /// Whether the event meets them all.
    pub(super) fn are_met(&self, body: &ParsedBody<'_>) -> bool {
        body.members().is_some_and(|members| {
            self.subjects.take(members.subject.as_ref())
                && self.sources.take(members.source.as_ref())
                && self.correlation_ids.take(members.correlation_id.as_ref())
                && self.in_time(members)
                && self.labelled(members)
        })
    }

    fn in_time(&self, members: &FilterMembers<'_>) -> bool {
        if self.occurred_from.is_none() && self.occurred_to.is_none() {
            return true;
        }
        let occurred: Option<Timestamp> = members.occurred_at.as_ref().and_then(|text| text.0.parse().ok());
        occurred.is_some_and(|at| {
            self.occurred_from.is_none_or(|from| at >= from) && self.occurred_to.is_none_or(|to| at < to)
        })
    }

    fn labelled(&self, members: &FilterMembers<'_>) -> bool {
        if self.labels.is_empty() {
            return true;
        }
        let labels: Option<BTreeMap<BorrowedText<'_>, BorrowedText<'_>>> =
            members.context.and_then(|raw| serde_json::from_str(raw.get()).ok());
        labels.is_some_and(|labels| {
            self.labels.iter().all(|(key, wanted)| wanted.take(labels.get(&BorrowedText(Cow::Borrowed(key)))))
        })
    }
}

/// The values that one member may have, sorted; if empty, any value or none.
#[derive(Default)]
struct ValueSet(Vec<String>);

impl ValueSet {
    fn new(values: &[String]) -> Self {
        let mut values = values.to_vec();
        values.sort_unstable();
        Self(values)
    }

    fn take(&self, value: Option<&BorrowedText<'_>>) -> bool {
        self.0.is_empty()
            || value.is_some_and(|value| self.0.binary_search_by(|own| own.as_str().cmp(&value.0)).is_ok())
    }
}
