//! A receiver of deliveries: the cheapest HTTP/1.1 server that is one, on a thread of its own.
//!
//! - Every delivery is answered `204`, or none is: then it holds whoever calls it.
//! - It notes when each stamped event came; the first delivery on a connection must be signed.

use super::text;
use crate::{Failure, Outcome};
use memchr::memmem;
use rustix::time::{ClockId, clock_gettime};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

const ANSWER: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
/// Room for the next read.
const ROOM: usize = 4096;

/// What a receiver does with a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It answers at once.
    Answers,
    /// It never answers.
    Holds,
}

/// A running receiver; it ends when it is let go.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    seen: Arc<Seen>,
    thread: Handle,
    _ending: oneshot::Sender<()>,
}

struct Seen {
    /// Stamps count nanoseconds from here.
    origin: Instant,
    count: AtomicU64,
    unsigned: AtomicBool,
    /// How long each stamped event took, in nanoseconds.
    waits: Mutex<Vec<u32>>,
}

impl Receiver {
    pub(crate) fn start(manner: Manner) -> Outcome<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (thread, (ending, ended)) = (runtime.handle().clone(), oneshot::channel::<()>());
        let seen = Arc::new(Seen {
            origin: Instant::now(),
            count: AtomicU64::new(0),
            unsigned: AtomicBool::new(false),
            waits: Mutex::default(),
        });
        let taking = Arc::clone(&seen);
        std::thread::Builder::new().name("receiver".to_owned()).spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    _ = ended => (),
                    taken = take_all(listener, taking, manner) => eprintln!("bench: a receiver ended: {taken:?}"),
                }
            });
        })?;
        Ok(Self { address, seen, thread, _ending: ending })
    }

    /// Stamps count nanoseconds from here.
    pub(crate) fn origin(&self) -> Instant {
        self.seen.origin
    }

    /// Deliveries so far.
    pub(crate) fn count(&self) -> u64 {
        self.seen.count.load(Ordering::Relaxed)
    }

    /// What has been received and how long it took, ascending; it begins anew.
    pub(crate) fn take(&self) -> Outcome<Vec<u32>> {
        if self.seen.unsigned.load(Ordering::Relaxed) {
            return Err("a delivery was not signed".into());
        }
        let mut waits = std::mem::take(&mut *self.seen.waits());
        waits.sort_unstable();
        Ok(waits)
    }

    /// Processor time of its thread so far.
    pub(crate) async fn cpu_time(&self) -> Outcome<Duration> {
        let asked = self.thread.spawn(async { clock_gettime(ClockId::ThreadCPUTime) });
        let spent = asked.await?;
        Ok(Duration::new(u64::try_from(spent.tv_sec)?, u32::try_from(spent.tv_nsec)?))
    }
}

impl Seen {
    fn waits(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, body: &[u8]) {
        let now = self.origin.elapsed().as_nanos();
        text::stamps(body, |sent| {
            let wait = now.saturating_sub(u128::from(sent));
            self.waits().push(u32::try_from(wait).unwrap_or(u32::MAX));
        });
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

async fn take_all(listener: std::net::TcpListener, seen: Arc<Seen>, manner: Manner) -> Outcome {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // One that breaks off is the broker's way of closing.
        tokio::spawn(serve(stream, Arc::clone(&seen), manner));
    }
}

async fn serve(mut stream: TcpStream, seen: Arc<Seen>, manner: Manner) -> Outcome {
    let (mut buffer, mut is_first) = (Vec::new(), true);
    loop {
        buffer.reserve(ROOM);
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        while let Some((head, whole)) = request_length(&buffer)? {
            if is_first && memmem::find(buffer.get(..head).unwrap_or_default(), b"webhook-signature: v1,").is_none() {
                seen.unsigned.store(true, Ordering::Relaxed);
            }
            is_first = false;
            seen.note(buffer.get(head..whole).unwrap_or_default());
            buffer.drain(..whole);
            if manner == Manner::Answers {
                stream.write_all(ANSWER).await?;
            }
        }
    }
}

/// Bytes of the head, and of head and body, if all of it is there.
fn request_length(bytes: &[u8]) -> Outcome<Option<(usize, usize)>> {
    const LENGTH: &[u8] = b"content-length: ";
    let Some(end) = memmem::find(bytes, b"\r\n\r\n") else { return Ok(None) };
    let head = bytes.get(..end + 2).unwrap_or_default();
    let no_length = || Failure::from("a delivery does not say how long it is");
    let start = memmem::find(head, LENGTH).ok_or_else(no_length)? + LENGTH.len();
    let digits = head.get(start..).and_then(|rest| rest.split(|byte| *byte == b'\r').next()).ok_or_else(no_length)?;
    let length: usize = std::str::from_utf8(digits)?.parse()?;
    let whole = end + 4 + length;
    Ok((bytes.len() >= whole).then_some((end + 4, whole)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_taken_when_it_is_whole() {
        let text = b"POST / HTTP/1.1\r\ncontent-length: 4\r\nhost: a\r\n\r\nbodyPOST";
        assert_eq!(request_length(text).unwrap(), Some((47, 51)));
        assert_eq!(request_length(&text[..50]).unwrap(), None);
        assert_eq!(request_length(&text[..40]).unwrap(), None);
        assert!(request_length(b"POST / HTTP/1.1\r\n\r\n").is_err());
    }
}
