//! The report of an import while its body is still arriving, in bounded memory.
//!
//! Most HTTP libraries send a whole body before they read anything. If the import waited until its report is read, both
//! sides would wait for each other. Therefore:
//!
//! - Pieces of the report wait in a bounded queue. When it is full, the import waits once for a slow reader; after that
//!   it continues, and refusals that find no room are counted instead of reported.
//! - As soon as the client reads again, refusals are reported again.
//! - The last lines are not part of the queue: they always have room.
//! - An import whose client reads nothing for a long time ends; the last lines say so.

use crate::rest::problem::Problem;
use bytes::Bytes;
use contract::{Error, Kind};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{Instant, timeout};

/// The approximate size of a piece, in bytes.
const PIECE_BYTES: usize = 32 * 1024;
/// Pieces that wait for the client.
const PIECES_MAX: usize = 8;
/// How long the import waits for a slow reader.
const SLOW_READER_WAIT: Duration = Duration::from_secs(2);

/// The report of an import.
pub(super) struct ImportReport {
    pieces: Sender<Bytes>,
    /// The piece that is being filled, and how many refusals are in it.
    piece: Vec<u8>,
    refusals: u64,
    /// Since when the client has accepted nothing, with the queue full.
    unread_since: Option<Instant>,
    unread_max: Duration,
    unreported: u64,
}

impl ImportReport {
    /// A report, and the queue of its pieces.
    pub(super) fn new(unread_max: Duration) -> (Self, Receiver<Bytes>) {
        let (pieces, queue) = mpsc::channel(PIECES_MAX);
        let piece = Vec::new();
        (Self { pieces, piece, refusals: 0, unread_since: None, unread_max, unreported: 0 }, queue)
    }

    /// How many refusals were counted but not reported.
    pub(super) const fn unreported(&self) -> u64 {
        self.unreported
    }

    /// Reports a refused line.
    pub(super) async fn refuse(&mut self, line: u64, problem: &Problem) {
        write(&mut self.piece, &json!({"line": line, "error": problem.document(None, None)}));
        self.refusals += 1;
        if self.piece.len() >= PIECE_BYTES {
            self.flush().await;
        }
    }

    /// Reports the progress; an error means that the client has not read for too long.
    pub(super) async fn progress(&mut self, count: &Value) -> Result<(), Problem> {
        write(&mut self.piece, count);
        self.flush().await;
        match self.unread_since {
            Some(since) if since.elapsed() >= self.unread_max => {
                let seconds = self.unread_max.as_secs();
                let detail =
                    format!("Read the report of an import while you send: none of it was taken for {seconds} s.");
                Err(Error::new(Kind::RequestTimeout, detail).into())
            }
            _ => Ok(()),
        }
    }

    async fn flush(&mut self) {
        let (piece, refusals) = (std::mem::take(&mut self.piece), std::mem::take(&mut self.refusals));
        let reservation = match self.unread_since {
            None => timeout(SLOW_READER_WAIT, self.pieces.reserve()).await.ok().and_then(Result::ok),
            Some(_) => self.pieces.try_reserve().ok(),
        };
        match reservation {
            Some(reservation) => {
                reservation.send(piece.into());
                self.unread_since = None;
            }
            None => {
                self.unreported += refusals;
                self.unread_since.get_or_insert_with(Instant::now);
            }
        }
    }

    /// The last lines, with the refusals that are not in the queue.
    pub(super) fn last(mut self, error: Option<&Problem>, count: &Value) -> Bytes {
        if let Some(problem) = error {
            write(&mut self.piece, &json!({"error": problem.document(None, None)}));
        }
        write(&mut self.piece, count);
        self.piece.into()
    }
}

fn write(text: &mut Vec<u8>, line: &Value) {
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(&mut *text, line);
    text.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem() -> Problem {
        Error::new(Kind::Validation, "x".repeat(400)).into()
    }

    #[tokio::test(start_paused = true)]
    async fn unread_refusals_are_counted_and_delay_nothing() {
        let (mut report, mut queue) = ImportReport::new(Duration::from_secs(600));
        let began = Instant::now();
        for line in 0..100_000 {
            report.refuse(line, &problem()).await;
        }
        assert_eq!(began.elapsed(), SLOW_READER_WAIT);
        assert_eq!(queue.len(), PIECES_MAX);
        let taken = queue.recv().await.unwrap();
        assert!(taken.len() < PIECE_BYTES + 1024);
        report.progress(&json!({})).await.unwrap();
        assert_eq!(queue.len(), PIECES_MAX, "it reports again when there is room again");
        let unreported = report.unreported();
        drop(report);
        let mut reported = taken.iter().filter(|byte| **byte == b'\n').count();
        while let Some(piece) = queue.recv().await {
            reported += piece.iter().filter(|byte| **byte == b'\n').count();
        }
        // One of the lines is the progress.
        assert_eq!(reported as u64 - 1 + unreported, 100_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_that_is_read_is_whole_however_slowly() {
        let (mut report, mut queue) = ImportReport::new(Duration::from_secs(600));
        let reader = tokio::spawn(async move {
            let (mut lines, mut ticks) = (0, tokio::time::interval(SLOW_READER_WAIT / 2));
            while let Some(piece) = queue.recv().await {
                lines += piece.iter().filter(|byte| **byte == b'\n').count();
                ticks.tick().await;
            }
            lines
        });
        for line in 0..10_000 {
            report.refuse(line, &problem()).await;
        }
        assert_eq!(report.unreported(), 0);
        report.progress(&json!({})).await.unwrap();
        drop(report);
        assert_eq!(reader.await.unwrap(), 10_001);
    }

    #[tokio::test(start_paused = true)]
    async fn an_import_whose_client_reads_nothing_ends() {
        let (mut report, _queue) = ImportReport::new(Duration::from_secs(600));
        let began = Instant::now();
        let refusal = loop {
            tokio::time::advance(Duration::from_secs(1)).await;
            if let Err(problem) = report.progress(&json!({})).await {
                break problem;
            }
        };
        assert_eq!(refusal.status(), 408);
        assert!(began.elapsed() < Duration::from_secs(620), "{:?}", began.elapsed());
    }
}
