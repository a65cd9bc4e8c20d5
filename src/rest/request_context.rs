//! What the server knows about a request and its handler may need: carried in the request's extensions.

use super::AppState;
use super::address_limiter::{AddressLimiter, AddressPermit};
use super::parked::ParkingSlot;
use super::problem::HandlerResult;
use super::request::ApiRequest;
use axum::extract::{FromRequest, Request};
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};
use contract::{Error, Kind};
use http::Uri;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The context of one request; clones share it.
#[derive(Clone)]
pub(crate) struct RequestContext(Arc<ContextState>);

struct ContextState {
    /// `None`: an HTTP/2 request, which waits in place.
    parking: Option<ParkingSlot>,
    address: IpAddr,
    /// As it was sent; the handler may see a normalised form.
    target: Uri,
    /// Whether `server.request_timeout_secs` does not apply.
    may_take_long: AtomicBool,
}

/// Permits become free as polls end, which takes up to half a minute.
const RETRY_SECONDS: u32 = 5;

impl RequestContext {
    pub(crate) fn new(parking: Option<ParkingSlot>, address: IpAddr, target: Uri) -> Self {
        Self(Arc::new(ContextState { parking, address, target, may_take_long: AtomicBool::new(false) }))
    }

    pub(crate) fn parking(&self) -> Option<&ParkingSlot> {
        self.0.parking.as_ref()
    }

    pub(crate) fn target(&self) -> &Uri {
        &self.0.target
    }

    /// Whether the request may take longer than `server.request_timeout_secs`.
    pub(crate) fn may_take_long(&self) -> bool {
        self.0.may_take_long.load(Ordering::Relaxed)
    }

    /// Counts the request among those that wait, and lifts its time-out. There is no other way to wait, so every request that
    /// waits is counted, however its target is spelt.
    pub(crate) fn begin_wait(&self, waits: &Arc<AddressLimiter>) -> Result<AddressPermit, Error> {
        let permit = waits.try_acquire(self.0.address).map_err(|_| waits_exhausted())?;
        self.lift_timeout();
        Ok(permit)
    }

    fn lift_timeout(&self) {
        self.0.may_take_long.store(true, Ordering::Relaxed);
    }
}

#[cold]
fn waits_exhausted() -> Error {
    let detail = "The maximum number of waiting requests is reached, in total or for this address; retry later.";
    Error::new(Kind::Overloaded, detail).with_retry_after(RETRY_SECONDS)
}

/// The handler of a route whose requests may take longer than `server.request_timeout_secs`: polls, streams, imports.
pub(crate) const fn waiting<H>(handler: H) -> WaitingHandler<H> {
    WaitingHandler { handler }
}

/// A handler without a time-out.
#[derive(Clone)]
pub(crate) struct WaitingHandler<H> {
    handler: H,
}

impl<H, F> Handler<(), AppState> for WaitingHandler<H>
where
    H: Fn(ApiRequest) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = HandlerResult> + Send + 'static,
{
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, request: Request, app: AppState) -> Self::Future {
        Box::pin(async move {
            if let Some(context) = request.extensions().get::<RequestContext>() {
                context.lift_timeout();
            }
            match ApiRequest::from_request(request, &app).await {
                Ok(request) => (self.handler)(request).await.into_response(),
                Err(refusal) => refusal,
            }
        })
    }
}
