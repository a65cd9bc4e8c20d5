//! A broker process on one of the engines, with worker processes. The workers record their effects in a file.

use crate::http::{Server, TENANT};
use contract::api::*;
use contract::{NewEvent, NewEventType, NewHandler, NewTopic, TopicId};
use event_broker_client::Client;
use log_postgres::testing::TestServer as Database;
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc;
use uuid::Uuid;

pub(super) const MOVED: &str = "gts.hyperspot.core.events.type.v1~vendor.bank.money_moved.v1";
/// The time limit for every wait.
const PATIENCE: Duration = Duration::from_secs(120);

/// The topic of the examples.
pub(super) fn bank() -> TopicId {
    "gts.hx.core.events.topic.v1~vendor.bank.v1".parse().unwrap()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    File,
    Postgres,
}

/// A broker process, and the location of its log.
pub(super) struct BrokerProcess {
    pub(super) broker: Option<Server>,
    pub(super) client: Client,
    pub(super) url: String,
    pub(super) database: Option<String>,
    pub(super) folder: TempDir,
}

impl BrokerProcess {
    pub(super) async fn on(engine: Engine) -> Self {
        let database = (engine == Engine::Postgres).then(|| Database::shared().create_database());
        Self::at(database).await
    }

    /// Starts a broker on this database, or on files.
    pub(super) async fn at(database: Option<String>) -> Self {
        let broker = start(TempDir::new().unwrap(), "127.0.0.1:0", database.as_deref());
        let (client, url) = (Client::new(&broker.url).unwrap(), broker.url.clone());
        client.register_topic(NewTopic::new(bank())).await.unwrap();
        let mut event_type = NewEventType::new(MOVED.parse().unwrap());
        event_type.topic = Some(bank());
        client.register_event_type(event_type).await.unwrap();
        Self { broker: Some(broker), client, url, database, folder: TempDir::new().unwrap() }
    }

    /// A handler's retry policy, fast enough for a test.
    pub(super) async fn put_handler(&self, name: &str) {
        let span = |text: &str| Some(text.parse().unwrap());
        let handler = NewHandler { lease: span("PT1S"), backoff: span("PT0.2S"), ..NewHandler::default() };
        self.client.put_handler(name, handler).await.unwrap();
    }

    pub(super) async fn publish(&self, event: NewEvent) -> Uuid {
        self.client.publish(event, None).await.unwrap().event.id
    }

    /// Publishes this many events, of three accounts in turn.
    pub(super) async fn publish_several(&self, count: u64) -> Vec<Uuid> {
        let mut ids = Vec::new();
        for n in 1..=count {
            ids.push(self.publish(moved(&format!("account-{}", n % 3), n)).await);
        }
        ids
    }

    /// Kills the broker without a shutdown; returns its folder.
    pub(super) fn kill_broker(&mut self) -> TempDir {
        self.broker.take().unwrap().kill()
    }

    /// Restarts the broker at the same address.
    pub(super) fn restart_broker(&mut self, folder: TempDir) {
        let listen = self.url.trim_start_matches("http://");
        self.broker = Some(start(folder, listen, self.database.as_deref()));
    }

    /// The file in which a handler's effects are recorded.
    pub(super) fn effects_of(&self, handler: &str) -> PathBuf {
        self.folder.path().join(handler)
    }

    /// The effects of a handler so far, in order.
    pub(super) fn effects(&self, handler: &str) -> Vec<WorkerEffect> {
        let text = std::fs::read_to_string(self.effects_of(handler)).unwrap_or_default();
        text.lines().map(WorkerEffect::parse).collect()
    }

    /// A worker process.
    pub(super) fn worker(&self, handler: &str, variables: &[(&str, &str)]) -> RunningProgram {
        self.worker_at(&self.url, handler, &[], variables)
    }

    /// A worker process that receives events by their ids on standard input, and uses this broker.
    pub(super) fn delivered_to(&self, url: &str, handler: &str, variables: &[(&str, &str)]) -> RunningProgram {
        self.worker_at(url, handler, &["-"], variables)
    }

    fn worker_at(&self, url: &str, handler: &str, more: &[&str], variables: &[(&str, &str)]) -> RunningProgram {
        let mut command = Command::new(example("append_once"));
        command.arg(url).arg(self.effects_of(handler)).arg(handler).args(more).envs(variables.iter().copied());
        RunningProgram::start(command)
    }

    /// A projection process that keeps a table in `database`.
    pub(super) fn projection(&self, database: &str, name: &str, crash: Option<&str>) -> RunningProgram {
        let mut command = Command::new(example("accounts_table"));
        command.args([&self.url, database, name]).envs(crash.map(|crash| ("ACCOUNTS_CRASH", crash)));
        RunningProgram::start(command)
    }

    /// Waits until a handler has reached the topic's tail.
    pub(super) async fn caught_up(&self, handler: &str, tail: u64) {
        until(&format!("{handler} has come to {tail}"), async || {
            let group = self.client.consumer_group(handler).await.ok()?;
            let topic = group.topics.iter().find(|it| it.topic == bank())?;
            (topic.committed_offset.get() >= tail).then_some(())
        })
        .await;
    }
}

fn start(folder: TempDir, listen: &str, database: Option<&str>) -> Server {
    let storage: Vec<_> = database.iter().flat_map(|url| ["--storage", url]).collect();
    Server::start_at(folder, listen, &storage)
}

/// An event about an account.
pub(super) fn moved(account: &str, amount: u64) -> NewEvent {
    let data = serde_json::value::to_raw_value(&json!({"account": account, "amount": amount})).unwrap();
    let mut event = NewEvent::new(MOVED.parse().unwrap(), "test", data);
    event.subject = Some(account.to_owned());
    event.tenant = Some(TENANT.parse().unwrap());
    event
}

/// Repeats `ask` until it returns a value.
pub(super) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        let mut beat = tokio::time::interval(Duration::from_millis(20));
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            beat.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("timed out: {what}"))
}

/// One effect, as the worker recorded it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkerEffect {
    pub(super) id: Uuid,
    pub(super) subject: String,
    pub(super) aggregate_sequence: u64,
    pub(super) token: u64,
    pub(super) attempt: u32,
}

impl WorkerEffect {
    fn parse(line: &str) -> Self {
        let mut parts = line.split('\t');
        let mut next = || parts.next().unwrap_or_else(|| panic!("half a line: {line}"));
        Self {
            id: next().parse().unwrap(),
            subject: next().to_owned(),
            aggregate_sequence: next().parse().unwrap(),
            token: next().parse().unwrap(),
            attempt: next().parse().unwrap(),
        }
    }
}

/// An example program that was built with these tests.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).map(|target: &Path| target.join("examples").join(name)).unwrap();
    assert!(program.exists(), "build it first: cargo build -p event-broker-client --examples");
    program
}

/// A running program; killed when dropped.
pub(super) struct RunningProgram {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::UnboundedReceiver<String>,
}

impl RunningProgram {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).for_each(|line| drop(said.send(line))));
        Self { stdin: child.stdin.take(), child, lines }
    }

    /// The next line that the program prints.
    pub(super) async fn says(&mut self) -> String {
        let line = tokio::time::timeout(PATIENCE, self.lines.recv()).await.expect("the program prints nothing");
        line.expect("the program ended before it printed another line")
    }

    /// Waits for a line that matches.
    pub(super) async fn has_said(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        loop {
            let line = self.says().await;
            if wanted(&line) {
                return line;
            }
        }
    }

    /// Writes a line to the program's standard input.
    pub(super) fn tell(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits until the program kills itself.
    pub(super) async fn dies(mut self) {
        self.stdin = None;
        let status = tokio::task::block_in_place(|| self.child.wait().unwrap());
        assert_eq!(status.signal(), Some(9), "it should have been killed, but ended with {status}");
    }

    /// Sends SIGTERM, and waits until the program has ended.
    pub(super) fn stop(mut self) {
        assert!(Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success());
        let status = tokio::task::block_in_place(|| self.child.wait().unwrap());
        assert!(status.success(), "after SIGTERM it ended with {status}");
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
