//! Hostile receivers: each misbehaviour is contained, and the attempt reports it.

use super::receiver::{HttpReceiver, ResponderBody, raw};
use super::*;
use http::Response;
use std::sync::atomic::AtomicU64;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

const SHORT: Duration = Duration::from_millis(300);

async fn attempt(url: &str) -> AttemptReport {
    DeliveryCase { timeout: SHORT, ..DeliveryCase::to(url) }.deliver(&WebhookDeliverer::new(local())).await
}

/// Reads the head of a request, and the part of the body that came with it.
async fn take(socket: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        assert_ne!(socket.read_buf(&mut head).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_receiver_that_hangs_ends_at_the_time_out() {
    let url = raw(|mut socket| async move {
        take(&mut socket).await;
        std::future::pending::<()>().await;
    })
    .await;
    let attempt = attempt(&url).await;
    expect_failure(&attempt, ErrorClass::Timeout, true);
    assert_eq!(attempt.status, None);
    assert!((SHORT..SHORT * 10).contains(&attempt.duration), "{attempt:?}");
}

#[tokio::test]
async fn a_receiver_that_drips_ends_at_the_time_out_too() {
    let url = raw(|mut socket| async move {
        take(&mut socket).await;
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n";
        let mut sent = socket.write_all(head).await;
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        while sent.is_ok() {
            tick.tick().await;
            sent = socket.write_all(b"x").await;
        }
    })
    .await;
    let attempt = attempt(&url).await;
    expect_failure(&attempt, ErrorClass::Timeout, true);
    assert_eq!(attempt.status, Some(200));
    assert!((SHORT..SHORT * 10).contains(&attempt.duration), "{attempt:?}");
    assert!(attempt.response.starts_with("xx"), "{attempt:?}");
}

#[tokio::test]
async fn a_gigabyte_is_cut_off_and_the_status_counts() {
    const GIGABYTE: usize = 1 << 30;
    let (sender, mut reported) = mpsc::unbounded_channel();
    let url = raw(move |mut socket| {
        let sender = sender.clone();
        async move {
            take(&mut socket).await;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {GIGABYTE}\r\n\r\n");
            let mut sent = 0;
            if socket.write_all(head.as_bytes()).await.is_ok() {
                while sent < GIGABYTE && socket.write_all(&[b'x'; 65_536]).await.is_ok() {
                    sent += 65_536;
                }
            }
            sender.send(sent).unwrap();
        }
    })
    .await;
    let attempt = DeliveryCase::to(&url).deliver(&WebhookDeliverer::new(local())).await;
    assert_eq!((attempt.outcome, attempt.status), (AttemptOutcome::Done, Some(200)));
    assert_eq!(class(&attempt), Some(ErrorClass::TooLarge));
    assert_eq!(attempt.response.len(), 4096);
    // No more than what sockets hold on the way.
    let sent = reported.recv().await.unwrap();
    assert!(sent < GIGABYTE / 16, "{sent}");
}

#[tokio::test]
async fn a_gigabyte_without_a_length_is_cut_off_too_and_the_connection_is_not_used_again() {
    let given = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&given);
    let answering = move |_: &_| {
        let body = ResponderBody::Endless { left: 1 << 30, given: Arc::clone(&counted) };
        Response::builder().status(500).body(body).unwrap()
    };
    let receiver = HttpReceiver::start(Box::new(answering), None).await;
    let deliverer = WebhookDeliverer::new(local());
    for connections in 1..=2 {
        let attempt = DeliveryCase::to(&receiver.url("/")).deliver(&deliverer).await;
        expect_failure(&attempt, ErrorClass::Http5xx, true);
        assert_eq!(receiver.connections(), connections);
    }
    assert!(given.load(Ordering::Relaxed) < 1 << 27);
}

#[tokio::test]
async fn a_connection_that_ends_early_is_a_reset() {
    for head in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345"] {
        let url = raw(move |mut socket| async move {
            take(&mut socket).await;
            socket.write_all(head.as_bytes()).await.unwrap();
        })
        .await;
        expect_failure(&attempt(&url).await, ErrorClass::Reset, true);
    }
}

#[tokio::test]
async fn what_is_not_http_is_a_broken_protocol() {
    for text in ["SSH-2.0-OpenSSH_9.6\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nbad header\r\n\r\n"] {
        let url = raw(move |mut socket| async move {
            take(&mut socket).await;
            socket.write_all(text.as_bytes()).await.unwrap();
            std::future::pending::<()>().await;
        })
        .await;
        expect_failure(&attempt(&url).await, ErrorClass::Protocol, true);
    }
}

#[tokio::test]
async fn a_head_without_end_is_too_large() {
    let url = raw(|mut socket| async move {
        take(&mut socket).await;
        let mut sent = socket.write_all(b"HTTP/1.1 200 OK\r\nx-long: ").await;
        while sent.is_ok() {
            sent = socket.write_all(&[b'x'; 4096]).await;
        }
    })
    .await;
    let attempt = DeliveryCase::to(&url).deliver(&WebhookDeliverer::new(local())).await;
    expect_failure(&attempt, ErrorClass::TooLarge, true);
}

#[tokio::test]
async fn nobody_there_is_a_failure_to_connect() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let attempt = attempt(&url).await;
    expect_failure(&attempt, ErrorClass::Connect, true);
    assert!(attempt.error.unwrap().1.contains("refused"));
}

#[tokio::test]
async fn a_name_nobody_knows_is_a_failure_of_dns() {
    let deliverer = WebhookDeliverer::with_resolver(local(), ResolverTable::of(&[("empty.test", &[&[]])]));
    for host in ["nowhere.test", "empty.test"] {
        let attempt = DeliveryCase::to(&format!("http://{host}/")).deliver(&deliverer).await;
        expect_failure(&attempt, ErrorClass::Dns, true);
    }
}

#[tokio::test]
async fn where_inner_networks_are_not_called_nobody_learns_which_names_they_have() {
    let names = ResolverTable::of(&[("inner.test", &[&["10.0.0.1"]]), ("empty.test", &[&[]])]);
    let deliverer = WebhookDeliverer::with_resolver(DeliveryPolicy::default(), names);
    let mut reported = Vec::new();
    for host in ["nowhere.test", "empty.test", "inner.test"] {
        let attempt = DeliveryCase::to(&format!("http://{host}/")).deliver(&deliverer).await;
        expect_failure(&attempt, ErrorClass::TargetRefused, true);
        reported.push(attempt.error);
    }
    assert!(reported.iter().all(|one| *one == reported[0]), "{reported:?}");
}

#[tokio::test]
async fn only_hosts_of_the_list_are_called() {
    let receiver = HttpReceiver::answering(200, "").await;
    let port = receiver.address.port();
    let policy = |hosts: &[&str]| DeliveryPolicy {
        allowed_hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        ..local()
    };
    for (hosts, host, is_called) in [
        (vec![], "127.0.0.1", true),
        (vec!["127.0.0.1"], "127.0.0.1", true),
        (vec!["LOCALHOST"], "localhost", true),
        (vec!["hooks.test"], "127.0.0.1", false),
        (vec!["*.localhost"], "localhost", false),
    ] {
        let attempt =
            DeliveryCase::to(&format!("http://{host}:{port}/")).deliver(&WebhookDeliverer::new(policy(&hosts))).await;
        assert_eq!(attempt.outcome == AttemptOutcome::Done, is_called, "{hosts:?} {host}: {attempt:?}");
    }
    let target = DeliveryTarget::parse("", "https://a.hooks.test/").unwrap();
    assert!(target.is_among(&["*.hooks.test".to_owned()]) && !target.is_among(&["*.ooks.test".to_owned()]));
}

#[tokio::test]
async fn the_machines_resolver_is_asked_for_names() {
    let receiver = HttpReceiver::answering(200, "").await;
    let url = format!("http://localhost:{}/", receiver.address.port());
    assert_eq!(DeliveryCase::to(&url).deliver(&WebhookDeliverer::new(local())).await.outcome, AttemptOutcome::Done);
    let attempt = DeliveryCase::to(&url).deliver(&WebhookDeliverer::new(DeliveryPolicy::default())).await;
    expect_failure(&attempt, ErrorClass::TargetRefused, true);
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_name_that_resolves_inside_is_refused_and_nothing_is_connected_to() {
    let receiver = HttpReceiver::answering(200, "").await;
    let names = ResolverTable::of(&[
        ("loopback.test", &[&["127.0.0.1"]]),
        ("mapped.test", &[&["::ffff:127.0.0.1"]]),
        ("metadata.test", &[&["169.254.169.254"]]),
        ("several.test", &[&["10.0.0.1", "127.0.0.1", "::1", "fd00::1"]]),
    ]);
    let public_only = WebhookDeliverer::with_resolver(DeliveryPolicy::default(), names);
    for host in ["loopback.test", "mapped.test", "metadata.test", "several.test"] {
        let attempt =
            DeliveryCase::to(&format!("http://{host}:{}/", receiver.address.port())).deliver(&public_only).await;
        expect_failure(&attempt, ErrorClass::TargetRefused, true);
        let message = attempt.error.unwrap().1;
        assert!(!message.contains("127.") && !message.contains("169."), "{message}");
    }
    // An address in the URL is refused without asking anybody, and stays so.
    let attempt = DeliveryCase::to(&receiver.url("/")).deliver(&public_only).await;
    expect_failure(&attempt, ErrorClass::TargetRefused, false);
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_name_is_resolved_once_per_connection_so_it_cannot_change_its_meaning_in_between() {
    let receiver = HttpReceiver::answering(200, "").await;
    // The second answer leads nowhere: whoever asks twice fails.
    let names = ResolverTable::of(&[("rebinding.test", &[&["127.0.0.1"], &[]])]);
    let deliverer = WebhookDeliverer::with_resolver(local(), Arc::<ResolverTable>::clone(&names));
    let case = DeliveryCase::to(&format!("http://rebinding.test:{}/", receiver.address.port()));
    for _ in 0..3 {
        assert_eq!(case.deliver(&deliverer).await.outcome, AttemptOutcome::Done);
    }
    assert_eq!((names.asked(), receiver.connections()), (1, 1));
    assert_eq!(receiver.seen()[0].header("host"), format!("rebinding.test:{}", receiver.address.port()));
}

#[tokio::test]
async fn a_receiver_that_never_shakes_hands_ends_at_the_time_for_connecting() {
    let url = raw(|socket| async move {
        let _held = socket;
        std::future::pending::<()>().await;
    })
    .await;
    let deliverer = WebhookDeliverer::new(DeliveryPolicy { connect_timeout: SHORT, ..local() });
    let attempt = DeliveryCase::to(&url.replace("http:", "https:")).deliver(&deliverer).await;
    expect_failure(&attempt, ErrorClass::Timeout, true);
    assert!((SHORT..SHORT * 10).contains(&attempt.duration), "{attempt:?}");
}

#[tokio::test]
async fn no_attempt_takes_longer_than_the_operator_allows() {
    let url = raw(|socket| async move {
        let _held = socket;
        std::future::pending::<()>().await;
    })
    .await;
    let deliverer = WebhookDeliverer::new(DeliveryPolicy { timeout_max: SHORT, ..local() });
    let attempt =
        DeliveryCase { timeout: Duration::from_secs(3600), ..DeliveryCase::to(&url) }.deliver(&deliverer).await;
    expect_failure(&attempt, ErrorClass::Timeout, true);
}
