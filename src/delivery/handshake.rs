//! The handshake: asks a receiver whether it consents to deliveries, by the CloudEvents webhook specification 1.0.
//!
//! - The request is `OPTIONS` with `WebHook-Request-Origin` and the requested rate, if any. Consent is the header
//!   `WebHook-Allowed-Origin` with our origin or `*` in a 2xx: many servers respond to `OPTIONS`, so the status alone
//!   says nothing.
//! - A receiver may name a rate, in requests per minute.

use super::WebhookDeliverer;
use super::credentials::{AuthMethod, ClientIdentity};
use super::failure::DeliveryFailure;
use super::headers::CustomHeaders;
use super::response::ReceiverResponse;
use super::target::DeliveryTarget;
use bytes::Bytes;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Request};
use http_body_util::Full;
use std::time::Duration;
use tokio::time::Instant;

/// A request for consent.
#[derive(Debug)]
pub(crate) struct ConsentRequest<'a> {
    pub(crate) target: &'a DeliveryTarget,
    pub(crate) auth: &'a AuthMethod,
    pub(crate) identity: Option<&'a ClientIdentity>,
    pub(crate) headers: &'a CustomHeaders,
    pub(crate) timeout: Duration,
    /// The origin of deliveries: the broker's DNS name.
    pub(crate) origin: &'a str,
    /// The requested rate, in requests per minute.
    pub(crate) rate_per_minute: Option<u32>,
}

/// The receiver's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConsentAnswer {
    /// It consents.
    Granted {
        /// The allowed rate per minute; `None`: not limited.
        rate_per_minute: Option<u32>,
    },
    /// It responded without consent.
    Withheld { status: u16 },
    /// It could not be reached.
    Unreachable(DeliveryFailure),
}

impl WebhookDeliverer {
    /// Asks a receiver for its consent.
    pub(crate) async fn handshake(&self, request: ConsentRequest<'_>) -> ConsentAnswer {
        match self.send_consent_request(&request).await {
            Ok(answer) => judge(&answer, request.origin),
            Err(failure) => ConsentAnswer::Unreachable(failure),
        }
    }

    async fn send_consent_request(&self, question: &ConsentRequest<'_>) -> Result<ReceiverResponse, DeliveryFailure> {
        let deadline = Instant::now() + self.allowed_timeout(question.timeout);
        let token = self.authorise(question.auth, None, deadline).await?;
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.method_mut() = Method::OPTIONS;
        *request.uri_mut() = question.target.uri().clone();
        let sent = request.headers_mut();
        sent.extend(question.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        sent.insert(USER_AGENT, self.user_agent().clone());
        if let Ok(origin) = HeaderValue::from_str(question.origin) {
            sent.insert(HeaderName::from_static("webhook-request-origin"), origin);
        }
        if let Some(rate) = question.rate_per_minute {
            sent.insert(HeaderName::from_static("webhook-request-rate"), rate.into());
        }
        if let Some(token) = &token {
            sent.insert(AUTHORIZATION, token.header.clone());
        }
        let answer = self.exchange(question.target, question.identity, request, deadline).await;
        answer.map_err(|error| error.failure)
    }
}

fn judge(answer: &ReceiverResponse, origin: &str) -> ConsentAnswer {
    let header = |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let consents =
        header("webhook-allowed-origin").is_some_and(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin));
    if !consents || !answer.status.is_success() {
        return ConsentAnswer::Withheld { status: answer.status.as_u16() };
    }
    let rate = header("webhook-allowed-rate").and_then(|rate| rate.parse().ok()).filter(|rate| *rate > 0);
    ConsentAnswer::Granted { rate_per_minute: rate }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, StatusCode};

    #[test]
    fn consent_is_a_header_and_not_a_status() {
        let token = |rate_per_minute| ConsentAnswer::Granted { rate_per_minute };
        for (status, headers, expected) in [
            (
                200,
                vec![("webhook-allowed-origin", "broker.example.com"), ("webhook-allowed-rate", "120")],
                token(Some(120)),
            ),
            (204, vec![("webhook-allowed-origin", "BROKER.example.com")], token(None)),
            (200, vec![("webhook-allowed-origin", "*"), ("webhook-allowed-rate", "*")], token(None)),
            (200, vec![("webhook-allowed-origin", "*"), ("webhook-allowed-rate", "0")], token(None)),
            (200, vec![], ConsentAnswer::Withheld { status: 200 }),
            (200, vec![("allow", "POST")], ConsentAnswer::Withheld { status: 200 }),
            (200, vec![("webhook-allowed-origin", "other.example.com")], ConsentAnswer::Withheld { status: 200 }),
            (405, vec![("webhook-allowed-origin", "*")], ConsentAnswer::Withheld { status: 405 }),
            (302, vec![("webhook-allowed-origin", "*")], ConsentAnswer::Withheld { status: 302 }),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(name, HeaderValue::from_static(value));
            }
            let status = StatusCode::from_u16(status).unwrap();
            let answer = ReceiverResponse { status, headers: map, body: Bytes::new(), is_cut: false };
            assert_eq!(judge(&answer, "broker.example.com"), expected);
        }
    }
}
