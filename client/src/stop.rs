//! The order to stop: it comes once, and may be looked for any number of times.

use futures_util::FutureExt;
use std::pin::Pin;
use std::time::Duration;

/// An order to stop that has come or will come.
pub(crate) struct Stop<'a> {
    order: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
    came: bool,
}

/// What came first.
pub(crate) enum First<T> {
    Done(T),
    Stopped,
}

impl<'a> Stop<'a> {
    pub(crate) fn new(order: impl Future<Output = ()> + Send + 'a) -> Self {
        Self { order: Box::pin(order), came: false }
    }

    /// Whether it has come.
    pub(crate) fn came(&mut self) -> bool {
        self.came = self.came || self.order.as_mut().now_or_never().is_some();
        self.came
    }

    /// Does this, unless the order comes first; what is begun is dropped then.
    pub(crate) async fn or<T>(&mut self, work: impl Future<Output = T> + Send) -> First<T> {
        if self.came {
            return First::Stopped;
        }
        tokio::select! {
            biased;
            () = &mut self.order => {
                self.came = true;
                First::Stopped
            }
            done = work => First::Done(done),
        }
    }

    /// Waits for so long; whether the order came meanwhile.
    pub(crate) async fn came_within(&mut self, wait: Duration) -> bool {
        matches!(self.or(tokio::time::sleep(wait)).await, First::Stopped)
    }
}
