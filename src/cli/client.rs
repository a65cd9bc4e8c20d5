//! The running broker, over HTTP.
//!
//! - It is asked directly: proxies named in the environment are not used, and redirects are not followed.
//! - A request that may be repeated is, a few times: when the broker asks to come back (`Retry-After`), and when the
//!   connection broke before the answer was there. One that may not is sent once.
//! - A broker that cannot be reached at all is said so at once.

use super::error::{BrokerRefusal, CliError, CliResult};
use super::output;
use bytes::Bytes;
use contract::encode_identifier;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::process::ExitCode;
use std::time::Duration;

/// How often a request is sent, at most.
const TRIES_MAX: u32 = 6;
/// The longest wait the broker may ask for.
const WAIT_SECONDS_MAX: u64 = 10;
/// The first wait after a broken connection; each is twice the one before.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// A connection must come about within this time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest silence: streams say something every 15 s, requests take 60 s at most.
const SILENCE_MAX: Duration = Duration::from_secs(75);

/// Which broker is asked.
#[derive(clap::Args, Debug, Clone)]
pub(super) struct BrokerUrl {
    /// The broker's address. Proxies named in the environment are not used.
    #[arg(long, global = true, env = "EVENT_BROKER_URL", value_name = "URL", default_value = "http://127.0.0.1:8087")]
    url: String,
}

/// What commands that ask a broker have in common.
#[derive(clap::Args)]
pub(super) struct ClientArgs<V: clap::Subcommand> {
    #[command(flatten)]
    pub(super) server: BrokerUrl,
    /// Print JSON: one object, or one to a line for a list.
    #[arg(long, global = true)]
    pub(super) json: bool,
    #[command(subcommand)]
    pub(super) command: V,
}

/// A broker to ask.
#[derive(Debug, Clone)]
pub(super) struct BrokerClient {
    http: reqwest::Client,
    base: Url,
}

/// Whether a request may be sent again when it is not known what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestRetry {
    /// It comes to the same.
    Freely,
    /// It could have its effect twice.
    Never,
}

/// A page of a list, wherever its rows stand.
struct ListPage {
    rows: Vec<Value>,
    next: Option<String>,
}

/// Runs what asks a broker, and says how it ended.
pub(super) fn run(work: impl Future<Output = CliResult>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(work),
        Err(cause) => Err(CliError::caused_by("cannot start", cause)),
    };
    super::error::exit_code(outcome)
}

impl BrokerUrl {
    /// The broker, ready to be asked.
    pub(super) fn client(&self) -> CliResult<BrokerClient> {
        self.build(|http| http.read_timeout(SILENCE_MAX))
    }

    /// The same, but content to wait for as long as whatever is sent takes.
    pub(super) fn client_without_timeout(&self) -> CliResult<BrokerClient> {
        self.build(|http| http)
    }

    fn build(&self, tuned: impl Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder) -> CliResult<BrokerClient> {
        let misused =
            |reason: &str| CliError::Misused(format!("--url {}: {reason}", output::escape_controls(&self.url)));
        let base = Url::parse(&self.url).map_err(|error| misused(&error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || base.cannot_be_a_base() {
            return Err(misused("must begin with http:// or https://"));
        }
        // The second to install it finds it done.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("event-broker/", env!("CARGO_PKG_VERSION")));
        let http = tuned(http).build().map_err(|cause| CliError::caused_by("cannot start", cause))?;
        Ok(BrokerClient { http, base })
    }
}

impl BrokerClient {
    /// A request to a path, given piece by piece, with these parameters.
    pub(super) fn request(&self, method: Method, path: &[&str], query: &[(String, String)]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut pieces) = url.path_segments_mut() {
            // `pop_if_empty` for addresses that end in a slash.
            pieces.pop_if_empty().extend(["v1"]).extend(path);
        }
        if let Some(encoded) = encode_identifier(url.path(), path, method == Method::POST) {
            url.set_path(&encoded);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.http.request(method, url)
    }

    /// Asks for something.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &[(String, String)]) -> CliResult<T> {
        let response = self.send(self.request(Method::GET, path, query), RequestRetry::Freely).await?;
        parse(&self.read_body(response).await?)
    }

    /// Sends JSON, and answers what is answered.
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

    /// All rows of a list, page by page; they stand under `member`.
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

    /// Sends a request; an answer that is a refusal is a failure.
    pub(super) async fn send(&self, request: RequestBuilder, repeat: RequestRetry) -> CliResult<Response> {
        let mut wait = FIRST_WAIT;
        let mut broke = false;
        let mut tries = 0;
        loop {
            tries += 1;
            // A body that is a stream cannot be sent twice; such a request is never repeated.
            let again = request.try_clone().filter(|_| repeat == RequestRetry::Freely && tries < TRIES_MAX);
            let Some(again) = again else { return self.send_once(request).await };
            match self.send_once(again).await {
                Err(CliError::Refused(refusal)) if refusal.is_transient() => {
                    tokio::time::sleep(refusal.retry_delay()).await;
                }
                Err(CliError::Broken(_)) => {
                    broke = true;
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                }
                // A broker that was there a moment ago may be starting again.
                Err(CliError::Unreachable(_)) if broke => {
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                }
                other => return other,
            }
        }
    }

    async fn send_once(&self, request: RequestBuilder) -> CliResult<Response> {
        let response = request.send().await.map_err(|error| self.request_error(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = retry_after(response.headers());
        let body = response.bytes().await.unwrap_or_default();
        Err(BrokerRefusal::read(status.as_u16(), &body, retry_after).into())
    }

    /// A whole answer.
    pub(super) async fn read_body(&self, response: Response) -> CliResult<Bytes> {
        response.bytes().await.map_err(|error| self.request_error(&error))
    }

    /// Why there is no answer.
    pub(super) fn request_error(&self, error: &reqwest::Error) -> CliError {
        let address = self.address();
        let cause = root_cause(error);
        if error.is_connect() {
            let advice = "start one with `event-broker serve`, or say where it is with --url";
            return CliError::Unreachable(format!("no broker answers at {address} ({cause}); {advice}"));
        }
        CliError::Broken(format!("the connection to {address} broke off: {cause}"))
    }

    /// The broker's address, without what should not be shown.
    pub(super) fn address(&self) -> String {
        self.base.origin().ascii_serialization()
    }
}

impl BrokerRefusal {
    /// Whether the broker asks to come back.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self.status(), 429 | 503) && self.retry_after.is_some()
    }

    /// Whether it is this request that is wrong, and not the broker's hour.
    pub(super) fn is_client_error(&self) -> bool {
        (400..500).contains(&self.status()) && self.status() != 429
    }

    /// How long it wants to be left alone, within reason.
    pub(super) fn retry_delay(&self) -> Duration {
        Duration::from_secs(self.retry_after.unwrap_or(1).clamp(1, WAIT_SECONDS_MAX))
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

/// Reads an answer; an empty one is null.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> CliResult<T> {
    let body = if body.is_empty() { b"null" } else { body };
    serde_json::from_slice(body).map_err(|error| CliError::caused_by("the broker's answer cannot be read", error))
}

/// When to come back, in whole seconds.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

/// What is at the bottom of an error: the operating system's own words.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
