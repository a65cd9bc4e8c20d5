//! Idempotency keys whose first request is still running in this process.
//!
//! - One request at a time has a key; a second one is refused, not queued.
//! - A key is released when its guard is dropped, however the request ended.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The keys that are in use.
#[derive(Default)]
pub(crate) struct InFlightKeys(Mutex<HashSet<u128>>);

/// The guard of a request that has a key.
pub(crate) struct InFlightGuard {
    of: Arc<InFlightKeys>,
    key: u128,
}

impl InFlightKeys {
    /// Takes a key; `None` if another request has it.
    pub(crate) fn enter(self: &Arc<Self>, key: u128) -> Option<InFlightGuard> {
        let is_free = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        is_free.then(|| InFlightGuard { of: Arc::clone(self), key })
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.of.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_taken_until_its_turn_is_over() {
        let keys = Arc::new(InFlightKeys::default());
        let turn = keys.enter(1);
        assert!(turn.is_some() && keys.enter(1).is_none() && keys.enter(2).is_some());
        drop(turn);
        assert!(keys.enter(1).is_some());
    }
}
