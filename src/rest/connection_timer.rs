//! The timer of a connection: set for every head and every request, although it rarely fires.
//!
//! Resetting a tokio timer moves it in the runtime's timer wheel, under a shared lock. This timer keeps its place while it
//! would fire early enough; when it fires, it checks whether anything is really late.

use hyper::rt::Timer;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// A timer for one task, which waits for one thing at a time.
#[derive(Clone, Default)]
pub(crate) struct ConnectionTimer(Arc<Mutex<Option<Pin<Box<Sleep>>>>>);

impl ConnectionTimer {
    /// The output of `future`; `None` if it takes longer than `time`.
    pub(crate) async fn timeout<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        self.timeout_while(time, || true, future).await
    }

    /// The same, where the time-out applies only while `applies` says so.
    pub(crate) async fn timeout_while<F: Future>(
        &self,
        time: Duration,
        applies: impl Fn() -> bool,
        future: F,
    ) -> Option<F::Output> {
        let due = Instant::now() + time;
        let mut future = pin!(future);
        std::future::poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if applies() => self.poll_due(context, due).map(|()| None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Ready when `due` has passed; otherwise the task is woken at that time or earlier.
    fn poll_due(&self, context: &mut Context<'_>, due: Instant) -> Poll<()> {
        let mut sleep = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sleep = sleep.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if sleep.deadline() > due {
            sleep.as_mut().reset(due);
        }
        ready!(sleep.as_mut().poll(context));
        if due <= Instant::now() {
            return Poll::Ready(());
        }
        sleep.as_mut().reset(due);
        sleep.as_mut().poll(context)
    }
}

impl Timer for ConnectionTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(TimerSleep { timer: self.clone(), due: deadline.into() })
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into()
    }
}

/// A time-out that hyper set.
struct TimerSleep {
    timer: ConnectionTimer,
    due: Instant,
}

impl Future for TimerSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.timer.poll_due(context, self.due)
    }
}

impl hyper::rt::Sleep for TimerSleep {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::time::advance;

    const SECOND: Duration = Duration::from_secs(1);

    /// Ends after `time` of the paused clock.
    fn sleep_for(time: Duration) -> Sleep {
        sleep_until(Instant::now() + time)
    }

    #[tokio::test(start_paused = true)]
    async fn it_fires_when_a_future_is_late_however_often_it_was_set_before() {
        let timer = ConnectionTimer::default();
        for _ in 0..10 {
            assert_eq!(timer.timeout(30 * SECOND, sleep_for(7 * SECOND)).await, Some(()));
        }
        let began = Instant::now();
        assert_eq!(timer.timeout(30 * SECOND, pending::<()>()).await, None);
        assert_eq!(began.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn it_fires_early_for_a_shorter_timeout() {
        let timer = ConnectionTimer::default();
        assert_eq!(timer.timeout(60 * SECOND, sleep_for(SECOND)).await, Some(()));
        let began = Instant::now();
        timer.sleep_until((began + 2 * SECOND).into()).await;
        assert_eq!(began.elapsed().as_secs(), 2);
        // It can be set again after it has fired.
        advance(100 * SECOND).await;
        timer.sleep_until((Instant::now() + 3 * SECOND).into()).await;
        assert_eq!(began.elapsed().as_secs(), 105);
    }
}
