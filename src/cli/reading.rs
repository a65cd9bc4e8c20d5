//! Reading a topic's events page by page, with filters.

use super::client::BrokerClient;
use super::error::CliResult;
use super::input::pair;
use contract::ReadOffset;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The topic of events whose type names no topic, unless the broker's configuration names another one.
pub(super) const DEFAULT_TOPIC: &str = "gts.hx.core.events.topic.v1~";

/// Filters. A repeated filter selects more events, different filters select fewer.
#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "Filters (a repeated filter selects more events, different filters select fewer)")]
pub(super) struct FilterArgs {
    /// Only events of this type; a pattern may end in *.
    #[arg(long = "type", value_name = "ID")]
    types: Vec<String>,
    /// Only events about subjects of this type; a pattern may end in *.
    #[arg(long, value_name = "ID")]
    subject_type: Vec<String>,
    /// Only events about this subject.
    #[arg(long, value_name = "TEXT")]
    subject: Vec<String>,
    /// Only this tenant's events.
    #[arg(long, value_name = "UUID")]
    tenant: Vec<String>,
    /// Only events from this source.
    #[arg(long, value_name = "TEXT")]
    source: Vec<String>,
    /// Only events with this correlation id.
    #[arg(long, value_name = "TEXT")]
    correlation_id: Vec<String>,
    /// Only events with this context label.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    context: Vec<(String, String)>,
    /// Only events for which this CEL expression is true, such as `data.total > 100`.
    #[arg(long, value_name = "CEL")]
    filter: Option<String>,
    /// Only events that happened at this time (RFC 3339) or later.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only events that happened before this time (RFC 3339).
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

/// A page of a topic.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TopicPage {
    /// The events, as they are stored.
    pub(super) items: Vec<Box<RawValue>>,
    /// The offset up to which the topic was read.
    pub(super) next_offset: u64,
    pub(super) tail: u64,
}

impl FilterArgs {
    /// The parameters of a request.
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

/// The parameters of a read of a topic, besides the offset.
pub(super) fn query(topic: &str, rest: &[(String, String)]) -> Vec<(String, String)> {
    let mut query = vec![("topic".to_owned(), topic.to_owned())];
    query.extend_from_slice(rest);
    query
}

/// A page of a topic after an offset.
pub(super) async fn page(
    client: &BrokerClient,
    topic: &str,
    offset: ReadOffset,
    rest: &[(String, String)],
) -> CliResult<TopicPage> {
    let mut query = query(topic, rest);
    query.push(("offset".to_owned(), offset.to_string()));
    client.get(&["events"], &query).await
}

/// The topic's last sequence.
pub(super) async fn tail(client: &BrokerClient, topic: &str) -> CliResult<u64> {
    Ok(page(client, topic, ReadOffset::Latest, &[]).await?.tail)
}
