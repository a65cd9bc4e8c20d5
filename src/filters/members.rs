//! Conditions on the members an event carries in its body.
//!
//! - The body is parsed at most once per record, only when a condition needs it, and borrows from the text.

use contract::{Filter, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// The body of one record, parsed on first use.
pub(super) struct Body<'r> {
    text: &'r [u8],
    members: OnceCell<Option<Members<'r>>>,
}

impl<'r> Body<'r> {
    /// A body nobody has looked at yet.
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

    /// What kind of thing its subject is.
    pub(super) fn subject_type(&self) -> Option<&str> {
        Some(&self.members()?.subject_type.as_ref()?.0)
    }

    fn members(&self) -> Option<&Members<'r>> {
        let parse = || serde_json::from_str(str::from_utf8(self.text).ok()?).ok();
        self.members.get_or_init(parse).as_ref()
    }
}

/// The members filters look at; all others are skipped.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Members<'r> {
    #[serde(borrow, rename = "type")]
    event_type: Option<Text<'r>>,
    #[serde(borrow)]
    subject_type: Option<Text<'r>>,
    #[serde(borrow)]
    subject: Option<Text<'r>>,
    #[serde(borrow)]
    source: Option<Text<'r>>,
    #[serde(borrow)]
    correlation_id: Option<Text<'r>>,
    #[serde(borrow)]
    occurred_at: Option<Text<'r>>,
    /// Parsed only where a filter asks for labels.
    #[serde(borrow)]
    context: Option<&'r RawValue>,
}

/// A text; an `Option<Cow>` alone would always be copied.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Text<'r>(#[serde(borrow)] Cow<'r, str>);

/// What a filter wants of the body.
pub(super) struct Conditions {
    subjects: OneOf,
    sources: OneOf,
    correlation_ids: OneOf,
    labels: BTreeMap<String, OneOf>,
    occurred_from: Option<Timestamp>,
    occurred_to: Option<Timestamp>,
}

impl Conditions {
    /// The conditions of a filter; `None` where it has none.
    pub(super) fn of(filter: &Filter) -> Option<Self> {
        let mut labels: BTreeMap<String, OneOf> = BTreeMap::new();
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
            subjects: OneOf::new(&filter.subjects),
            sources: OneOf::new(&filter.sources),
            correlation_ids: OneOf::new(&filter.correlation_ids),
            labels,
            occurred_from: filter.occurred_from,
            occurred_to: filter.occurred_to,
        })
    }

    /// Whether the event meets them all.
    pub(super) fn are_met(&self, body: &Body<'_>) -> bool {
        body.members().is_some_and(|members| {
            self.subjects.take(members.subject.as_ref())
                && self.sources.take(members.source.as_ref())
                && self.correlation_ids.take(members.correlation_id.as_ref())
                && self.in_time(members)
                && self.labelled(members)
        })
    }

    fn in_time(&self, members: &Members<'_>) -> bool {
        if self.occurred_from.is_none() && self.occurred_to.is_none() {
            return true;
        }
        let occurred: Option<Timestamp> = members.occurred_at.as_ref().and_then(|text| text.0.parse().ok());
        occurred.is_some_and(|at| {
            self.occurred_from.is_none_or(|from| at >= from) && self.occurred_to.is_none_or(|to| at < to)
        })
    }

    fn labelled(&self, members: &Members<'_>) -> bool {
        if self.labels.is_empty() {
            return true;
        }
        let labels: Option<BTreeMap<Text<'_>, Text<'_>>> =
            members.context.and_then(|raw| serde_json::from_str(raw.get()).ok());
        labels.is_some_and(|labels| {
            self.labels.iter().all(|(key, wanted)| wanted.take(labels.get(&Text(Cow::Borrowed(key)))))
        })
    }
}

/// The values one member may have, sorted; none: any, or no value at all.
#[derive(Default)]
struct OneOf(Vec<String>);

impl OneOf {
    fn new(values: &[String]) -> Self {
        let mut values = values.to_vec();
        values.sort_unstable();
        Self(values)
    }

    fn take(&self, value: Option<&Text<'_>>) -> bool {
        self.0.is_empty()
            || value.is_some_and(|value| self.0.binary_search_by(|own| own.as_str().cmp(&value.0)).is_ok())
    }
}
