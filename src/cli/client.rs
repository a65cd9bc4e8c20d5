//! The running broker as the command line calls it: requests and replies as JSON, over the client's [`BrokerConnection`].
//!
//! - Requests are repeated by the rule of the client crate ([`RetrySchedule`]), but a broker that the first try does not reach
//!   is reported at once.

use super::error::{BrokerRefusal, CliError, CliResult};
use super::output;
use bytes::Bytes;
use contract::ReadOffset;
pub(super) use event_broker_client::connection::RequestRetry;
use event_broker_client::connection::{
    BrokerConnection, ClientTls, ConnectionOptions, ReportLines, RequestFailure, RetrySchedule, SILENCE_MAX, TlsFault,
    TopicStream,
};
use reqwest::{Method, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Which broker is called.
#[derive(clap::Args, Debug, Clone)]
pub(super) struct BrokerUrl {
    /// The broker's address. Proxies named in the environment are not used.
    #[arg(long, global = true, env = "EVENT_BROKER_URL", value_name = "URL", default_value = "http://127.0.0.1:8087")]
    url: String,
    /// The authorities that sign the certificate of the broker, in PEM. They are trusted instead of those of this machine.
    #[arg(long, global = true, env = "EVENT_BROKER_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// A client certificate in PEM, for a broker that asks for one.
    #[arg(long, global = true, env = "EVENT_BROKER_CERT_FILE", value_name = "FILE")]
    cert_file: Option<PathBuf>,
    /// The private key of the client certificate, in PEM.
    #[arg(long, global = true, env = "EVENT_BROKER_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,
}

/// What all commands that call a broker have in common.
#[derive(clap::Args)]
pub(super) struct ClientArgs<V: clap::Subcommand> {
    #[command(flatten)]
    pub(super) server: BrokerUrl,
    /// Print JSON: one object, or for a list one object per line.
    #[arg(long, global = true)]
    pub(super) json: bool,
    #[command(subcommand)]
    pub(super) command: V,
}

/// A broker to call.
#[derive(Debug, Clone)]
pub(super) struct BrokerClient {
    connection: BrokerConnection,
}

/// A page of a list, whatever the name of its rows is.
struct ListPage {
    rows: Vec<Value>,
    next: Option<String>,
}

/// Runs a command that calls a broker, and returns its exit code.
pub(super) fn run(work: impl Future<Output = CliResult>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(work),
        Err(cause) => Err(CliError::caused_by("cannot start", cause)),
    };
    super::error::exit_code(outcome)
}

impl BrokerUrl {
    /// The broker, ready to be called.
    pub(super) fn client(&self) -> CliResult<BrokerClient> {
        self.connect(Some(SILENCE_MAX))
    }

    /// The same without a limit on silence: a request takes as long as its body needs.
    pub(super) fn client_without_timeout(&self) -> CliResult<BrokerClient> {
        self.connect(None)
    }

    fn connect(&self, silence_max: Option<Duration>) -> CliResult<BrokerClient> {
        let user_agent = concat!("event-broker/", env!("CARGO_PKG_VERSION")).to_owned();
        let Self { ca_file, cert_file, key_file, .. } = self.clone();
        let options = ConnectionOptions { user_agent, silence_max, tls: ClientTls { ca_file, cert_file, key_file } };
        let connection = BrokerConnection::new(&self.url, options).map_err(|error| match error.violations() {
            [violation] if violation.pointer == "/url" => {
                CliError::Misused(format!("--url {}: {}", output::escape_controls(&self.url), violation.detail))
            }
            [violation] => {
                let flag = violation.pointer.replace('/', "--").replace('_', "-");
                CliError::Misused(format!("{flag} {}", output::escape_controls(&violation.detail)))
            }
            _ => CliError::caused_by("cannot start", error),
        })?;
        Ok(BrokerClient { connection })
    }
}

impl BrokerClient {
    /// A request to the path of these pieces, with these parameters.
    pub(super) fn request(&self, method: Method, path: &[&str], query: &[(String, String)]) -> RequestBuilder {
        self.connection.request(method, path, query)
    }

    /// Reads what is at a path.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &[(String, String)]) -> CliResult<T> {
        let response = self.send(self.request(Method::GET, path, query), RequestRetry::Freely).await?;
        parse(&self.read_body(response).await?)
    }

    /// Sends JSON, and returns the reply.
    pub(super) async fn send_json(
        &self,
        method: Method,
        path: &[&str],
        body: &Value,
        repeat: RequestRetry,
    ) -> CliResult<Value> {
        let request = self.request(method, path, &[]).json(body);
        let response = self.send(request, repeat).await?;
        parse(&self.read_body(response).await?)
    }

    /// All rows of a list, page by page; `member` is the name of its rows.
    pub(super) async fn list(&self, path: &[&str], query: &[(String, String)], member: &str) -> CliResult<Vec<Value>> {
        let mut rows = Vec::new();
        let mut query = query.to_vec();
        loop {
            let page: Value = self.get(path, &query).await?;
            let mut page = ListPage::of(page, member);
            rows.append(&mut page.rows);
            let Some(next) = page.next else { return Ok(rows) };
            query.retain(|(name, _)| name != "cursor");
            query.push(("cursor".to_owned(), next));
        }
    }

    /// Sends a request; a response with an error status is a failure.
    pub(super) async fn send(&self, request: RequestBuilder, repeat: RequestRetry) -> CliResult<Response> {
        let send = |request| self.connection.send(request);
        let sent = self.connection.attempt(request, send, RetrySchedule::interactive(repeat)).await;
        sent.map_err(|failure| self.failure(failure))
    }

    /// The whole body of a response.
    pub(super) async fn read_body(&self, response: Response) -> CliResult<Bytes> {
        response.bytes().await.map_err(|error| self.failure(RequestFailure::of(error)))
    }

    /// Opens a stream of a topic's events after this offset.
    pub(super) async fn follow(&self, query: Vec<(String, String)>, offset: ReadOffset) -> CliResult<TopicStream> {
        let schedule = RetrySchedule::interactive(RequestRetry::Freely);
        self.connection.follow(query, offset, schedule).await.map_err(|failure| self.failure(failure))
    }

    /// Sends NDJSON to be imported, and returns the report.
    pub(super) async fn import(&self, lines: reqwest::Body) -> CliResult<ReportLines> {
        self.connection.import(lines).await.map_err(|failure| self.failure(failure))
    }

    /// The error for a request that failed.
    pub(super) fn failure(&self, failure: RequestFailure) -> CliError {
        let address = self.address();
        match failure {
            RequestFailure::Unreachable(cause) => CliError::Unreachable(format!(
                "no broker answers at {address} ({}); start one with `event-broker serve`, or say where it is with --url",
                root_cause(&cause)
            )),
            RequestFailure::Untrusted(fault, _) => {
                CliError::Unreachable(format!("no trusted connection to {address}: {fault}{}", advice(&fault)))
            }
            RequestFailure::Broken(cause) => {
                CliError::Broken(format!("the connection to {address} broke off: {}", root_cause(&cause)))
            }
            RequestFailure::Unwritable(cause) => {
                CliError::caused_by("the request cannot be written", root_cause(&cause))
            }
            RequestFailure::TimedOut => CliError::Failed(format!("{address} did not answer in time")),
            RequestFailure::Refused(refused) => BrokerRefusal::read(refused.status, &refused.body).into(),
        }
    }

    /// The broker's address, without what should not be shown.
    pub(super) fn address(&self) -> String {
        self.connection.address()
    }
}

/// What the user can do about a fault of TLS.
const fn advice(fault: &TlsFault) -> &'static str {
    match fault {
        TlsFault::UnknownAuthority => "; name the file of the authority with --ca-file",
        TlsFault::ClientCertificateMissing => "; name it with --cert-file and --key-file",
        TlsFault::NotTls => "; if the broker has no TLS, use http:// in --url",
        _ => "",
    }
}

impl BrokerRefusal {
    /// Whether the request is wrong, whenever it is sent.
    pub(super) fn is_client_error(&self) -> bool {
        (400..500).contains(&self.status()) && self.status() != 429
    }
}

impl ListPage {
    fn of(mut page: Value, member: &str) -> Self {
        let next = page.pointer("/page_info/next_cursor").and_then(Value::as_str).map(str::to_owned);
        let rows = match page.get_mut(member).map(Value::take) {
            Some(Value::Array(rows)) => rows,
            _ => Vec::new(),
        };
        Self { rows, next }
    }
}

/// Reads a reply; an empty one is null.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> CliResult<T> {
    let body = if body.is_empty() { b"null" } else { body };
    serde_json::from_slice(body).map_err(|error| CliError::caused_by("the broker's response cannot be read", error))
}

/// The innermost cause of an error: usually the operating system's message.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
