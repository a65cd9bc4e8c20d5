//! `event-broker consumers`: consumers, and the committed offsets of their groups.

use super::client::{self, BrokerClient, ClientArgs, RequestRetry};
use super::error::CliResult;
use super::output::{CliOutput, member};
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// Lists, shows, creates and deletes consumers, and moves the offsets of their groups.
///
/// A consumer exists for its session; every poll restarts the session. Its group has a committed offset in each topic: offset
/// 7 means that sequence 7 and all before it are processed.
///
/// Exit code 0: success. 1: the broker refused the request, or could not be reached.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker consumers groups\n  \
    event-broker consumers group billing\n  \
    event-broker consumers reset billing --topic gts.hx.core.events.topic.v1~ --to earliest\n  \
    event-broker consumers create --group billing --topic gts.hx.core.events.topic.v1~ --session-timeout PT5M")]
pub(super) struct ConsumersArgs {
    #[command(flatten)]
    client: ClientArgs<ConsumersCommand>,
}

#[derive(clap::Subcommand)]
enum ConsumersCommand {
    /// Lists the live consumers.
    List {
        /// Only those of this group.
        #[arg(long, value_name = "NAME")]
        group: Option<String>,
    },
    /// Shows one consumer.
    Show {
        /// Its id.
        id: String,
    },
    /// Creates a consumer.
    Create(CreateConsumerArgs),
    /// Deletes a consumer. Its group's offsets stay; the claims of a member of a shared group are released.
    Delete {
        /// Its id.
        id: String,
    },
    /// Lists groups with their committed offset and lag in each topic.
    Groups,
    /// Shows one group and its members.
    Group {
        /// Its name.
        name: String,
    },
    /// Deletes a group without live consumers: its offsets, and what a shared group has done. A new group of this name starts
    /// from the beginning.
    DeleteGroup {
        /// Its name.
        name: String,
    },
    /// Commits an offset for a consumer's group. A commit never moves the offset backwards; `reset` does.
    Commit {
        /// The consumer's id.
        id: String,
        /// The last sequence that is processed.
        offset: u64,
    },
    /// Moves a group's offset in a topic forwards or backwards.
    Reset {
        /// The group's name.
        group: String,
        /// The topic.
        #[arg(long, value_name = "ID")]
        topic: String,
        /// Where to: earliest, latest, or an offset.
        #[arg(long, value_name = "WHERE", required_unless_present = "time", conflicts_with = "time")]
        to: Option<String>,
        /// To before the first event that was stored at this time (RFC 3339) or later.
        #[arg(long, value_name = "TIME")]
        time: Option<String>,
    },
}

#[derive(clap::Args)]
struct CreateConsumerArgs {
    /// The name of the group.
    #[arg(long, value_name = "NAME")]
    group: String,
    /// The topic that it reads.
    #[arg(long, value_name = "ID")]
    topic: String,
    /// Only events of this type; a pattern may end in *. May be repeated.
    #[arg(long = "type", value_name = "ID")]
    types: Vec<String>,
    /// Only events about subjects of this type; a pattern may end in *. May be repeated.
    #[arg(long = "subject-type", value_name = "ID")]
    subject_types: Vec<String>,
    /// Only events for which this CEL expression is true, such as `data.total > 100`.
    #[arg(long, value_name = "CEL")]
    filter: Option<String>,
    /// How long it exists without polling, such as PT5M; 30 seconds when absent.
    #[arg(long, value_name = "DURATION")]
    session_timeout: Option<String>,
    /// How the group's members divide the events: broadcast or shared.
    #[arg(long, value_name = "HOW")]
    distribution: Option<String>,
}

pub(super) fn run(arguments: &ConsumersArgs) -> ExitCode {
    client::run(Box::pin(execute(&arguments.client)))
}

async fn execute(ClientArgs { server, json, command: verb }: &ClientArgs<ConsumersCommand>) -> CliResult {
    let client = server.client()?;
    let mut output = CliOutput::new();
    let json = *json;
    match verb {
        ConsumersCommand::List { group } => {
            let query: Vec<_> = group.iter().map(|group| ("consumerGroup".to_owned(), group.clone())).collect();
            let consumers = client.list(&["consumers"], &query, "items").await?;
            print_consumers(&mut output, json, &consumers)?;
        }
        ConsumersCommand::Groups => {
            let groups = client.list(&["consumer-groups"], &[], "items").await?;
            print_groups(&mut output, json, &groups)?;
        }
        ConsumersCommand::Group { name } => {
            let group = client.get(&["consumer-groups", name], &[]).await?;
            print_group(&mut output, json, &group)?;
        }
        ConsumersCommand::Reset { group, topic, to, time } => {
            let path = ["consumer-groups", &format!("{group}:reset")];
            let body = reset(topic, to.as_deref(), time.as_deref());
            let group = client.send_json(Method::POST, &path, &body, RequestRetry::Freely).await?;
            print_group(&mut output, json, &group)?;
        }
        ConsumersCommand::DeleteGroup { name } => {
            client.send(client.request(Method::DELETE, &["consumer-groups", name], &[]), RequestRetry::Never).await?;
            output.line(&if json { json!({"deleted": name}).to_string() } else { format!("deleted {name}") })?;
        }
        ConsumersCommand::Delete { id } => {
            client.send(client.request(Method::DELETE, &["consumers", id], &[]), RequestRetry::Never).await?;
            output.line(&if json { json!({"deleted": id}).to_string() } else { format!("deleted {id}") })?;
        }
        verb => {
            let thing = execute_for_one(&client, verb).await?;
            if json { output.json(&thing)? } else { output.members(&thing)? }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The commands about one consumer; each returns an object.
async fn execute_for_one(client: &BrokerClient, command: &ConsumersCommand) -> CliResult<Value> {
    match command {
        ConsumersCommand::Show { id } => client.get(&["consumers", id], &[]).await.map(unwrap_data),
        ConsumersCommand::Create(creation) => {
            // A repetition could create a second consumer.
            let created = client.send_json(Method::POST, &["consumers"], &creation.body(), RequestRetry::Never).await;
            created.map(unwrap_data)
        }
        ConsumersCommand::Commit { id, offset } => {
            let path = ["consumers", &format!("{id}:commit")];
            client.send_json(Method::POST, &path, &json!({"offset": offset}), RequestRetry::Freely).await
        }
        _ => Ok(Value::Null),
    }
}

/// A consumer without the envelope of the API.
fn unwrap_data(mut answer: Value) -> Value {
    answer.get_mut("data").map(Value::take).unwrap_or(answer)
}

fn reset(topic: &str, to: Option<&str>, time: Option<&str>) -> Value {
    let to = to.map(|to| to.parse::<u64>().map_or_else(|_| json!(to), |offset| json!(offset)));
    let members = [("topic", Some(json!(topic))), ("offset", to), ("time", time.map(|time| json!(time)))];
    Value::Object(members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

impl CreateConsumerArgs {
    fn body(&self) -> Value {
        let texts =
            [("CEL", &self.filter), ("sessionTimeout", &self.session_timeout), ("distribution", &self.distribution)];
        let mut members: Map<_, _> =
            texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), json!(text.as_ref()?)))).collect();
        members.insert("consumerGroup".to_owned(), json!(self.group));
        members.insert("topic".to_owned(), json!(self.topic));
        members.insert("types".to_owned(), json!(self.types));
        members.insert("subjectTypes".to_owned(), json!(self.subject_types));
        Value::Object(members)
    }
}

fn print_consumers(output: &mut CliOutput, json: bool, consumers: &[Value]) -> CliResult<()> {
    if json {
        return consumers.iter().try_for_each(|consumer| output.json(consumer));
    }
    let names = ["id", "consumerGroup", "topic", "distribution", "lastSeenAt", "expiresAt"];
    let rows = consumers.iter().map(|consumer| names.iter().map(|name| member(consumer, name)).collect());
    output.table(&["CONSUMER", "GROUP", "TOPIC", "DISTRIBUTION", "LAST SEEN", "EXPIRES"], rows.collect())
}

fn print_groups(output: &mut CliOutput, json: bool, groups: &[Value]) -> CliResult<()> {
    if json {
        return groups.iter().try_for_each(|group| output.json(group));
    }
    let rows = groups.iter().flat_map(|group| {
        list(group, "topics").iter().map(|topic| {
            let mut row = vec![member(group, "consumerGroup")];
            row.extend(["topic", "committedOffset", "tail", "lag"].map(|name| member(topic, name)));
            row.push(list(topic, "members").len().to_string());
            row
        })
    });
    output.table(&["GROUP", "TOPIC", "OFFSET", "TAIL", "LAG", "MEMBERS"], rows.collect())
}

fn print_group(output: &mut CliOutput, json: bool, group: &Value) -> CliResult<()> {
    if json {
        return output.json(group);
    }
    print_groups(output, false, std::slice::from_ref(group))?;
    let members = list(group, "topics").iter().flat_map(|topic| {
        list(topic, "members").iter().map(|consumer| {
            let mut row = vec![member(topic, "topic")];
            row.extend(["consumerId", "lastSeenAt", "inFlight"].map(|name| member(consumer, name)));
            row
        })
    });
    let members: Vec<_> = members.collect();
    if members.is_empty() {
        return Ok(());
    }
    output.line("")?;
    output.table(&["TOPIC", "CONSUMER", "LAST SEEN", "IN FLIGHT"], members)
}

fn list<'a>(thing: &'a Value, name: &str) -> &'a [Value] {
    thing.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
