//! The stop signal: it arrives once, and may be checked any number of times.

use futures_util::FutureExt;
use std::pin::Pin;
use std::time::Duration;

/// A stop signal that has arrived or will arrive.
pub(crate) struct StopSignal<'a> {
    order: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
    stopped: bool,
}

/// Which came first: the result or the stop signal.
pub(crate) enum UntilStopped<T> {
    Done(T),
    Stopped,
}

impl<'a> StopSignal<'a> {
    pub(crate) fn new(order: impl Future<Output = ()> + Send + 'a) -> Self {
        Self { order: Box::pin(order), stopped: false }
    }

    /// Whether it has arrived.
    pub(crate) fn is_stopped(&mut self) -> bool {
        self.stopped = self.stopped || self.order.as_mut().now_or_never().is_some();
        self.stopped
    }

    /// Runs this, unless the signal arrives first; then the work is dropped.
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

    /// Waits, and returns whether the signal arrived meanwhile.
    pub(crate) async fn stopped_within(&mut self, wait: Duration) -> bool {
        matches!(self.unless_stopped(tokio::time::sleep(wait)).await, UntilStopped::Stopped)
    }
}
