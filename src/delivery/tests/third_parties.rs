//! Deliveries for verification by third-party libraries: `scripts/verify-webhooks` sets `EVENT_BROKER_DELIVERIES` to a
//! folder, and the received requests are also written there.

use super::receiver::{HttpReceiver, ReceivedRequest};
use super::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use contract::SecretKind;
use serde_json::json;
use std::path::Path;

#[tokio::test]
async fn deliveries_in_every_format_and_with_every_kind_of_secret() {
    let receiver = HttpReceiver::answering(200, "").await;
    let deliverer = WebhookDeliverer::new(local());
    let now = Timestamp::from_millis(jiff::Timestamp::now().as_millisecond());
    let shared = WebhookSecret::generate(SecretKind::Symmetric).unwrap();
    let paired = WebhookSecret::generate(SecretKind::Asymmetric).unwrap();
    let known = WebhookSecret::parse("", SECRET).unwrap();
    let shapes = [
        ("event", EventFormat::Envelope),
        ("data-only", EventFormat::DataOnly),
        ("cloudevents-structured", EventFormat::CloudEventsStructured),
        ("cloudevents-binary", EventFormat::CloudEventsBinary),
    ];
    for (number, (format, shape)) in shapes.into_iter().enumerate() {
        let signing = vec![known.clone(), paired.clone(), shared.clone()];
        let case = DeliveryCase { shape, signing, ..DeliveryCase::to(&receiver.url("/")) };
        assert_eq!(case.deliver_at(&deliverer, now).await.outcome, AttemptOutcome::Done);
        let seen = receiver.seen().remove(number);
        let versions: Vec<_> = seen.header("webhook-signature").split(' ').map(|part| &part[..3]).collect();
        assert_eq!(versions, ["v1,", "v1a", "v1,"]);
        if let Some(folder) = std::env::var_os("EVENT_BROKER_DELIVERIES") {
            write(Path::new(&folder), format, &seen, &[&known, &shared], &paired);
        }
    }
}

fn write(folder: &Path, format: &str, seen: &ReceivedRequest, shared: &[&WebhookSecret], paired: &WebhookSecret) {
    let headers: HashMap<_, _> =
        seen.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    let delivery = json!({
        "format": format,
        "headers": headers,
        "body": BASE64.encode(&seen.body),
        "secrets": shared.iter().map(|secret| secret.expose()).collect::<Vec<_>>(),
        "publicKey": paired.public_key(),
        "event": EVENT,
    });
    std::fs::write(folder.join(format!("{format}.json")), delivery.to_string()).unwrap();
}
