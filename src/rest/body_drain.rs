//! A request's body on its way to a handler, and the rest of it that no handler reads.
//!
//! - A response may be sent before its request has completely arrived: a refusal needs no body. Over HTTP/1, a peer that is
//!   still sending into a closed socket would never see it. So the rest is read and discarded while the response is sent.
//! - This is limited: in bytes, by the longest pause and by a minimum rate, so that a body that drips does not hold its
//!   connection. Beyond the limits the connection is closed.
//! - A peer that waits for `100 Continue` sends nothing before it has its response, so nothing is read from it.

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

/// Most bytes that are read and discarded.
const DISCARDED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The minimum rate at which a discarded body must arrive, in bytes per second.
const RATE_MIN: usize = 256_000;

/// A body that is read to its end, even if its handler does not.
pub(crate) struct DrainedBody {
    body: Option<hyper::body::Incoming>,
    ended: bool,
    /// The longest pause while the body is discarded; `None`: it is not discarded.
    pause_max: Option<Duration>,
    /// Over HTTP/1: the next bytes are still part of this body.
    reading: Option<BodyReading>,
}

impl DrainedBody {
    /// The request with such a body.
    pub(crate) fn wrap(
        request: Request<hyper::body::Incoming>,
        options: &HttpOptions,
        reading: Option<BodyReading>,
    ) -> Request<axum::body::Body> {
        if request.version() > Version::HTTP_11 || request.body().is_end_stream() {
            return request.map(axum::body::Body::new);
        }
        let pause_max = (!request.headers().contains_key(EXPECT)).then_some(options.body_timeout);
        request.map(|body| axum::body::Body::new(Self { body: Some(body), ended: false, pause_max, reading }))
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
        // Without a runtime the process is ending, and the connection with it.
        if let (Some(left), Some(pause_max), Ok(runtime)) = (left, self.pause_max, Handle::try_current()) {
            runtime.spawn(discard_rest(left, pause_max, self.reading.take()));
        }
    }
}

/// Reads the rest of a body, within the limits.
async fn discard_rest(mut body: hyper::body::Incoming, pause_max: Duration, _reading: Option<BodyReading>) {
    let (began, mut discarded) = (Instant::now(), 0);
    while discarded < DISCARDED_BYTES_MAX
        && let Ok(Some(Ok(frame))) = tokio::time::timeout_at(deadline(began, discarded, pause_max), body.frame()).await
    {
        discarded += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// The deadline of the next piece: a pause may last for `pause_max`, but only once in a body that arrives at the minimum
/// rate.
fn deadline(began: Instant, discarded: usize, pause_max: Duration) -> Instant {
    let earned = Duration::from_millis(u64::try_from(discarded / (RATE_MIN / 1000)).unwrap_or(u64::MAX));
    began + pause_max + earned
}
