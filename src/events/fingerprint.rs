//! Fingerprints: fixed-size names for things whose own names are long.
//!
//! BLAKE3, cut short. Nobody can make two things share one on purpose, so a fingerprint stands for the thing itself.
//! Parts are length-prefixed: no two different lists of parts are the same bytes.

use contract::{EventTypeId, NewEvent, ProducerId, SubjectTypeId, TopicId, digest_form};
use serde_json::Value;

/// The event type's tag in a record's header.
pub(crate) fn type_tag(id: &EventTypeId) -> u64 {
    tag(id.key())
}

/// The subject type's tag in a record's header; 0 where there is none.
pub(crate) fn subject_type_tag(id: Option<&SubjectTypeId>) -> u64 {
    id.map_or(0, |id| tag(id.key()))
}

/// The aggregate (topic, subject type, subject).
pub(crate) fn aggregate(topic: &TopicId, subject_type: Option<&SubjectTypeId>, subject: &str) -> u128 {
    Parts::new("aggregate").text(topic.as_str()).optional(subject_type.map(SubjectTypeId::key)).text(subject).finish()
}

/// What makes two submissions one; `None` where nothing the caller sent can.
pub(crate) fn idempotency(event: &NewEvent, topic: &TopicId, producer: Option<&ProducerId>) -> Option<u128> {
    let tenant = event.tenant.map_or([0; 16], |tenant| *tenant.as_bytes());
    if let Some(deduplication_id) = &event.deduplication_id {
        return Some(Parts::new("deduplication").text(deduplication_id).text(topic.as_str()).bytes(&tenant).finish());
    }
    let occurred_at = event.occurred_at.map(|time| time.nanos().to_le_bytes());
    Some(
        Parts::new("event")
            .bytes(event.id?.as_bytes())
            .text(topic.as_str())
            .text(event.event_type.key())
            .bytes(&tenant)
            .optional(event.subject.as_deref())
            .bytes(occurred_at.as_ref().map_or(&[], |nanos| nanos.as_slice()))
            .optional(producer.map(|producer| producer.0.as_str()))
            .finish(),
    )
}

/// `data`, such that equal JSON has equal fingerprints however it is spelt.
pub(crate) fn data(value: &Value) -> u64 {
    let mut form = Vec::with_capacity(512);
    digest_form(value, &mut form);
    first_word(blake3::hash(&form).as_bytes())
}

fn tag(key: &str) -> u64 {
    first_word(blake3::hash(key.as_bytes()).as_bytes())
}

fn first_word(hash: &[u8; 32]) -> u64 {
    hash.as_chunks::<8>().0.first().map_or(0, |word| u64::from_le_bytes(*word))
}

struct Parts(blake3::Hasher);

impl Parts {
    fn new(of: &str) -> Self {
        Self(blake3::Hasher::new()).text(of)
    }

    fn bytes(mut self, part: &[u8]) -> Self {
        self.0.update(&(part.len() as u64).to_le_bytes()).update(part);
        self
    }

    fn text(self, part: &str) -> Self {
        self.bytes(part.as_bytes())
    }

    /// An absent part differs from an empty one.
    fn optional(self, part: Option<&str>) -> Self {
        match part {
            Some(part) => self.bytes(&[1]).text(part),
            None => self.bytes(&[0]),
        }
    }

    fn finish(self) -> u128 {
        let hash = self.0.finalize();
        hash.as_bytes().as_chunks::<16>().0.first().map_or(0, |half| u128::from_le_bytes(*half))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::NewEvent;
    use serde_json::value::RawValue;
    use uuid::Uuid;

    fn event() -> NewEvent {
        let data = RawValue::from_string("{}".to_owned()).unwrap();
        let mut event = NewEvent::new("gts.vendor.app.thing_done.v1".parse().unwrap(), "here", data);
        event.id = Some(Uuid::from_u128(1));
        event.subject = Some("s".to_owned());
        event
    }

    #[test]
    fn every_member_of_the_key_counts_and_no_other() {
        let topic: TopicId = "gts.hx.core.events.topic.v1~".parse().unwrap();
        let key = |change: &dyn Fn(&mut NewEvent)| {
            let mut changed = event();
            change(&mut changed);
            idempotency(&changed, &topic, None)
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
        assert_ne!(idempotency(&event(), &topic, Some(&ProducerId("p".to_owned()))), base);
        assert_eq!(key(&|e| e.id = None), None);
    }

    #[test]
    fn times_compare_as_instants() {
        let topic: TopicId = "gts.hx.core.events.topic.v1~".parse().unwrap();
        let at = |text: &str| {
            let mut event = event();
            event.occurred_at = Some(text.parse().unwrap());
            idempotency(&event, &topic, None)
        };
        assert_eq!(at("2025-12-03T12:00:00Z"), at("2025-12-03T14:00:00.000+02:00"));
        assert_ne!(at("2025-12-03T12:00:00Z"), at("2025-12-03T12:00:00.000001Z"));
    }

    #[test]
    fn a_deduplication_id_stands_in_for_the_whole_key() {
        let topic: TopicId = "gts.hx.core.events.topic.v1~".parse().unwrap();
        let with = |id: u128, subject: &str| {
            let mut event = event();
            event.deduplication_id = Some("once".to_owned());
            event.id = Some(Uuid::from_u128(id));
            event.subject = Some(subject.to_owned());
            idempotency(&event, &topic, Some(&ProducerId(id.to_string())))
        };
        assert_eq!(with(1, "a"), with(2, "b"));
    }
}
