//! The receiver of the tables.

use crate::delivery::{
    AttemptOutcome, AttemptReport, ConsentAnswer, ConsentRequest, Deliver, DeliveryRequest, ErrorClass,
};
use contract::BoxFuture;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// A receiver with scripted responses.
#[derive(Default)]
pub(super) struct ScriptedReceiver {
    pub(super) answers: Mutex<HashMap<String, VecDeque<String>>>,
    pub(super) heard: Mutex<Vec<String>>,
    pub(super) tokens: Mutex<BTreeMap<String, Vec<u64>>>,
    /// Deliveries of replays, each with the number of the replay in the order they were first seen.
    pub(super) replayed: Mutex<(Vec<uuid::Uuid>, Vec<String>)>,
    pub(super) hanging: Mutex<HashMap<String, Arc<Notify>>>,
}

impl Deliver for ScriptedReceiver {
    fn deliver<'a>(&'a self, delivery: DeliveryRequest<'a>) -> BoxFuture<'a, AttemptReport> {
        let name = match (delivery.subscription, delivery.sequence) {
            (Some(code), Some(sequence)) => format!("{code}/{sequence}"),
            _ => format!("task:{}", delivery.target.as_str().rsplit('/').next().unwrap()),
        };
        self.tokens.lock().unwrap().entry(name.clone()).or_default().push(delivery.token.unwrap());
        if let Some(replay) = delivery.replay {
            let (known, names) = &mut *self.replayed.lock().unwrap();
            let number = known.iter().position(|it| *it == replay).unwrap_or_else(|| {
                known.push(replay);
                known.len() - 1
            });
            names.push(format!("{name}@{}", number + 1));
        }
        let answer = self.answers.lock().unwrap().get_mut(&name).and_then(VecDeque::pop_front);
        let mut answer = answer.unwrap_or_else(|| "200".to_owned());
        let hangs = (answer == "hang").then(|| {
            let notify = Arc::new(Notify::new());
            self.hanging.lock().unwrap().insert(name.clone(), Arc::clone(&notify));
            answer = "200".to_owned();
            notify
        });
        Box::pin(async move {
            if let Some(hangs) = hangs {
                hangs.notified().await;
            }
            self.heard.lock().unwrap().push(format!("{name}:{answer}"));
            assert_ne!(answer, "panic", "as the test wants it");
            attempt(&answer)
        })
    }

    fn request_consent<'a>(&'a self, _: ConsentRequest<'a>) -> BoxFuture<'a, ConsentAnswer> {
        Box::pin(async { ConsentAnswer::Granted { rate_per_minute: None } })
    }
}

fn attempt(answer: &str) -> AttemptReport {
    let (outcome, status) = match answer {
        "200" => (AttemptOutcome::Done, Some(200)),
        "410" => (AttemptOutcome::Gone, Some(410)),
        "refused" => (AttemptOutcome::Failed { retryable: false }, None),
        "down" => (AttemptOutcome::Failed { retryable: true }, None),
        text => match text.strip_prefix("defer") {
            Some(seconds) => {
                (AttemptOutcome::Deferred { after: Duration::from_secs(seconds.parse().unwrap()) }, Some(503))
            }
            None => (AttemptOutcome::Failed { retryable: true }, Some(text.parse().unwrap())),
        },
    };
    let failed = matches!(outcome, AttemptOutcome::Failed { .. });
    let error = failed.then(|| (ErrorClass::Timeout, "it failed".to_owned()));
    AttemptReport { outcome, status, duration: Duration::from_millis(3), error, response: "body".to_owned() }
}
