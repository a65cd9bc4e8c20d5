//! A connection's alarm: set for every head and every request, and hardly ever ringing.
//!
//! A timer that is set anew leaves its place among all the others and takes another one, under a lock they share. This one
//! stays where it is for as long as it comes early enough; when its time has come, it looks whether anybody is late.

use hyper::rt::Timer;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// For one task, which waits for one thing at a time.
#[derive(Clone, Default)]
pub(crate) struct ConnectionTimer(Arc<Mutex<Option<Pin<Box<Sleep>>>>>);

impl ConnectionTimer {
    /// What `future` comes to, if it does in time.
    pub(crate) async fn timeout<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        let due = Instant::now() + time;
        let mut future = pin!(future);
        std::future::poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => self.poll_due(context, due).map(|()| None),
        })
        .await
    }

    /// Whether it is time; if not, the task is woken then, or before.
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
        Box::pin(TimerSleep { alarm: self.clone(), at: deadline.into() })
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into()
    }
}

/// An alarm, set by hyper.
struct TimerSleep {
    alarm: ConnectionTimer,
    at: Instant,
}

impl Future for TimerSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.alarm.poll_due(context, self.at)
    }
}

impl hyper::rt::Sleep for TimerSleep {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::time::advance;

    const SECOND: Duration = Duration::from_secs(1);

    /// Ends when so much of the time went by, of which the test is the clock.
    fn after(time: Duration) -> Sleep {
        sleep_until(Instant::now() + time)
    }

    #[tokio::test(start_paused = true)]
    async fn it_rings_when_somebody_is_late_however_often_it_was_set_before() {
        let alarm = ConnectionTimer::default();
        for _ in 0..10 {
            assert_eq!(alarm.timeout(30 * SECOND, after(7 * SECOND)).await, Some(()));
        }
        let begun = Instant::now();
        assert_eq!(alarm.timeout(30 * SECOND, pending::<()>()).await, None);
        assert_eq!(begun.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn it_rings_early_for_who_is_in_more_of_a_hurry() {
        let alarm = ConnectionTimer::default();
        assert_eq!(alarm.timeout(60 * SECOND, after(SECOND)).await, Some(()));
        let begun = Instant::now();
        alarm.sleep_until((begun + 2 * SECOND).into()).await;
        assert_eq!(begun.elapsed().as_secs(), 2);
        // It rings once more for each who sets it, though its time is long past.
        advance(100 * SECOND).await;
        alarm.sleep_until((Instant::now() + 3 * SECOND).into()).await;
        assert_eq!(begun.elapsed().as_secs(), 105);
    }
}
