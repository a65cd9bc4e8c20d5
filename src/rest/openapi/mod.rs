//! The OpenAPI document, and Swagger UI to read it with.
//!
//! - It is built once, when the server starts, with the limits of the configuration, and served as bytes with an `ETag`.
//! - [`operations`] has a file per resource, as `rest` has; [`schemas`] the JSON of the contract's types; [`problems`] the
//!   refusals. `schema_spec`, `operation_spec`, `parameters` and `headers` are the builders they use. Why this is written by hand:
//!   [decision 36](../../../docs/decisions/0036-openapi-by-hand.md).
//! - Tests compare the document with the routes, the contract's types and the responses of the real server.

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
    /// Largest and default `limit`.
    limit_max: u64,
    limit_default: u64,
    /// Longest and default wait of a poll, in seconds.
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
        // Explicitly without credentials.
        .security(Some([]))
        .components(Some(components.build()))
        .build()
}

const DESCRIPTION: &str = "An event broker that keeps every event typed, ordered and durable.

Programs publish events of registered types. The broker validates them, assigns their numbers and stores them in an \
append-only log. Readers list them, wait for new ones, follow a stream, and read again from any offset.

**Bodies** are JSON in camelCase. Unknown members are refused by name, except inside `data` and `context`; so are unknown query \
parameters. Times are RFC 3339; responses use UTC with milliseconds. Topics, event types and subject types are named by codes \
(`order.created`, `shop:orders:order:created`) or by [GTS](https://github.com/globalTypeSystem/gts-spec/) identifiers. In the \
path of a topic, an event type or a consumer group, `%3A` belongs to the name, and an unencoded last `:part` is a custom \
method if the route has it. At other paths a custom method `:name` may also be written `%3Aname`.

**Problems** are RFC 9457 problem documents (`application/problem+json`). Programs should use the code, the last part of \
`type`. A refused request has changed nothing, unless its code says otherwise. The codes:";

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
