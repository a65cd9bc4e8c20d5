//! Checks what the configuration declares without opening its log: for `event-broker config`.

use super::{Broker, OpenError};
use crate::clock::SystemClock;
use crate::config::Config;
use crate::ledger::ReplyRecorder;
use crate::{topics, types};
use contract::{Error, NewTopic, StreamingSetting};
use log::MemoryLog;
use std::sync::Arc;

/// The declared topics and event types that a broker would refuse on an empty log: the place of each in the configuration
/// (`topics[2]`), and the reason. Nothing is written anywhere.
pub async fn check_declared(config: &Config) -> Result<Vec<(String, Error)>, OpenError> {
    let mut bare = Config { topics: Vec::new(), event_types: Vec::new(), default_topic: None, ..config.clone() };
    bare.dispatch.enabled = false;
    let broker = Broker::on_log(bare, Arc::new(MemoryLog::new()), None, Arc::new(SystemClock)).await?;
    let refused = declare_all(&broker, config).await;
    broker.close().await;
    Ok(refused)
}

async fn declare_all(broker: &Broker, config: &Config) -> Vec<(String, Error)> {
    let mut refused = Vec::new();
    let mut note =
        |path: String, outcome: contract::Result<()>| refused.extend(outcome.err().map(|error| (path, error)));
    for (index, topic) in config.topics.iter().enumerate() {
        note(format!("topics[{index}]"), declare_topic(broker, topic.clone()).await);
    }
    if let Some(id) = config.default_topic.as_ref().filter(|id| config.topics.iter().all(|topic| topic.id != **id)) {
        note("default_topic".to_owned(), declare_topic(broker, NewTopic::new(id.clone())).await);
    }
    for (index, event_type) in config.event_types.iter().enumerate() {
        let declared = types::declare(broker.type_context(), event_type.clone()).await;
        note(format!("event_types[{index}]"), declared);
    }
    refused
}

/// Registers a topic in memory, whatever its location: whether a log may be there is checked, and it is not opened.
async fn declare_topic(broker: &Broker, topic: NewTopic) -> contract::Result<()> {
    if let Some(location) = topics::check(&topic, &broker.logs)? {
        broker.logs.check_location(&location)?;
    }
    let here = NewTopic { streaming: StreamingSetting::Enabled(true), ..topic };
    topics::register(&broker.logs, here, ReplyRecorder::disabled()).await.map(drop)
}
