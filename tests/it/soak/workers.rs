//! The workers of a soak, and the receiver of the broker's deliveries.

use super::load::Load;
use super::{readers, writers};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use log::testing::SeededRandom;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The number of concurrent members of the shared group.
const MEMBERS: u64 = 3;
/// The number of concurrent streams, and of concurrent long polls.
const WAITING: u64 = 4;

/// Starts all workers; they end by themselves.
pub(super) async fn spawn_all(load: &Arc<Load>) -> Vec<JoinHandle<()>> {
    let target = receive().await;
    writers::subscribe(load, &target).await;
    let mut working = Vec::new();
    let mut seed = 0;
    macro_rules! spawn {
        ($worker:path) => {{
            seed += 1;
            let load = Arc::clone(load);
            working.push(tokio::spawn(async move { $worker(&load, SeededRandom::new(seed)).await }));
        }};
    }
    spawn!(writers::publish_singly);
    spawn!(writers::publish_batches);
    spawn!(writers::publish_again);
    spawn!(writers::publish_with_keys);
    spawn!(writers::publish_beside);
    spawn!(writers::import);
    spawn!(writers::claim);
    spawn!(writers::resolve_letters);
    spawn!(writers::change_subscriptions);
    for _ in 0..MEMBERS {
        spawn!(readers::share);
    }
    for _ in 0..WAITING {
        spawn!(readers::stream);
        spawn!(readers::poll);
    }
    spawn!(readers::project);
    spawn!(readers::consume_and_vanish);
    spawn!(readers::look_around);
    working
}

/// A receiver that fails one call in ten; returns its URL.
async fn receive() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let calls = Arc::new(AtomicU64::new(0));
    let take = move || {
        let number = calls.fetch_add(1, Ordering::Relaxed);
        async move { if number % 10 == 9 { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK } }
    };
    let router = Router::new().route("/hook", post(take));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}
