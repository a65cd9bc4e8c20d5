//! A request's body on its way to a handler, and what becomes of the part that no handler reads.
//!
//! - An answer may leave before its request has wholly arrived: a refusal needs no body. Over HTTP/1 a peer that is still
//!   sending into a closed socket would never see it, so what is left is read and thrown away, beside the answer.
//! - That has its limits too: so many bytes, so long a silence, and a least rate, so that a body that drips does not hold
//!   its connection. Beyond them the connection ends.
//! - A peer that waits for `100 Continue` sends nothing until it has its answer; nothing is read from it.

use super::HttpOptions;
use super::head_meter::BodyReading;
use bytes::Bytes;
use http::header::EXPECT;
use http::{Request, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// Most bytes that are read for nothing.
const DISCARDED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The least rate at which a body that nobody reads must arrive, in bytes per second.
const RATE_MIN: usize = 256_000;

/// A body that is read to its end, if not by its handler.
pub(crate) struct DrainedBody {
    body: Option<hyper::body::Incoming>,
    ended: bool,
    /// How long a peer may be silent while its body is passed over; `None`: it is not.
    silence_max: Option<Duration>,
    /// Over HTTP/1: what comes next is still a part of this body.
    reading: Option<BodyReading>,
}

impl DrainedBody {
    /// The request with its body seen to.
    pub(crate) fn wrap(
        request: Request<hyper::body::Incoming>,
        options: &HttpOptions,
        reading: Option<BodyReading>,
    ) -> Request<axum::body::Body> {
        if request.version() > Version::HTTP_11 || request.body().is_end_stream() {
            return request.map(axum::body::Body::new);
        }
        let patience = (!request.headers().contains_key(EXPECT)).then_some(options.body_timeout);
        request
            .map(|body| axum::body::Body::new(Self { body: Some(body), ended: false, silence_max: patience, reading }))
    }
}

impl Body for DrainedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(context));
        self.ended = !matches!(frame, Some(Ok(_)));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for DrainedBody {
    fn drop(&mut self) {
        let left = self.body.take().filter(|body| !self.ended && !body.is_end_stream());
        // Without a runtime the process is on its way out, and so is the connection.
        if let (Some(left), Some(patience), Ok(runtime)) = (left, self.silence_max, Handle::try_current()) {
            runtime.spawn(discard_rest(left, patience, self.reading.take()));
        }
    }
}

/// Reads what is left of a body, within limits.
async fn discard_rest(mut body: hyper::body::Incoming, patience: Duration, _reading: Option<BodyReading>) {
    let (began, mut passed) = (Instant::now(), 0);
    while passed < DISCARDED_BYTES_MAX
        && let Ok(Some(Ok(frame))) = tokio::time::timeout_at(deadline(began, passed, patience), body.frame()).await
    {
        passed += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// Until when the next piece must have come: a silence may last for `patience`, but only once in a body that arrives at
/// the least rate.
fn deadline(began: Instant, passed: usize, patience: Duration) -> Instant {
    let earned = Duration::from_millis(u64::try_from(passed / (RATE_MIN / 1000)).unwrap_or(u64::MAX));
    began + patience + earned
}
