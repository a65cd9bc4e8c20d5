//! `event-broker bench`: callers that publish as fast as they are answered.
//!
//! With `--acks` every acknowledged event is a line on standard output, written before its caller sends the next one: a test
//! that kills the process knows what was acknowledged.

use super::data_folders;
use super::error::{self, CliError, CliResult};
use super::output::{CliOutput, print_note};
use contract::api::*;
use contract::{
    Atomicity, EventTypeId, NewEvent, NewEventType, NewTopic, Offset, Result, Sequence, SubjectTypeId, TopicId,
    TopicRead,
};
use event_broker::{Broker, Config};
use serde_json::value::RawValue;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use uuid::Uuid;

/// Publishes generated events, and prints the throughput and the latencies.
///
/// Every event is validated, numbered and durable before its caller receives the response and sends the next one. Without
/// --data the log is kept in a temporary folder (below TMPDIR), which is removed at the end; name a folder with --data to
/// measure its disk. A folder that already holds a log is refused: published events cannot be deleted.
///
/// Exit code 0: all events are stored. 1: publishing failed. 2: the folder already holds a log.
#[derive(clap::Args, Clone)]
#[command(after_help = "Examples:\n  \
    event-broker bench\n  \
    event-broker bench --data ./bench-data --callers 256 --events 200000\n  \
    event-broker bench --memory --callers 16 --batch 100 --events 1000000")]
pub(super) struct BenchArgs {
    /// Keep the log in this folder, also after the run; it is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Publish into a folder that already holds a log.
    #[arg(long, requires = "data")]
    append: bool,
    /// Keep the log in memory instead.
    #[arg(long, conflicts_with = "data")]
    memory: bool,
    /// How many callers publish at the same time.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    callers: u32,
    /// Events per request; 1 publishes single events.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    batch: u32,
    /// How many events to publish in total.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    events: u64,
    /// The approximate size of a stored event, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 450, value_parser = clap::value_parser!(u32).range(400..=900_000))]
    bytes: u32,
    /// How many topics the events are spread over.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    topics: u32,
    /// Seal segments at this size.
    #[arg(long, value_name = "BYTES", default_value_t = 64 * 1024 * 1024, value_parser = clap::value_parser!(u64).range(1024..=4_000_000_000))]
    segment_bytes: u64,
    /// Keep only about this many events of each topic, trimming while publishing; the broker's own entries are reclaimed
    /// as often.
    #[arg(long, value_name = "N")]
    keep: Option<u64>,
    /// Rows of the tables that are kept in RAM before they are written to disk.
    #[arg(long, value_name = "N", default_value_t = contract::limits::CHECKPOINT_ROWS_DEFAULT)]
    checkpoint_rows: usize,
    /// A number that makes the events of this run different from those of another run.
    #[arg(long, value_name = "N", default_value_t = 0)]
    run: u32,
    /// Print a line `ack TOPIC SEQUENCE ID` for every acknowledged event.
    #[arg(long)]
    acks: bool,
}

pub(super) fn run(arguments: &BenchArgs) -> ExitCode {
    error::exit_code(bench(arguments))
}

fn bench(arguments: &BenchArgs) -> CliResult {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|cause| CliError::caused_by("cannot start", cause))?;
    runtime.block_on(async {
        // Signals are caught before a temporary folder is created, so that it is removed whenever the program is stopped.
        let mut terminate = listen(SignalKind::terminate())?;
        let mut interrupt = listen(SignalKind::interrupt())?;
        let folder = BenchFolder::choose(arguments)?;
        let broker = Broker::open(configuration(arguments, folder.path())).await;
        let broker = Arc::new(broker.map_err(|error| CliError::Failed(error.to_string()))?);
        let outcome = tokio::select! {
            outcome = publish_all(&broker, arguments) => outcome.map_err(|error| CliError::Failed(error.to_string())),
            _ = terminate.recv() => Err(CliError::Failed("interrupted".to_owned())),
            _ = interrupt.recv() => Err(CliError::Failed("interrupted".to_owned())),
        };
        broker.close().await;
        outcome.map(|()| ExitCode::SUCCESS)
    })
}

fn listen(kind: SignalKind) -> CliResult<Signal> {
    signal(kind).map_err(|cause| CliError::caused_by("cannot listen for signals", cause))
}

fn configuration(arguments: &BenchArgs, folder: Option<&Path>) -> Config {
    let mut config = folder.map_or_else(Config::default, Config::folder);
    config.storage.segment_bytes = arguments.segment_bytes;
    config.maintenance.checkpoint_rows = arguments.checkpoint_rows;
    if arguments.keep.is_some() {
        config.maintenance.reclaim_after_secs = 0;
    }
    config
}

/// Where the log is kept.
enum BenchFolder {
    /// In memory: there is no folder.
    Memory,
    /// The folder that the caller named.
    Named(PathBuf),
    /// A folder that is removed on drop.
    Temporary(PathBuf),
}

impl BenchFolder {
    fn choose(arguments: &BenchArgs) -> CliResult<Self> {
        match &arguments.data {
            _ if arguments.memory => Ok(Self::Memory),
            Some(folder) => Self::named(folder, arguments.append),
            None => Self::temporary(),
        }
    }

    fn named(folder: &Path, append: bool) -> CliResult<Self> {
        let logs = data_folders::log_folders(folder).map_err(|cause| CliError::caused_by(folder.display(), cause))?;
        match logs.is_empty() || append {
            true => Ok(Self::Named(folder.to_owned())),
            false => Err(CliError::Misused(format!(
                "{} already holds a log, and published events cannot be deleted; name another folder with --data, leave \
                --data out for a temporary one, or say --append to publish into this one",
                folder.display()
            ))),
        }
    }

    fn temporary() -> CliResult<Self> {
        let folder = std::env::temp_dir().join(format!("event-broker-bench-{}", Uuid::new_v4().simple()));
        // Fails if it exists: no other program's folder is used or removed. Only the owner may read it.
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(|cause| CliError::caused_by(folder.display(), cause))?;
        Ok(Self::Temporary(folder))
    }

    fn path(&self) -> Option<&Path> {
        match self {
            Self::Memory => None,
            Self::Named(folder) | Self::Temporary(folder) => Some(folder),
        }
    }
}

impl Drop for BenchFolder {
    fn drop(&mut self) {
        if let Self::Temporary(folder) = self
            && let Err(cause) = std::fs::remove_dir_all(&folder)
        {
            print_note(&format_args!("{} could not be removed: {cause}", folder.display()));
        }
    }
}

async fn publish_all(broker: &Arc<Broker>, arguments: &BenchArgs) -> Result<()> {
    register(broker, arguments.topics).await?;
    let begun = Instant::now();
    let left = Arc::new(AtomicU64::new(arguments.events));
    let mut callers = Vec::new();
    for number in 0..arguments.callers {
        let caller = BenchCaller {
            broker: Arc::clone(broker),
            arguments: arguments.clone(),
            number,
            left: Arc::clone(&left),
            event_type: type_id(number % arguments.topics)?,
            subject_type: SubjectTypeId::parse("gts.vendor.bench.caller.v1")?,
            filling: "x".repeat((arguments.bytes as usize).saturating_sub(400)),
        };
        callers.push(tokio::spawn(caller.publish()));
    }
    let mut waits = Vec::new();
    for caller in callers {
        match caller.await {
            Ok(outcome) => waits.append(&mut outcome?),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    if !arguments.acks {
        report(arguments, begun.elapsed(), waits);
    }
    Ok(())
}

async fn register(broker: &Broker, topics: u32) -> Result<()> {
    for number in 0..topics {
        broker.register_topic(NewTopic::new(topic_id(number)?)).await?;
        let mut event_type = NewEventType::new(type_id(number)?);
        event_type.topic = Some(topic_id(number)?);
        event_type.data_schema = Some(serde_json::json!({
            "type": "object",
            "properties": {"caller": {"type": "integer"}, "count": {"type": "integer"}, "filling": {"type": "string"}},
            "required": ["caller", "count"]
        }));
        broker.register_event_type(event_type).await?;
    }
    Ok(())
}

struct BenchCaller {
    broker: Arc<Broker>,
    arguments: BenchArgs,
    number: u32,
    left: Arc<AtomicU64>,
    event_type: EventTypeId,
    subject_type: SubjectTypeId,
    filling: String,
}

impl BenchCaller {
    /// Publishes until the common count is used up; returns the duration of each request.
    async fn publish(self) -> Result<Vec<Duration>> {
        let batch = u64::from(self.arguments.batch);
        let mut waits = Vec::new();
        let mut count = 0;
        while self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(batch)).is_ok() {
            let mut events = Vec::with_capacity(self.arguments.batch as usize);
            for _ in 0..batch {
                events.push(self.event(count)?);
                count += 1;
            }
            let begun = Instant::now();
            for outcome in self.broker.publish_batch(events, Atomicity::PerTopic, None).await? {
                self.acknowledge(&outcome?.event);
            }
            waits.push(begun.elapsed());
            self.trim(count).await?;
        }
        Ok(waits)
    }

    fn event(&self, count: u64) -> Result<NewEvent> {
        let run = self.arguments.run;
        let data = format!(r#"{{"caller":{},"count":{count},"filling":"{}"}}"#, self.number, self.filling);
        let data = RawValue::from_string(data)
            .map_err(|error| contract::Error::new(contract::Kind::Malformed, error.to_string()))?;
        let mut event = NewEvent::new(self.event_type.clone(), "bench", data)
            .about(self.subject_type.clone(), format!("{run}-{}-{}", self.number, count % 16));
        event.id = Some(Uuid::from_u128((u128::from(run) << 96) | (u128::from(self.number) << 64) | u128::from(count)));
        event.tenant = Some(Uuid::from_u128(1));
        Ok(event)
    }

    /// The first caller of each topic trims it every few hundred events, and reclaims the broker's own entries.
    async fn trim(&self, count: u64) -> Result<()> {
        if let Some(recorder) = self.arguments.keep
            && self.number < self.arguments.topics
            && count.is_multiple_of(200)
        {
            let topic = topic_id(self.number)?;
            let tail = self.broker.read(TopicRead::all(topic.clone()).after(Offset(u64::MAX))).await?.tail;
            self.broker.trim(&topic, Sequence(tail.0.saturating_sub(recorder))).await?;
            self.broker.reclaim_now().await?;
        }
        Ok(())
    }

    fn acknowledge(&self, event: &contract::StoredEvent) {
        if self.arguments.acks {
            let topic = self.number % self.arguments.topics;
            let line = format!("ack {topic} {} {}\n", event.sequence, event.id);
            let mut output = std::io::stdout().lock();
            // One write per line: a reader of the pipe sees whole lines, even if the process is killed next.
            let _ = output.write_all(line.as_bytes()).and_then(|()| output.flush());
        }
    }
}

fn report(arguments: &BenchArgs, took: Duration, mut waits: Vec<Duration>) {
    waits.sort_unstable();
    let at = |share: f64| {
        let index = (waits.len() as f64 * share) as usize;
        waits.get(index.min(waits.len().saturating_sub(1))).copied().unwrap_or_default().as_secs_f64() * 1e3
    };
    let seconds = took.as_secs_f64();
    let lines = [
        format!("{} events of about {} bytes in {seconds:.2} s", arguments.events, arguments.bytes),
        format!("  {:.0} events/s, {:.1} MiB/s", arguments.events as f64 / seconds, mebibytes(arguments) / seconds),
        format!("  answered after {:.2} ms (median), {:.2} ms (99 %)", at(0.5), at(0.99)),
    ];
    // A closed standard error is no reason to fail.
    let _ = CliOutput::new().line(&lines.join("\n"));
}

fn mebibytes(arguments: &BenchArgs) -> f64 {
    arguments.events as f64 * f64::from(arguments.bytes) / (1024.0 * 1024.0)
}

fn topic_id(number: u32) -> Result<TopicId> {
    TopicId::parse(&format!("gts.hx.core.events.topic.v1~vendor.bench{number}.v1"))
}

fn type_id(number: u32) -> Result<EventTypeId> {
    EventTypeId::parse(&format!("gts.hyperspot.core.events.type.v1~vendor.bench.counted{number}.v1"))
}
