//! Pools as the document shows them.

use super::rows;
use super::subscriptions::code;
use crate::rest::openapi::examples::page_of;
use crate::rest::openapi::examples::subscriptions::{self as examples, POOL};
use crate::rest::openapi::shape::{Shape, number, object};
use contract::limits;
use serde_json::json;

pub(super) fn all() -> Vec<(&'static str, Shape)> {
    vec![
        ("Pool", pool()),
        ("Pools", rows("Pool", "A page of pools.", page_of(&examples::pool()))),
        ("PoolChange", pool_change()),
    ]
}

fn concurrency() -> Shape {
    number(1..=limits::POOL_CONCURRENCY_MAX.into(), "Most deliveries at a time.").like(20)
}

fn rate() -> Shape {
    number(1..=limits::POOL_RATE_MAX.into(), "Most deliveries begun in a minute; absent: as many as it takes.")
        .like(600)
}

fn pool() -> Shape {
    object("Concurrency and rate that subscriptions share.")
        .must("code", code("Its name.", POOL))
        .must("concurrency", concurrency())
        .or_null("ratePerMinute", rate())
        .closed()
        .like(examples::pool())
}

fn pool_change() -> Shape {
    object("What is to be different about a pool.")
        .may("concurrency", concurrency())
        .or_null("ratePerMinute", rate())
        .closed()
        .like(json!({"concurrency": 40}))
}
