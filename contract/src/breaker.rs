//! Breakers: whether the target of a subscription is called.

use crate::Timestamp;
use serde::{Deserialize, Serialize};

/// Whether the target of a subscription is called, as seen by the broker that delivers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetBreaker {
    /// Whether it is.
    pub state: BreakerState,
    /// Failures in a row.
    pub failures: u32,
    /// Since when it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When it is tried next; absent while that is under way or due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try_at: Option<Timestamp>,
}

/// How a breaker stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BreakerState {
    /// The target is called.
    #[default]
    Closed,
    /// It failed too often in a row and is not called for a while.
    Open,
    /// It is tried with one delivery.
    HalfOpen,
}
