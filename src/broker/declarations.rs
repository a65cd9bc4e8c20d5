//! Registers what the configuration declares.
//!
//! - A declared topic that exists is changed to its declaration, as far as it may change; see [`topics::declare`].
//! - A declaration that is refused keeps a broker from being started, so that its operator reads why. It does not keep a broker
//!   from being opened again after an incident: that one was in use, and the log may have gone back behind its start.

use super::{Broker, OpenError};
use crate::ledger::ReplyRecorder;
use crate::{topics, types};
use contract::{Error, Kind, NewTopic};

/// What follows if a declaration is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeclarationPolicy {
    /// The broker does not open.
    Required,
    /// It is logged. Only while the log cannot be written to does the broker not open.
    Logged,
}

impl Broker {
    /// Registers what the configuration declares.
    pub(super) async fn declare(&self, policy: DeclarationPolicy) -> Result<(), OpenError> {
        let config = &self.policy.config;
        for (index, topic) in config.topics.iter().enumerate() {
            let declared = topics::declare(&self.logs, topic.clone()).await;
            policy.judge(|| format!("topics[{index}]"), declared)?;
        }
        if let Some(id) = &config.default_topic
            && self.logs.default_ledger().registry().definition(id).is_none()
        {
            let registered = topics::register(&self.logs, NewTopic::new(id.clone()), ReplyRecorder::disabled()).await;
            policy.judge(|| "default_topic".to_owned(), registered.map(drop))?;
        }
        for (index, event_type) in config.event_types.iter().enumerate() {
            let declared = types::declare(self.type_context(), event_type.clone()).await;
            policy.judge(|| format!("event_types[{index}]"), declared)?;
        }
        Ok(())
    }
}

impl DeclarationPolicy {
    fn judge(self, path: impl Fn() -> String, declared: Result<(), Error>) -> Result<(), OpenError> {
        match declared {
            Err(error) if self == Self::Logged && error.kind() != Kind::Unavailable => {
                tracing::error!(%error, declaration = path(), "a declaration of the configuration was refused");
                Ok(())
            }
            declared => declared.map_err(|error| OpenError::declared(path(), error)),
        }
    }
}
