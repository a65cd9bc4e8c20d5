//! Pools.

use super::list_page;
use super::subscriptions::code;
use crate::rest::openapi::examples::page_of;
use crate::rest::openapi::examples::subscriptions::{self as examples, POOL};
use crate::rest::openapi::schema_spec::{SchemaSpec, number, object};
use contract::limits;
use serde_json::json;

pub(super) fn all() -> Vec<(&'static str, SchemaSpec)> {
    vec![
        ("Pool", pool()),
        ("Pools", list_page("Pool", "A page of pools.", page_of(&examples::pool()))),
        ("PoolChange", pool_change()),
    ]
}

fn concurrency() -> SchemaSpec {
    number(1..=limits::POOL_CONCURRENCY_MAX.into(), "Most concurrent deliveries.").example(20)
}

fn rate() -> SchemaSpec {
    number(1..=limits::POOL_RATE_MAX.into(), "Most deliveries started in a minute. Default: no limit.").example(600)
}

fn pool() -> SchemaSpec {
    object("Concurrency and rate that subscriptions share.")
        .required("code", code("The code of the pool.", POOL))
        .required("concurrency", concurrency())
        .optional_nullable("ratePerMinute", rate())
        .closed()
        .example(examples::pool())
}

fn pool_change() -> SchemaSpec {
    object("A change of a pool.")
        .optional("concurrency", concurrency())
        .optional_nullable("ratePerMinute", rate())
        .closed()
        .example(json!({"concurrency": 40}))
}
