//! What the verbs of one request need: the logs, the rules, and who is calling.

use super::prepare::PublishRules;
use super::read::EventReader;
use crate::logs::Logs;
use contract::{ProducerId, Result};

/// One caller's view of the broker; publishing and importing are its methods.
#[derive(Clone, Copy)]
pub(crate) struct CallerContext<'a> {
    pub(crate) logs: &'a Logs,
    pub(crate) rules: &'a PublishRules,
    pub(crate) reader: EventReader<'a>,
    /// The header `Producer-Id`, if it was sent.
    pub(crate) caller: Option<&'a ProducerId>,
}

impl CallerContext<'_> {
    /// For one of several items of a request: refreshes, unless another item had it done, if this one is refused because of
    /// something that another broker may have changed. Returns whether the item is to be tried again.
    pub(crate) async fn refresh_once<T>(&self, item: &mut Result<T>, is_refreshed: &mut bool) -> bool {
        let Err(refusal) = item else { return false };
        if std::mem::replace(is_refreshed, true) {
            return false;
        }
        match self.logs.default_ledger().refresh_after(refusal).await {
            Ok(is_done) => {
                *is_refreshed = is_done;
                is_done
            }
            Err(error) => {
                *item = Err(error);
                false
            }
        }
    }
}
