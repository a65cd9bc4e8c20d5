//! A claim's id: opaque to callers, and made of handler, topic and sequence, so that it is found again without an index.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use contract::{Error, Result, Sequence, TopicId};

/// What a claim's id stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimId {
    pub(super) handler: String,
    pub(super) topic: TopicId,
    pub(super) sequence: Sequence,
}

/// Stands between the parts; neither a handler's name nor a topic's has one.
const BETWEEN: char = '\n';

impl ClaimId {
    /// As callers see it.
    pub(super) fn text(handler: &str, topic: &TopicId, sequence: Sequence) -> String {
        URL_SAFE_NO_PAD.encode(format!("{handler}{BETWEEN}{topic}{BETWEEN}{sequence}"))
    }

    /// From what a caller says; anything else is no claim's id.
    pub(super) fn parse(text: &str) -> Result<Self> {
        Self::read(text).ok_or_else(|| Error::not_found("claim"))
    }

    fn read(text: &str) -> Option<Self> {
        let plain = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let mut parts = plain.split(BETWEEN);
        let (handler, topic, sequence) = (parts.next()?, parts.next()?, parts.next()?);
        let id = Self {
            handler: handler.to_owned(),
            topic: topic.parse().ok()?,
            sequence: sequence.parse().ok().map(Sequence)?,
        };
        // One spelling each: neither `+7` nor a fourth part.
        (Self::text(&id.handler, &id.topic, id.sequence) == text).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_again_and_nothing_else_passes_for_one() {
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
