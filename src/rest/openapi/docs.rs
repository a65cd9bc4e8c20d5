//! Swagger UI: the page to read the document on, and to try it.
//!
//! - Its files come out of the binary; the browser fetches nothing from anywhere else, and is told so.
//! - A file has an `ETag`: a browser that has it already is answered 304.

use super::{App, Served};
use crate::rest::problem::Answer;
use axum::Router;
use axum::extract::Path;
use axum::response::Redirect;
use axum::routing::get;
use bytes::Bytes;
use contract::{Error, Kind};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_SECURITY_POLICY, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use std::sync::Arc;
use utoipa_swagger_ui::Config;

/// Scripts and data from this server only. Styles stand inline in what Swagger UI draws, and icons are `data:` URLs.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' \
    data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

pub(super) fn routes() -> Router<App> {
    let config = Arc::new(Config::new(["/v1/openapi.json"]).deep_linking(true).display_request_duration(true));
    let files = Arc::clone(&config);
    Router::new()
        .route("/docs", get(|| async { Redirect::to("/docs/") }))
        .route("/docs/", get(move |headers: HeaderMap| async move { file("", config, &headers) }))
        .route(
            "/docs/{file}",
            get(move |Path(name): Path<String>, headers: HeaderMap| async move { file(&name, files, &headers) }),
        )
}

fn file(name: &str, config: Arc<Config<'static>>, asked: &HeaderMap) -> Answer {
    let found = utoipa_swagger_ui::serve(name, config).map_err(|error| {
        tracing::error!(%error, "a page of the documentation cannot be made");
        Error::new(Kind::Unavailable, "The page cannot be made; the server's log says why.")
    })?;
    let file = found.ok_or_else(|| Error::not_found("page"))?;
    let media = HeaderValue::from_str(&file.content_type);
    let media = media.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let mut response = Served::new(Bytes::from(file.bytes.into_owned()), media).answer(asked);
    let headers = response.headers_mut();
    if file.gzpipped {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}
