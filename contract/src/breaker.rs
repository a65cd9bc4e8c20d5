//! Circuit breakers: whether the target of a subscription is called.

use crate::Timestamp;
use serde::{Deserialize, Serialize};

/// The circuit breaker of a subscription's target, as the delivering broker sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetBreaker {
    /// Its state.
    pub state: BreakerState,
    /// Failures in a row.
    pub failures: u32,
    /// Since when the target is not called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When the target is probed next; absent while a probe is in flight or due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try_at: Option<Timestamp>,
}

/// The state of a circuit breaker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BreakerState {
    /// The target is called.
    #[default]
    Closed,
    /// The target failed too often in a row and is not called for some time.
    Open,
    /// The target is probed with one delivery.
    HalfOpen,
}
