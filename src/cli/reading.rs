//! Reading a topic's events page by page, and which of them are wanted.

use super::client::BrokerClient;
use super::error::CliResult;
use super::input::pair;
use contract::ReadOffset;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The topic of events whose type names none, unless the broker's configuration says otherwise.
pub(super) const DEFAULT_TOPIC: &str = "gts.hx.core.events.topic.v1~";

/// Which events are wanted. A repeated filter widens, different ones narrow.
#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "Filters (a repeated one widens, different ones narrow)")]
pub(super) struct FilterArgs {
    /// Events of this type; a pattern may end in *.
    #[arg(long = "type", value_name = "ID")]
    types: Vec<String>,
    /// Events about things of this type; a pattern may end in *.
    #[arg(long, value_name = "ID")]
    subject_type: Vec<String>,
    /// Events about this.
    #[arg(long, value_name = "TEXT")]
    subject: Vec<String>,
    /// This tenant's events.
    #[arg(long, value_name = "UUID")]
    tenant: Vec<String>,
    /// Events of this program.
    #[arg(long, value_name = "TEXT")]
    source: Vec<String>,
    /// Events of this business transaction.
    #[arg(long, value_name = "TEXT")]
    correlation_id: Vec<String>,
    /// Events with this label.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    context: Vec<(String, String)>,
    /// Events for which this CEL expression is true.
    #[arg(long, value_name = "CEL")]
    filter: Option<String>,
    /// Events that happened at this time (RFC 3339) or later.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Events that happened before this time (RFC 3339).
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

/// A page of a topic.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TopicPage {
    /// The events, as they are stored.
    pub(super) items: Vec<Box<RawValue>>,
    /// How far was looked.
    pub(super) next_offset: u64,
    pub(super) tail: u64,
}

impl FilterArgs {
    /// As parameters of a request.
    pub(super) fn query(&self) -> Vec<(String, String)> {
        let lists = [
            ("type", &self.types),
            ("subjectType", &self.subject_type),
            ("subject", &self.subject),
            ("tenant", &self.tenant),
            ("source", &self.source),
            ("correlationId", &self.correlation_id),
        ];
        let singles = [("filter", &self.filter), ("occurredFrom", &self.since), ("occurredTo", &self.until)];
        let mut query = Vec::new();
        for (name, values) in lists {
            query.extend(values.iter().map(|value| (name.to_owned(), value.clone())));
        }
        query.extend(self.context.iter().map(|(key, value)| (format!("context.{key}"), value.clone())));
        query.extend(singles.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?))));
        query
    }
}

/// What a read of a topic asks for.
pub(super) fn query(topic: &str, offset: ReadOffset, rest: &[(String, String)]) -> Vec<(String, String)> {
    let mut query = vec![("topic".to_owned(), topic.to_owned()), ("offset".to_owned(), offset.to_string())];
    query.extend_from_slice(rest);
    query
}

/// A page of a topic from an offset on.
pub(super) async fn page(
    client: &BrokerClient,
    topic: &str,
    offset: ReadOffset,
    rest: &[(String, String)],
) -> CliResult<TopicPage> {
    client.get(&["events"], &query(topic, offset, rest)).await
}

/// The topic's last sequence.
pub(super) async fn tail(client: &BrokerClient, topic: &str) -> CliResult<u64> {
    Ok(page(client, topic, ReadOffset::Latest, &[]).await?.tail)
}
