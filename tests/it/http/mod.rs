//! The real program over HTTP, as a user runs it.

mod api_examples;
mod attacks;
mod browsers;
mod claims;
mod cloudevents;
mod code_examples;
mod dead_letters;
mod deletion;
mod descriptors;
mod erasure;
mod free_space;
pub(crate) mod groups;
mod idempotency_keys;
mod identifiers;
mod importing;
mod invalid_input;
mod limits;
mod offsets;
mod openapi;
mod parked_polls;
mod privacy;
mod projections;
mod raw_http;
mod readme;
mod refusal_advice;
mod reopening;
mod reserved_names;
mod restart;
mod secrets;
mod slow_clients;
mod standards;
mod subscriptions;
mod test_deliveries;
mod tls;
mod topic_changes;
mod topic_deletion;
mod type_deletion;
mod waiting;

use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const TOPIC: &str = "gts.hx.core.events.topic.v1~";
pub(crate) const CREATED: &str = "gts.hyperspot.core.events.type.v1~vendor.tenants.tenant_created.v1";
pub(crate) const TENANT: &str = "a1b2c3d4-e5f6-7890-abcd-ef1234567890";

/// A running `event-broker serve` with its own folder; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    folder: Option<TempDir>,
    pub(crate) client: Client,
}

impl Server {
    /// Starts on a new folder.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        Self::start_in(folder, arguments)
    }

    /// Starts on an existing folder.
    pub(crate) fn start_in(folder: TempDir, arguments: &[&str]) -> Self {
        Self::launch(folder, "127.0.0.1:0", &[], arguments)
    }

    /// Starts on a new folder, with environment variables.
    pub(crate) fn start_with(variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        Self::launch(TempDir::new().unwrap(), "127.0.0.1:0", variables, arguments)
    }

    /// Starts on an existing folder, with environment variables.
    pub(crate) fn start_again_with(folder: TempDir, variables: &[(&str, &str)]) -> Self {
        Self::launch(folder, "127.0.0.1:0", variables, &[])
    }

    /// Starts on an existing folder, with environment variables and arguments.
    pub(crate) fn start_in_with(folder: TempDir, variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        Self::launch(folder, "127.0.0.1:0", variables, arguments)
    }

    /// Starts on an existing folder, at the address that the caller chose.
    pub(crate) fn start_at(folder: TempDir, listen: &str, arguments: &[&str]) -> Self {
        Self::launch(folder, listen, &[], arguments)
    }

    /// Starts on an existing folder, by a shell that has run `setup` first (`ulimit -n 256`).
    pub(crate) fn start_after(setup: &str, folder: TempDir, variables: &[(&str, &str)]) -> Self {
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("{setup}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_event-broker")]);
        Self::run(shell, folder, "127.0.0.1:0", variables, &[])
    }

    fn launch(folder: TempDir, listen: &str, variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        Self::run(Command::new(env!("CARGO_BIN_EXE_event-broker")), folder, listen, variables, arguments)
    }

    fn run(
        mut program: Command,
        folder: TempDir,
        listen: &str,
        variables: &[(&str, &str)],
        arguments: &[&str],
    ) -> Self {
        let client = client();
        let storage = storage(folder.path(), arguments);
        let child = program
            .args(["serve", "--listen", listen, "--data"])
            .arg(folder.path())
            .args(storage.iter().flat_map(|url| ["--storage", url]))
            .args(arguments)
            // Brokers on a database have no common folder that could hold a key.
            .envs(storage.iter().map(|_| {
                (
                    "EVENT_BROKER__DISPATCH__SECRET_KEY",
                    "c2VjcmV0IGZvciB0aGUgdGVzdHM6IG5vdCByYW5kb20gYXQgYWxsLCBidXQgbG9uZw==",
                )
            }))
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(File::create(folder.path().with_extension("log")).unwrap())
            .spawn()
            .unwrap();
        // From here on the program is killed when the value is dropped, also after a panic.
        let mut server = Self { child, url: String::new(), folder: Some(folder), client };
        server.url = server.greeting();
        server
    }

    /// The address that it prints as its listening address.
    fn greeting(&mut self) -> String {
        let mut lines = BufReader::new(self.child.stdout.take().unwrap()).lines();
        let line = lines.next().expect("the server ended before it listened").unwrap();
        // Reads its further output, so that the pipe does not fill.
        std::thread::spawn(move || lines.for_each(drop));
        line.strip_prefix("listening on ").unwrap_or_else(|| panic!("unexpected first line: {line}")).to_owned()
    }

    /// The path of its log file.
    pub(crate) fn log_path(&self) -> PathBuf {
        self.folder.as_ref().unwrap().path().with_extension("log")
    }

    /// Its log output so far.
    pub(crate) fn logged(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap()
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.as_ref().unwrap().path()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        answer(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        answer(self.request(Method::POST, path).json(body)).await
    }

    /// Sends SIGTERM, as a supervisor does.
    pub(crate) fn terminate(&self) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    /// Waits for its exit; returns the exit status and its folder.
    pub(crate) fn wait(mut self) -> (ExitStatus, TempDir) {
        let status = self.child.wait().unwrap();
        (status, self.folder.take().unwrap())
    }

    /// Kills it without a shutdown.
    pub(crate) fn kill(mut self) -> TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.folder.take().unwrap()
    }

    /// Registers an event type that accepts any object.
    pub(crate) async fn register(&self, id: &str) {
        let (status, answer) = self.post("/v1/event-types", &json!({"id": id})).await;
        assert!(status.is_success(), "{answer}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_file(folder.path().with_extension("log"));
            let _ = std::fs::remove_file(folder.path().with_extension("database"));
        }
    }
}

/// If set to `postgres`, servers whose configuration does not choose a log have it in a database.
const STORAGE: &str = "EVENT_BROKER_TEST_STORAGE";

/// Whether servers whose configuration does not choose a log have it in a database.
pub(crate) fn is_on_databases() -> bool {
    std::env::var(STORAGE).is_ok_and(|storage| storage == "postgres")
}

/// The database of the server with this folder, if these tests run on databases: created on the first call.
fn storage(folder: &Path, arguments: &[&str]) -> Option<String> {
    if !is_on_databases() || arguments.contains(&"--storage") {
        return None;
    }
    let note = folder.with_extension("database");
    let known = std::fs::read_to_string(&note).ok();
    Some(known.unwrap_or_else(|| {
        let url = log_postgres::testing::TestServer::shared().create_database();
        std::fs::write(&note, &url).unwrap();
        url
    }))
}

/// The deadline of a wait: a test that waits longer fails with the reason for the wait.
pub(crate) struct Deadline(Instant);

impl Deadline {
    /// Longer than any wait may take.
    pub(crate) fn begin() -> Self {
        Self(Instant::now() + Duration::from_secs(120))
    }

    pub(crate) fn check(&self, what: &str) {
        assert!(Instant::now() < self.0, "waited too long for {what}");
    }
}

pub(crate) fn client() -> Client {
    // The second test that calls this finds it done.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().unwrap()
}

/// The status and the JSON of a response; null without a body.
pub(crate) async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let status = response.status();
    let text = response.text().await.unwrap();
    let body = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap_or(Value::String(text)) };
    (status, body)
}

/// An event of `event_type` about `subject`.
pub(crate) fn event(event_type: &str, subject: &str) -> Value {
    json!({"type": event_type, "source": "test", "subject": subject, "tenant": TENANT, "data": {"n": 1}})
}

/// Checks that a response is a problem document with this code.
pub(crate) fn expect_problem((status, body): (StatusCode, Value), expected: u16, code: &str) -> Value {
    assert_eq!((status.as_u16(), body["status"].as_u64()), (expected, Some(u64::from(expected))), "{body}");
    assert_eq!(body["type"], format!("https://errors.hyperspot.com/{code}"), "{body}");
    for member in ["title", "detail", "instance", "traceId"] {
        assert!(body[member].as_str().is_some_and(|text| !text.is_empty()), "no {member}: {body}");
    }
    body
}
