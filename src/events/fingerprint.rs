//! Fingerprints: names of fixed size for things with long names.
//!
//! They are truncated BLAKE3 hashes. Collisions cannot be produced on purpose, so a fingerprint identifies the thing.
//! Parts are of fixed size or length-prefixed: different lists of parts are never the same bytes. Topics are represented
//! by their number in the log, types by their tag.

use crate::ledger::{RegisteredTopic, tag, u64_from_hash, u128_from_hash};
use contract::{
    DeduplicateBy, EventTypeId, NewEvent, ProducerId, Sequence, SubjectNormalisation, SubjectTypeId, Timestamp,
    digest_form,
};
use log::TopicNumber;
use serde_json::Value;
use unicode_normalization::UnicodeNormalization;
use uuid::Uuid;

/// The event type's tag in a record's header.
pub(crate) fn type_tag(id: &EventTypeId) -> u64 {
    tag(id.key())
}

/// The subject type's tag in a record's header; 0 if there is none.
pub(crate) fn subject_type_tag(id: Option<&SubjectTypeId>) -> u64 {
    id.map_or(0, |id| tag(id.key()))
}

/// The aggregate: a subject of one type (by its tag) in one topic, normalised by the topic's rules.
pub(crate) fn aggregate_in(topic: &RegisteredTopic, subject_type_tag: u64, subject: &str) -> u128 {
    match topic.topic.definition.aggregate_normalisation.as_slice() {
        [] => aggregate(topic.number, subject_type_tag, subject),
        rules => aggregate(topic.number, subject_type_tag, &normalised(subject, rules)),
    }
}

/// A normalised subject. It is composed before and after folding, because folding may decompose a character.
fn normalised(subject: &str, rules: &[SubjectNormalisation]) -> String {
    let composed = |text: String| match rules.contains(&SubjectNormalisation::Nfc) {
        true => text.nfc().collect(),
        false => text,
    };
    let mut text = composed(subject.to_owned());
    if rules.contains(&SubjectNormalisation::CaseFold) {
        // Letter by letter, so that the position in a word does not matter (the final sigma).
        text = text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect();
        text = composed(text);
    }
    match rules.contains(&SubjectNormalisation::Trim) {
        true => text.trim().to_owned(),
        false => text,
    }
}

fn aggregate(topic: TopicNumber, subject_type_tag: u64, subject: &str) -> u128 {
    FingerprintBuilder::new(b"aggregate")
        .number(topic.0.into())
        .number(subject_type_tag)
        .bytes(subject.as_bytes())
        .finish()
}

/// The idempotency key of a submission; `None` if the caller sent nothing to identify it.
pub(crate) fn idempotency(
    event: &NewEvent,
    topic: &RegisteredTopic,
    type_tag: u64,
    producer: Option<&ProducerId>,
) -> Option<u128> {
    let by = topic.topic.definition.deduplicate_by.unwrap_or_default();
    key_by(by, (event, event.occurred_at), topic.number, type_tag, producer)
}

/// The key of the same submission without `occurredAt`.
pub(crate) fn idempotency_without_time(event: &NewEvent, topic: &RegisteredTopic, type_tag: u64) -> Option<u128> {
    let by = topic.topic.definition.deduplicate_by.unwrap_or_default();
    key_by(by, (event, None), topic.number, type_tag, None)
}

/// The key by one of the rules. Each rule has its own prefix, so keys of different rules never collide.
fn key_by(
    by: DeduplicateBy,
    (event, occurred_at): (&NewEvent, Option<Timestamp>),
    topic: TopicNumber,
    type_tag: u64,
    producer: Option<&ProducerId>,
) -> Option<u128> {
    let tenant = event.tenant.unwrap_or_default();
    if by == DeduplicateBy::Id {
        let parts = FingerprintBuilder::new(b"id alone").number(topic.0.into()).bytes(tenant.as_bytes());
        return Some(parts.bytes(event.id?.as_bytes()).finish());
    }
    if let Some(deduplication_id) = &event.deduplication_id {
        let parts = FingerprintBuilder::new(b"deduplication").number(topic.0.into()).bytes(tenant.as_bytes());
        return Some(parts.bytes(deduplication_id.as_bytes()).finish());
    }
    let occurred_at = occurred_at.map(|time| time.nanos().to_le_bytes());
    let parts = FingerprintBuilder::new(b"event").number(topic.0.into()).number(type_tag);
    Some(
        parts
            .bytes(event.id?.as_bytes())
            .bytes(tenant.as_bytes())
            .optional(occurred_at.as_ref().map(|nanos| nanos.as_slice()))
            .optional(event.subject.as_deref().map(str::as_bytes))
            .optional(producer.map(|producer| producer.0.as_bytes()))
            .finish(),
    )
}

/// The key of a line of an export: the event's id, and its sequence in the topic it was exported from.
pub(crate) fn exported_line(topic: TopicNumber, id: Uuid, sequence: Sequence) -> u128 {
    FingerprintBuilder::new(b"exported line").number(topic.0.into()).bytes(id.as_bytes()).number(sequence.0).finish()
}

/// Marks the idempotency key of a submission as one that an import has stored.
pub(crate) fn imported_key(key: u128) -> u128 {
    FingerprintBuilder::new(b"imported key").bytes(&key.to_le_bytes()).finish()
}

/// The fingerprint of `data`; equal JSON has the same one, however it is spelt.
pub(crate) fn data(value: &Value) -> u64 {
    let mut form = Vec::with_capacity(512);
    digest_form(value, &mut form);
    u64_from_hash(&form)
}

/// Collects the parts in one buffer, since hashing it at once is faster than piece by piece.
pub(crate) struct FingerprintBuilder(Vec<u8>);

impl FingerprintBuilder {
    /// Starts the fingerprint of a thing of this kind.
    pub(crate) fn new(of: &[u8]) -> Self {
        let mut parts = Vec::with_capacity(192);
        parts.extend_from_slice(of);
        Self(parts)
    }

    pub(crate) fn number(mut self, part: u64) -> Self {
        self.0.extend_from_slice(&part.to_le_bytes());
        self
    }

    pub(crate) fn bytes(mut self, part: &[u8]) -> Self {
        self = self.number(part.len() as u64);
        self.0.extend_from_slice(part);
        self
    }

    /// An absent part differs from an empty one.
    pub(crate) fn optional(mut self, part: Option<&[u8]>) -> Self {
        self.0.push(part.is_some().into());
        match part {
            Some(part) => self.bytes(part),
            None => self,
        }
    }

    pub(crate) fn finish(self) -> u128 {
        u128_from_hash(&self.0)
    }

    /// A shorter fingerprint, if it only distinguishes two things with the same name.
    pub(crate) fn half(self) -> u64 {
        u64_from_hash(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::NewEvent;
    use serde_json::value::RawValue;

    fn event() -> NewEvent {
        let data = RawValue::from_string("{}".to_owned()).unwrap();
        let mut event = NewEvent::new("gts.vendor.app.thing_done.v1".parse().unwrap(), "here", data);
        event.id = Some(Uuid::from_u128(1));
        event.subject = Some("s".to_owned());
        event
    }

    fn key_of(event: &NewEvent, producer: Option<&ProducerId>) -> Option<u128> {
        key_by(
            DeduplicateBy::Submission,
            (event, event.occurred_at),
            TopicNumber(1),
            type_tag(&event.event_type),
            producer,
        )
    }

    #[test]
    fn fingerprints_never_change() {
        let builder = || FingerprintBuilder::new(b"");
        assert_eq!(builder().finish(), 98_081_761_841_810_822_994_326_224_503_485_043_631);
        assert_eq!(builder().half(), 12_007_152_915_317_330_863);
    }

    #[test]
    fn every_member_of_the_key_counts_and_no_other() {
        let key = |change: &dyn Fn(&mut NewEvent)| {
            let mut changed = event();
            change(&mut changed);
            key_of(&changed, None)
        };
        let base = key(&|_| ());
        assert_eq!(key(&|e| e.source = "elsewhere".to_owned()), base);
        assert_eq!(key(&|e| e.correlation_id = Some("c".to_owned())), base);
        assert_eq!(key(&|e| e.event_type = "gts.vendor.app.thing_done.v1~".parse().unwrap()), base);
        let other: [&dyn Fn(&mut NewEvent); 6] = [
            &|e| e.id = Some(Uuid::from_u128(2)),
            &|e| e.tenant = Some(Uuid::from_u128(3)),
            &|e| e.subject = None,
            &|e| e.subject = Some(String::new()),
            &|e| e.occurred_at = Some("2025-12-03T12:01:59.829Z".parse().unwrap()),
            &|e| e.event_type = "gts.vendor.app.thing_done.v2".parse().unwrap(),
        ];
        for (index, change) in other.iter().enumerate() {
            assert_ne!(key(change), base, "member {index}");
        }
        assert_ne!(key_of(&event(), Some(&ProducerId("p".to_owned()))), base);
        let elsewhere =
            key_by(DeduplicateBy::Submission, (&event(), None), TopicNumber(2), type_tag(&event().event_type), None);
        assert_ne!(elsewhere, base);
        assert_eq!(key(&|e| e.id = None), None);
    }

    #[test]
    fn by_id_nothing_but_the_id_the_topic_and_the_tenant_counts() {
        let key = |change: &dyn Fn(&mut NewEvent), topic: u32, producer: Option<&str>| {
            let mut changed = event();
            change(&mut changed);
            let producer = producer.map(|producer| ProducerId(producer.to_owned()));
            key_by(
                DeduplicateBy::Id,
                (&changed, None),
                TopicNumber(topic),
                type_tag(&changed.event_type),
                producer.as_ref(),
            )
        };
        let base = key(&|_| (), 1, None);
        let same: [&dyn Fn(&mut NewEvent); 5] = [
            &|e| e.subject = None,
            &|e| e.occurred_at = Some("2025-12-03T12:01:59.829Z".parse().unwrap()),
            &|e| e.event_type = "order.created".parse().unwrap(),
            &|e| e.deduplication_id = Some("once".to_owned()),
            &|e| e.source = "elsewhere".to_owned(),
        ];
        for (index, change) in same.iter().enumerate() {
            assert_eq!(key(change, 1, Some("p")), base, "member {index}");
        }
        assert_ne!(key(&|e| e.id = Some(Uuid::from_u128(2)), 1, None), base);
        assert_ne!(key(&|e| e.tenant = Some(Uuid::from_u128(3)), 1, None), base);
        assert_ne!(key(&|_| (), 2, None), base);
        assert_ne!(key_of(&event(), None), base);
        assert_eq!(key(&|e| (e.id, e.deduplication_id) = (None, Some("once".to_owned())), 1, None), None);
    }

    #[test]
    fn aggregates_differ_by_topic_type_and_subject() {
        let base = aggregate(TopicNumber(1), 7, "a");
        assert_eq!(aggregate(TopicNumber(1), 7, "a"), base);
        for other in
            [aggregate(TopicNumber(2), 7, "a"), aggregate(TopicNumber(1), 8, "a"), aggregate(TopicNumber(1), 7, "b")]
        {
            assert_ne!(other, base);
        }
    }

    #[test]
    fn subjects_differ_unless_the_topic_says_that_they_do_not() {
        use SubjectNormalisation::{CaseFold, Nfc, Trim};
        for (one, other, rules) in [
            ("A", "a", &[CaseFold][..]),
            (" a\t", "a", &[Trim]),
            ("\u{e9}", "e\u{301}", &[Nfc]),
            ("STRASSE", "stra\u{df}e", &[CaseFold]),
            ("\u{39f}\u{394}\u{39f}\u{3a3}", "\u{3bf}\u{3b4}\u{3bf}\u{3c2}", &[CaseFold]),
            (" E\u{301}", "\u{e9} ", &[Trim, CaseFold, Nfc]),
            ("\u{130}", "i\u{307}", &[CaseFold, Nfc]),
        ] {
            assert_ne!(aggregate(TopicNumber(1), 7, one), aggregate(TopicNumber(1), 7, other));
            assert_eq!(normalised(one, rules), normalised(other, rules), "{one:?} {other:?}");
            for without in rules {
                let fewer: Vec<_> = rules.iter().filter(|rule| *rule != without).copied().collect();
                let same = normalised(one, &fewer) == normalised(other, &fewer);
                assert!(!same || one == "\u{130}", "{one:?} {other:?} are the same without {without:?}");
            }
        }
        for other in ["a/b", "a%2Fb", "a b", "a\u{a0}b"] {
            assert_ne!(normalised("ab", &[Trim, CaseFold, Nfc]), normalised(other, &[Trim, CaseFold, Nfc]));
        }
    }

    #[test]
    fn times_compare_as_instants() {
        let at = |text: &str| {
            let mut event = event();
            event.occurred_at = Some(text.parse().unwrap());
            key_of(&event, None)
        };
        assert_eq!(at("2025-12-03T12:00:00Z"), at("2025-12-03T14:00:00.000+02:00"));
        assert_ne!(at("2025-12-03T12:00:00Z"), at("2025-12-03T12:00:00.000001Z"));
    }

    #[test]
    fn a_deduplication_id_replaces_the_whole_key() {
        let with = |id: u128, subject: &str| {
            let mut event = event();
            event.deduplication_id = Some("once".to_owned());
            event.id = Some(Uuid::from_u128(id));
            event.subject = Some(subject.to_owned());
            key_of(&event, Some(&ProducerId(id.to_string())))
        };
        assert_eq!(with(1, "a"), with(2, "b"));
    }
}
