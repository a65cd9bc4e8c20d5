//! Swagger UI: the page to read the document, and to send requests.
//!
//! - Its files are part of the binary. The browser loads nothing from other servers, and a policy forbids it.
//! - A file has an `ETag`: a browser that has it gets 304.
//! - The representations of a file are cached as long as the process runs ([`StaticPage`]); their number is fixed.

use super::AppState;
use super::pages::StaticPage;
use crate::rest::problem::HandlerResult;
use axum::Router;
use axum::extract::{Path, State};
use axum::response::Redirect;
use axum::routing::get;
use bytes::Bytes;
use contract::{Error, Kind, Result};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_SECURITY_POLICY, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use utoipa_swagger_ui::Config;

/// Scripts and data from this server only. Swagger UI uses inline styles, and icons are `data:` URLs.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' \
    data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// The name of the file of the path `/docs/`.
const INDEX: &str = "index.html";

/// A file of the binary.
#[derive(Clone)]
struct DocsFile {
    page: Arc<StaticPage>,
    /// Whether the binary contains it compressed.
    is_gzip: bool,
}

/// Files that were requested. They depend only on the binary.
static FILES: LazyLock<RwLock<HashMap<String, DocsFile>>> = LazyLock::new(RwLock::default);

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/docs", get(|| async { Redirect::to("/docs/") }))
        .route(
            "/docs/",
            get(|State(app): State<AppState>, headers: HeaderMap| async move { serve(&app, INDEX, &headers).await }),
        )
        .route(
            "/docs/{file}",
            get(|State(app): State<AppState>, Path(name): Path<String>, headers: HeaderMap| async move {
                serve(&app, &name, &headers).await
            }),
        )
}

async fn serve(app: &AppState, name: &str, request: &HeaderMap) -> HandlerResult {
    let DocsFile { page, is_gzip } = file(name)?;
    let mut response = page.answer(request, app.options.compression && !is_gzip).await;
    let headers = response.headers_mut();
    if is_gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// The file of this name.
fn file(name: &str) -> Result<DocsFile> {
    if let Some(known) = FILES.read().unwrap_or_else(PoisonError::into_inner).get(name) {
        return Ok(known.clone());
    }
    let config = Arc::new(Config::new(["/v1/openapi.json"]).deep_linking(true).display_request_duration(true));
    let found = utoipa_swagger_ui::serve(name, config).map_err(|error| {
        tracing::error!(%error, "a page of the documentation cannot be made");
        Error::new(Kind::Unavailable, "The page cannot be made; the server's log says why.")
    })?;
    let found = found.ok_or_else(|| Error::not_found("page"))?;
    let media = HeaderValue::from_str(&found.content_type);
    let media = media.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let bytes = match found.bytes {
        Cow::Borrowed(bytes) => Bytes::from_static(bytes),
        Cow::Owned(bytes) => Bytes::from(bytes),
    };
    let file = DocsFile { page: StaticPage::new(bytes, media), is_gzip: found.gzpipped };
    // Concurrent requests share the first result.
    let mut files = FILES.write().unwrap_or_else(PoisonError::into_inner);
    Ok(files.entry(name.to_owned()).or_insert(file).clone())
}
