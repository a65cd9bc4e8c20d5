//! Connections are reused, shared over HTTP/2, and limited in number.

use super::receiver::{HttpReceiver, ResponderBody, answer, raw};
use super::trust::CertificateAuthority;
use super::*;
use futures_util::future::join_all;
use http::{Response, Version};
use std::sync::atomic::AtomicU64;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn one_connection_serves_many_attempts() {
    let receiver = HttpReceiver::answering(200, "ok").await;
    let deliverer = WebhookDeliverer::new(local());
    for path in ["/a", "/b"].into_iter().cycle().take(20) {
        assert_eq!(
            DeliveryCase::to(&receiver.url(path)).deliver(&deliverer.clone()).await.outcome,
            AttemptOutcome::Done
        );
    }
    assert_eq!((receiver.connections(), receiver.seen().len()), (1, 20));
    assert_eq!(receiver.seen()[0].version, Version::HTTP_11);
}

#[tokio::test]
async fn a_receiver_that_closes_gets_a_new_connection_each_time() {
    let closing = |_: &_| answer(200, &[("connection", "close")], "");
    let receiver = HttpReceiver::start(Box::new(closing), None).await;
    let deliverer = WebhookDeliverer::new(local());
    for _ in 0..5 {
        assert_eq!(DeliveryCase::to(&receiver.url("/")).deliver(&deliverer).await.outcome, AttemptOutcome::Done);
    }
    assert_eq!(receiver.connections(), 5);
}

#[tokio::test]
async fn attempts_at_the_same_time_share_one_connection_over_http_2() {
    let authority = CertificateAuthority::new();
    let receiver =
        HttpReceiver::start(Box::new(|_| answer(200, &[], "ok")), Some(authority.server(&["hooks.test"]))).await;
    let deliverer = authority.deliverer(local());
    let case = DeliveryCase::to(&format!("https://hooks.test:{}/", receiver.address.port()));
    assert_eq!(case.deliver(&deliverer).await.outcome, AttemptOutcome::Done);
    let attempts = join_all((0..30).map(|_| case.deliver(&deliverer))).await;
    assert!(attempts.iter().all(|attempt| attempt.outcome == AttemptOutcome::Done), "{attempts:?}");
    assert_eq!((receiver.connections(), receiver.seen().len()), (1, 31));
    assert!(receiver.seen().iter().all(|seen| seen.version == Version::HTTP_2));
}

#[tokio::test]
async fn over_http_2_a_gigabyte_is_cut_off_by_its_window_and_the_connection_lives_on() {
    let given = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&given);
    let answering = move |_: &_| Response::new(ResponderBody::Endless { left: 1 << 30, given: Arc::clone(&counted) });
    let authority = CertificateAuthority::new();
    let receiver = HttpReceiver::start(Box::new(answering), Some(authority.server(&["hooks.test"]))).await;
    let deliverer = authority.deliverer(local());
    let case = DeliveryCase::to(&format!("https://hooks.test:{}/", receiver.address.port()));
    for _ in 0..3 {
        let attempt = case.deliver(&deliverer).await;
        assert_eq!((attempt.outcome, class(&attempt)), (AttemptOutcome::Done, Some(ErrorClass::TooLarge)));
    }
    assert_eq!(receiver.connections(), 1);
    assert!(given.load(Ordering::Relaxed) < 1 << 24, "{given:?}");
}

#[tokio::test]
async fn targets_longest_unused_are_forgotten() {
    let deliverer = WebhookDeliverer::new(DeliveryPolicy { targets_max: 2, ..local() });
    let receivers = [
        HttpReceiver::answering(200, "").await,
        HttpReceiver::answering(200, "").await,
        HttpReceiver::answering(200, "").await,
    ];
    for receiver in &receivers {
        assert_eq!(DeliveryCase::to(&receiver.url("/")).deliver(&deliverer).await.outcome, AttemptOutcome::Done);
    }
    assert_eq!(deliverer.0.pool.targets(), 2);
    // The first was forgotten with its connection, the last was not.
    for (receiver, connections) in [(&receivers[2], 1), (&receivers[0], 2)] {
        assert_eq!(DeliveryCase::to(&receiver.url("/")).deliver(&deliverer).await.outcome, AttemptOutcome::Done);
        assert_eq!(receiver.connections(), connections);
    }
}

#[tokio::test]
async fn past_the_number_of_connections_idle_ones_give_way() {
    let deliverer = WebhookDeliverer::new(DeliveryPolicy { connections_max: 2, ..local() });
    let mut receivers = Vec::new();
    for _ in 0..8 {
        let receiver = HttpReceiver::answering(200, "").await;
        assert_eq!(DeliveryCase::to(&receiver.url("/")).deliver(&deliverer).await.outcome, AttemptOutcome::Done);
        receivers.push(receiver);
    }
    assert!(deliverer.0.pool.targets() <= 3, "{}", deliverer.0.pool.targets());
    closed(&deliverer.0.pool.open(), 3).await;
}

#[tokio::test]
async fn nothing_stays_open_behind_a_deliverer_that_is_gone() {
    let receiver = HttpReceiver::answering(200, "").await;
    let deliverer = WebhookDeliverer::new(local());
    assert_eq!(DeliveryCase::to(&receiver.url("/")).deliver(&deliverer).await.outcome, AttemptOutcome::Done);
    let open = deliverer.0.pool.open();
    assert_eq!(open.load(Ordering::Relaxed), 1);
    drop(deliverer);
    closed(&open, 0).await;
}

/// Answers the first `answered` requests of each connection, and closes it at the next without an answer.
async fn closing_behind(answered: usize, connections: &Arc<AtomicUsize>) -> String {
    let connections = Arc::clone(connections);
    raw(move |mut socket| {
        connections.fetch_add(1, Ordering::Relaxed);
        async move {
            for number in 0..=answered {
                let mut request = Vec::new();
                let mut piece = [0; 4096];
                while !request.ends_with(EVENT.as_bytes()) {
                    match socket.read(&mut piece).await {
                        Ok(0) | Err(_) => return,
                        Ok(count) => request.extend_from_slice(&piece[..count]),
                    }
                }
                if number < answered {
                    socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                }
            }
        }
    })
    .await
}

/// Every job that met a connection which its receiver was closing lost an attempt.
#[tokio::test]
async fn a_kept_connection_that_the_receiver_closes_costs_no_attempt() {
    let connections = Arc::new(AtomicUsize::new(0));
    let url = closing_behind(1, &connections).await;
    let deliverer = WebhookDeliverer::new(local());
    for number in 1..=5 {
        let attempt = DeliveryCase::to(&url).deliver(&deliverer).await;
        assert_eq!(attempt.outcome, AttemptOutcome::Done, "{number}: {attempt:?}");
    }
    assert_eq!(connections.load(Ordering::Relaxed), 5);
}

#[tokio::test]
async fn a_new_connection_that_the_receiver_closes_is_a_failure() {
    let connections = Arc::new(AtomicUsize::new(0));
    let url = closing_behind(0, &connections).await;
    let attempt = DeliveryCase::to(&url).deliver(&WebhookDeliverer::new(local())).await;
    expect_failure(&attempt, ErrorClass::Reset, true);
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

/// Waits until at most this many connections are open: they are closed by other tasks.
async fn closed(open: &AtomicUsize, at_most: usize) {
    let waiting = async {
        while open.load(Ordering::Relaxed) > at_most {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("connections stay open");
}
