//! The writer's inbox: how many waiting commands are taken and decided at once.

use super::WriterMessage;
use tokio::sync::mpsc;

/// Bytes of commands that are decided at once; the others wait for the next iteration. Each decided command is held
/// twice more until it is durable: as records, and as the bytes of the batch.
const DECIDED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The most commands that are taken from the queue at once.
pub(super) const TAKE_MAX: usize = 128;

/// Waits for commands, unless some are left. `taken` stays empty when the queue is closed.
pub(super) async fn refill(taken: &mut Vec<WriterMessage>, inbox: &mut mpsc::Receiver<WriterMessage>) {
    if taken.is_empty() {
        inbox.recv_many(taken, TAKE_MAX).await;
    }
}

/// How many of these are decided at once: at least one.
pub(super) fn fitting(taken: &[WriterMessage]) -> usize {
    let mut bytes = 0;
    let fits = |message: &&WriterMessage| {
        let fits = bytes < DECIDED_BYTES_MAX;
        bytes += match message {
            WriterMessage::Command(job) => job.bytes(),
            WriterMessage::Query(_) | WriterMessage::Checkpoint(_) | WriterMessage::Close(_) => 0,
        };
        fits
    };
    taken.iter().take_while(fits).count()
}

/// Lets all tasks that are ready to run send their commands first: what is decided together is appended together. If no
/// task is ready, that takes no time.
pub(super) async fn gather(taken: &mut Vec<WriterMessage>, inbox: &mut mpsc::Receiver<WriterMessage>) {
    if taken.len() < TAKE_MAX {
        tokio::task::yield_now().await;
    }
    while taken.len() < TAKE_MAX
        && let Ok(message) = inbox.try_recv()
    {
        taken.push(message);
    }
}
