//! The OpenAPI document, and Swagger UI to read it with.
//!
//! - Built once, when the server starts, with the limits that are in force; served as bytes with an `ETag`.
//! - [`operations`] says what there is, file by file as in `rest`; [`schemas`] what it looks like; [`problems`] how it
//!   is refused. `shape`, `operation`, `parameters` and `headers` are the words those are written in.
//! - The tests hold the document against the routes, the contract's types and the answers of the real server.

mod docs;
mod examples;
mod headers;
mod member_rules;
mod operation_spec;
mod operations;
mod pages;
mod parameters;
mod problems;
mod schema_spec;
mod schemas;

use super::AppState;
use axum::Router;
use axum::extract::State;
use axum::routing::get;
use bytes::Bytes;
use http::HeaderMap;
use pages::StaticPage;
use problems::SharedResponses;
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{ComponentsBuilder, Info, InfoBuilder, License, OpenApi, OpenApiBuilder, Paths, Server};

/// Limits that the configuration sets.
#[derive(Debug, Clone, Copy)]
pub(super) struct DocumentLimits {
    /// Largest and usual `limit`.
    limit_max: u64,
    limit_default: u64,
    /// Longest and usual wait of a poll, in seconds.
    wait_max: u64,
    wait_default: u64,
    /// Most events of a batch, and most bytes.
    batch_max: usize,
    batch_bytes_max: usize,
}

impl DocumentLimits {
    fn of(app: &AppState) -> Self {
        let config = app.broker.config();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Self {
            limit_max: count(config.consumer.max_limit),
            limit_default: count(app.options.limit_default),
            wait_max: config.polling.max_timeout_secs,
            wait_default: app.options.wait_default.as_secs(),
            batch_max: config.batch.max_size,
            batch_bytes_max: app.options.batch_bytes_max,
        }
    }
}

pub(super) fn routes(app: &AppState) -> Router<AppState> {
    let document = serde_json::to_vec(&document(&DocumentLimits::of(app))).unwrap_or_default();
    let page = StaticPage::new(Bytes::from(document), super::negotiate::JSON);
    let show = |State(app): State<AppState>, headers: HeaderMap| async move {
        page.answer(&headers, app.options.compression).await
    };
    Router::new().route("/v1/openapi.json", get(show)).merge(docs::routes())
}

/// The whole document.
fn document(bounds: &DocumentLimits) -> OpenApi {
    let (mut paths, mut shared) = (Paths::new(), SharedResponses::default());
    for operation in operations::all(bounds) {
        operation.add_to(&mut paths, &mut shared);
    }
    let mut components = ComponentsBuilder::new().responses_from_iter(shared.into_responses());
    for (name, schema) in schemas::all(bounds) {
        components = components.schema(name, schema);
    }
    for (name, parameter) in parameters::shared(bounds) {
        components = components.parameter(name, parameter);
    }
    for (name, header) in headers::all() {
        components = components.header(name, header);
    }
    let tags = operations::TAGS.map(|(name, about)| TagBuilder::new().name(name).description(Some(about)).build());
    OpenApiBuilder::new()
        .info(info())
        .servers(Some([Server::new("/")]))
        .tags(Some(tags))
        .paths(paths)
        // Says that nobody is asked for credentials, rather than nothing.
        .security(Some([]))
        .components(Some(components.build()))
        .build()
}

const DESCRIPTION: &str = "Keeps every event typed, ordered and durable.

Programs publish events of registered types; the broker validates them, gives them their numbers and keeps them in an \
append-only log. Others list them, wait for them, follow them, and replay them from any offset.

**Bodies** are JSON in camelCase. Members a request does not know are refused by name, except inside `data` and \
`context`; so are unknown query parameters. Times are RFC 3339; answers print UTC with milliseconds. Topics, \
event types and subject types are named by codes (`order.created`, `shop:orders:order:created`) or by \
[GTS](https://github.com/globalTypeSystem/gts-spec/) identifiers. In the path of a topic or an event type, `%3A` belongs to \
the name, and an unencoded last `:part` is a verb if it is one of the route's; at other paths a `:verb` may also be written \
`%3Averb`.

**Refusals** are RFC 9457 problem documents (`application/problem+json`). Programs branch on the code, the last part of \
`type`. A refusal changed nothing, unless its code says otherwise. The codes:";

fn info() -> Info {
    let mut license = License::new("Apache-2.0");
    license.identifier = Some("Apache-2.0".to_owned());
    InfoBuilder::new()
        .title("Event Broker")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(format!("{DESCRIPTION}\n\n{}", problems::table())))
        .license(Some(license))
        .build()
}
