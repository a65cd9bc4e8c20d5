//! What the verbs of one request need: the logs, the rules, and who is calling.

use super::prepare::PublishRules;
use super::read::EventReader;
use crate::logs::Logs;
use contract::ProducerId;

/// One caller's view of the broker; publishing and importing are its methods.
#[derive(Clone, Copy)]
pub(crate) struct CallerContext<'a> {
    pub(crate) logs: &'a Logs,
    pub(crate) rules: &'a PublishRules,
    pub(crate) reader: EventReader<'a>,
    /// The header `Producer-Id`, if it was sent.
    pub(crate) caller: Option<&'a ProducerId>,
}
