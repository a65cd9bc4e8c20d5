//! A claim's id: opaque to callers, and encoded from handler, topic and sequence, so that a claim is found without an index.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use contract::{Error, Result, Sequence, TopicId};

/// The parts of a claim's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimId {
    pub(super) handler: String,
    pub(super) topic: TopicId,
    pub(super) sequence: Sequence,
}

/// Separates the parts; neither a handler's name nor a topic's contains it.
const SEPARATOR: char = '\n';

impl ClaimId {
    /// The id as text.
    pub(super) fn text(handler: &str, topic: &TopicId, sequence: Sequence) -> String {
        URL_SAFE_NO_PAD.encode(format!("{handler}{SEPARATOR}{topic}{SEPARATOR}{sequence}"))
    }

    /// Parses an id; refuses anything else.
    pub(super) fn parse(text: &str) -> Result<Self> {
        Self::read(text).ok_or_else(|| Error::not_found("claim"))
    }

    fn read(text: &str) -> Option<Self> {
        let plain = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let mut parts = plain.split(SEPARATOR);
        let (handler, topic, sequence) = (parts.next()?, parts.next()?, parts.next()?);
        let id = Self {
            handler: handler.to_owned(),
            topic: topic.parse().ok()?,
            sequence: sequence.parse().ok().map(Sequence)?,
        };
        // Only one spelling is accepted: neither `+7` nor a fourth part.
        (Self::text(&id.handler, &id.topic, id.sequence) == text).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_parsed_again_and_nothing_else_is_accepted() {
        let topic: TopicId = "gts.hx.core.events.topic.v1~".parse().unwrap();
        for handler in ["billing", "a/b c", "é:?#", "~"] {
            let text = ClaimId::text(handler, &topic, Sequence(12));
            assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{text}");
            assert_eq!(
                ClaimId::parse(&text).unwrap(),
                ClaimId { handler: handler.to_owned(), topic: topic.clone(), sequence: Sequence(12) }
            );
        }
        let encoded = |text: &str| URL_SAFE_NO_PAD.encode(text);
        for text in [
            String::new(),
            "billing".to_owned(),
            "%%%".to_owned(),
            encoded("billing"),
            encoded("billing\nnowhere\n1"),
            encoded("billing\ngts.hx.core.events.topic.v1~\n+1"),
            encoded("billing\ngts.hx.core.events.topic.v1~\n1\n1"),
            encoded("billing\ngts.hx.core.events.topic.v1~\n-1"),
        ] {
            assert!(ClaimId::parse(&text).is_err(), "{text}");
        }
    }
}
