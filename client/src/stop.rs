//! The order to stop: it comes once, and may be looked for any number of times.

use futures_util::FutureExt;
use std::pin::Pin;
use std::time::Duration;

/// An order to stop that has come or will come.
pub(crate) struct StopSignal<'a> {
    order: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
    stopped: bool,
}

/// What came first.
pub(crate) enum UntilStopped<T> {
    Done(T),
    Stopped,
}

impl<'a> StopSignal<'a> {
    pub(crate) fn new(order: impl Future<Output = ()> + Send + 'a) -> Self {
        Self { order: Box::pin(order), stopped: false }
    }

    /// Whether it has come.
    pub(crate) fn is_stopped(&mut self) -> bool {
        self.stopped = self.stopped || self.order.as_mut().now_or_never().is_some();
        self.stopped
    }

    /// Does this, unless the order comes first; what is begun is dropped then.
    pub(crate) async fn unless_stopped<T>(&mut self, work: impl Future<Output = T> + Send) -> UntilStopped<T> {
        if self.stopped {
            return UntilStopped::Stopped;
        }
        tokio::select! {
            biased;
            () = &mut self.order => {
                self.stopped = true;
                UntilStopped::Stopped
            }
            done = work => UntilStopped::Done(done),
        }
    }

    /// Waits for so long; whether the order came meanwhile.
    pub(crate) async fn stopped_within(&mut self, wait: Duration) -> bool {
        matches!(self.unless_stopped(tokio::time::sleep(wait)).await, UntilStopped::Stopped)
    }
}
