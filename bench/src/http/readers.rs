//! Readers that wait: long polls and streams, each on a connection of its own, noting when every event came.

use super::connection::{Connection, open_many};
use super::server::Server;
use super::text;
use crate::Outcome;
use crate::figures::share;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How a reader waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Poll,
    Stream,
}

/// What all readers of a case have received.
#[derive(Debug)]
pub(crate) struct Receipts {
    /// Stamps count nanoseconds from here.
    pub(crate) origin: Instant,
    count: AtomicU64,
    /// From sending to receiving, in nanoseconds.
    waits: Mutex<Vec<u32>>,
}

/// Readers at work; they end when this does.
pub(crate) struct Readers {
    pub(crate) receipts: Arc<Receipts>,
    tasks: Vec<JoinHandle<Outcome>>,
}

impl Receipts {
    fn note(&self, moments: &[u64]) {
        if moments.is_empty() {
            return;
        }
        let now = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let waits = moments.iter().map(|sent| u32::try_from(now.saturating_sub(*sent)).unwrap_or(u32::MAX));
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).extend(waits);
        self.count.fetch_add(moments.len() as u64, Ordering::Relaxed);
    }

    /// How many events were received since they were last taken.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// How long each took, in nanoseconds, ascending; then begins anew.
    pub(crate) fn take(&self) -> Vec<u32> {
        self.count.store(0, Ordering::Relaxed);
        let mut waits = std::mem::take(&mut *self.waits.lock().unwrap_or_else(PoisonError::into_inner));
        waits.sort_unstable();
        waits
    }

    /// Waits until so many were received; answers the milliseconds until the first, the middle and the last.
    pub(crate) async fn all(&self, count: u64) -> Outcome<[f64; 3]> {
        let begun = Instant::now();
        while self.count() < count {
            if begun.elapsed() > Duration::from_secs(20) {
                return Err(format!("{} of {count} readers were reached in 20 s", self.count()).into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let waits = self.take();
        let at = |part| share(&waits, part).map_or(f64::NAN, |nanos| f64::from(*nanos) / 1e6);
        Ok([at(0.0), at(0.5), at(1.0)])
    }
}

impl Readers {
    /// Starts so many, spread over the first `topics` topics, behind what there is; answers when all of them wait.
    pub(crate) async fn start(server: &Server, way: Way, count: u64, topics: u64) -> Outcome<Self> {
        let receipts = Arc::new(Receipts { origin: Instant::now(), count: AtomicU64::new(0), waits: Mutex::default() });
        let mut tails = Vec::new();
        let mut asking = Connection::open(server.endpoint()).await?;
        for number in 0..topics.min(count) {
            tails.push((text::topic(number), tail(&mut asking, &text::topic(number)).await?));
        }
        let mut tasks = Vec::new();
        let connections = open_many(server.endpoint(), count).await?;
        for (connection, (topic, offset)) in connections.into_iter().zip(tails.into_iter().cycle()) {
            let reader = Reader { connection, topic, offset, receipts: Arc::clone(&receipts) };
            tasks.push(tokio::spawn(reader.read(way)));
        }
        let readers = Self { receipts, tasks };
        server.settle().await?;
        readers.check().await?;
        Ok(readers)
    }

    /// Fails if one of them has ended.
    pub(crate) async fn check(&self) -> Outcome {
        tokio::task::yield_now().await;
        match self.tasks.iter().filter(|task| task.is_finished()).count() {
            0 => Ok(()),
            ended => Err(format!("{ended} readers were refused or cut off").into()),
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// How many events a topic has.
async fn tail(connection: &mut Connection, topic: &str) -> Outcome<u64> {
    let mut request = Vec::new();
    text::write_get(&mut request, format_args!("/v1/events?topic={topic}&offset=0&limit=1"));
    text::number_after(connection.expect(200, &request).await?, "\"tail\":")
}

struct Reader {
    connection: Connection,
    topic: String,
    offset: u64,
    receipts: Arc<Receipts>,
}

impl Reader {
    async fn read(self, way: Way) -> Outcome {
        let outcome = match way {
            Way::Poll => self.poll().await,
            Way::Stream => self.follow().await,
        };
        if let Err(error) = &outcome {
            eprintln!("bench: a reader ended: {error}");
        }
        outcome
    }

    async fn poll(mut self) -> Outcome {
        let (mut request, mut moments) = (Vec::new(), Vec::new());
        loop {
            let Self { topic, offset, .. } = &self;
            request.clear();
            moments.clear();
            text::write_get(
                &mut request,
                format_args!("/v1/events:poll?topic={topic}&offset={offset}&limit=100&timeout=30"),
            );
            let page = self.connection.expect(200, &request).await?;
            text::stamps(page, |sent| moments.push(sent));
            self.receipts.note(&moments);
            self.offset = text::number_after(page, "\"nextOffset\":")?;
        }
    }

    async fn follow(mut self) -> Outcome {
        let (mut request, mut moments) = (Vec::new(), Vec::new());
        let Self { topic, offset, .. } = &self;
        text::write_get(&mut request, format_args!("/v1/events:stream?topic={topic}&offset={offset}"));
        self.connection.follow(&request).await?;
        loop {
            moments.clear();
            self.connection.more(|bytes| text::stamps(bytes, |sent| moments.push(sent))).await?;
            self.receipts.note(&moments);
        }
    }
}
