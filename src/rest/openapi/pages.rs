//! Static files: each representation is built once and shared by all responses.
//!
//! - A file has a tag with which a browser validates its copy; then no body is sent.
//! - It is compressed for the first client that accepts it, on a blocking thread, and cached.
//! - A response refers to the shared bytes, so that one that is not read needs no memory of its own.

use super::super::response_budget;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, VARY,
};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tower::{Layer, Service};
use tower_http::compression::CompressionLayer;

/// The supported codings, the preferred one first.
const CODINGS: [&str; 2] = ["zstd", "gzip"];

/// A file.
pub(super) struct StaticPage {
    bytes: Bytes,
    media: HeaderValue,
    /// Weak: all representations have the same.
    tag: HeaderValue,
    compressed: [OnceCell<Option<Bytes>>; 2],
}

impl StaticPage {
    pub(super) fn new(bytes: Bytes, media: HeaderValue) -> Arc<Self> {
        let digest = blake3::hash(&bytes).to_hex();
        let tag = format!("W/\"{}\"", digest.get(..16).unwrap_or_default());
        let tag = HeaderValue::from_str(&tag).unwrap_or_else(|_| HeaderValue::from_static("\"\""));
        Arc::new(Self { bytes, media, tag, compressed: Default::default() })
    }

    /// The response to a request with these headers, compressed if allowed.
    pub(super) async fn answer(&self, request: &HeaderMap, compresses: bool) -> Response {
        let mut response = match self.is_known(request) {
            true => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                response
            }
            false => {
                let coding = if compresses { preferred(request) } else { None };
                self.represented(coding).await
            }
        };
        let headers = response.headers_mut();
        headers.insert(ETAG, self.tag.clone());
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if compresses {
            headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        }
        response_budget::shared(response)
    }

    /// Whether the caller has it.
    fn is_known(&self, request: &HeaderMap) -> bool {
        let known = request.get_all(IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
        let own = opaque(self.tag.to_str().unwrap_or_default());
        known.flat_map(|tags| tags.split(',')).map(opaque).any(|tag| tag == "*" || tag == own)
    }

    async fn represented(&self, coding: Option<&'static str>) -> Response {
        let cell = coding.and_then(|coding| CODINGS.iter().zip(&self.compressed).find(|(known, _)| **known == coding));
        let compressed = match cell {
            Some((coding, cell)) => {
                let made = cell.get_or_init(|| compress(self.bytes.clone(), self.media.clone(), coding)).await;
                made.clone().map(|bytes| (coding, bytes))
            }
            None => None,
        };
        let mut response = Response::new(match &compressed {
            Some((_, bytes)) => Body::from(bytes.clone()),
            None => Body::from(self.bytes.clone()),
        });
        response.headers_mut().insert(CONTENT_TYPE, self.media.clone());
        if let Some((coding, _)) = compressed {
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
        }
        response
    }
}

/// The value of a tag, weak or strong.
fn opaque(tag: &str) -> &str {
    tag.trim().trim_start_matches("W/")
}

/// The coding that the caller prefers; `None`: uncompressed.
fn preferred(request: &HeaderMap) -> Option<&'static str> {
    let texts = request.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<(String, u16)> = texts.flat_map(|text| text.split(',')).map(weighted).collect();
    let weight_of = |coding: &str| {
        let of = |name: &str| named.iter().find(|(known, _)| known == name).map(|(_, weight)| *weight);
        of(coding).or_else(|| of("*")).unwrap_or(0)
    };
    let identity = named.iter().find(|(known, _)| known == "identity").map_or(0, |(_, weight)| *weight);
    let best = CODINGS.into_iter().rev().max_by_key(|coding| weight_of(coding))?;
    let weight = weight_of(best);
    (weight > 0 && weight >= identity).then_some(best)
}

/// A coding and its weight, in thousandths.
fn weighted(item: &str) -> (String, u16) {
    let (name, parameters) = item.split_once(';').unwrap_or((item, ""));
    let weight = parameters.trim().strip_prefix("q=").map_or(Some(1.0), |weight| weight.trim().parse::<f32>().ok());
    (name.trim().to_ascii_lowercase(), (weight.unwrap_or(0.0).clamp(0.0, 1.0) * 1000.0) as u16)
}

/// The bytes in this coding; `None` for media that are compressed already.
async fn compress(bytes: Bytes, media: HeaderValue, coding: &'static str) -> Option<Bytes> {
    let runtime = Handle::current();
    let work = move || runtime.block_on(compress_here(bytes, media, coding));
    tokio::task::spawn_blocking(work).await.ok().flatten()
}

async fn compress_here(bytes: Bytes, media: HeaderValue, coding: &'static str) -> Option<Bytes> {
    let mut plain = Response::new(Body::from(bytes));
    plain.headers_mut().insert(CONTENT_TYPE, media);
    let mut plain = Some(plain);
    let serve = tower::service_fn(move |_: Request<()>| {
        ready(Ok::<_, Infallible>(plain.take().unwrap_or_else(|| Response::new(Body::empty()))))
    });
    let request = Request::builder().header(ACCEPT_ENCODING, coding).body(()).ok()?;
    let response = CompressionLayer::new().layer(serve).call(request).await.ok()?;
    if response.headers().get(CONTENT_ENCODING)? != coding {
        return None;
    }
    Some(response.into_body().collect().await.ok()?.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(encodings: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(encodings))])
    }

    #[test]
    fn the_coding_is_what_the_caller_likes_best() {
        for (encodings, wanted) in [
            ("", None),
            ("br", None),
            ("gzip", Some("gzip")),
            ("gzip, deflate, br, zstd", Some("zstd")),
            ("GZIP;q=0.8, zstd;q=0.5", Some("gzip")),
            ("zstd;q=0, *", Some("gzip")),
            ("*;q=0.1", Some("zstd")),
            ("gzip;q=0.5, identity", None),
            ("gzip;q=0", None),
        ] {
            assert_eq!(preferred(&asked(encodings)), wanted, "{encodings}");
        }
    }

    #[tokio::test]
    async fn a_representation_is_made_once_and_shared_by_all_answers() {
        let page = StaticPage::new(Bytes::from(vec![b'x'; 100_000]), HeaderValue::from_static("text/css"));
        for encodings in ["", "gzip", "zstd"] {
            let mut places = Vec::new();
            for _ in 0..2 {
                let response = page.answer(&asked(encodings), true).await;
                places.push(response.into_body().collect().await.unwrap().to_bytes().as_ptr());
            }
            assert_eq!(places[0], places[1], "{encodings}: the bytes were made twice");
        }
    }

    #[tokio::test]
    async fn what_the_caller_has_already_is_not_compressed() {
        let page = StaticPage::new(Bytes::from(vec![b'x'; 100_000]), HeaderValue::from_static("text/css"));
        let mut headers = asked("gzip");
        headers.insert(IF_NONE_MATCH, page.tag.clone());
        assert_eq!(page.answer(&headers, true).await.status(), StatusCode::NOT_MODIFIED);
        assert!(page.compressed.iter().all(|cell| cell.get().is_none()));
    }
}
