//! A request that may have to wait for its response, and its way into the slot.

use super::slot::ParkedRequest;
use crate::rest::address_limiter::AddressLimiter;
use crate::rest::problem::HandlerResult;
use crate::rest::request_context::RequestContext;
use contract::BoxFuture;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use std::future::pending;
use std::sync::Arc;
use tokio::time::Instant;

/// The rest of a handler's work.
pub(super) type ParkedFuture = BoxFuture<'static, HandlerResult>;

/// The head of a request whose handler may wait.
pub(crate) struct WaitingRequest {
    parts: Parts,
    context: Option<RequestContext>,
    waits: Arc<AddressLimiter>,
}

impl WaitingRequest {
    /// `waits` limits how many requests wait.
    pub(crate) fn new(mut parts: Parts, waits: Arc<AddressLimiter>) -> Self {
        let context = parts.extensions.remove::<RequestContext>();
        Self { parts, context, waits }
    }

    /// Waits for `response`: parked if the connection allows it, otherwise in place.
    pub(crate) fn wait(self, response: impl Future<Output = HandlerResult> + Send + 'static) -> ParkedFuture {
        let mut future: ParkedFuture = Box::pin(response);
        let Self { mut parts, context, waits } = self;
        let Some(context) = context else { return future };
        let has_body = [CONTENT_LENGTH, TRANSFER_ENCODING].iter().any(|name| parts.headers.contains_key(name));
        let Some(parking) = context.parking().filter(|_| !has_body).cloned() else {
            drop(parts);
            return Box::pin(async move {
                let _permit = context.begin_wait(&waits)?;
                future.await
            });
        };
        Box::pin(async move {
            if let Some(response) = parking.take_response() {
                return response;
            }
            // Only now: a request that was parked has waited with the permit of its first time.
            let permit = context.begin_wait(&waits)?;
            let received_at = Instant::now();
            if let Some(response) = parking.wait_on_connection(&mut future).await {
                return response;
            }
            parts.uri = context.target().clone();
            let request_head = encode_head(&parts);
            parking.park(ParkedRequest { request_head, future, received_at, _permit: permit });
            // The connection drops this future when it takes the slot, or when its peer has left.
            pending().await
        })
    }
}

/// The head of a request as hyper can read it again; names are in lower case.
pub(super) fn encode_head(parts: &Parts) -> Vec<u8> {
    let mut text = format!("{} {} {:?}\r\n", parts.method, parts.uri, parts.version).into_bytes();
    for (name, value) in &parts.headers {
        for piece in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            text.extend_from_slice(piece);
        }
    }
    text.extend_from_slice(b"\r\n");
    text
}
