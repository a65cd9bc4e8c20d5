//! Kept answers: what a request under a key was answered, found again when it is sent again.
//!
//! - A key is looked for in every log: it is kept where its effect is, and the next request under it may be about
//!   something that lives elsewhere.
//! - A key past its time is no key: the request is a new one.
//! - A replay is the kept answer, byte for byte. Events in it are read from the log; where retention has removed one,
//!   the replay is refused as a duplicate of it would be.
//!
//! How an answer comes to be kept with its effect is the ledger's business, what it looks like its renderer's.

mod in_flight;
mod scope;

pub(crate) use in_flight::{InFlight, Turn};
pub(crate) use scope::{Scope, digest};

use crate::ledger::{Entry, KeptAnswer, Ledger, Piece, Remembered, Ticket, read_failed};
use crate::logs::Logs;
use bytes::Bytes;
use contract::{Error, Kind, Position, Result};
use log::{Limit, Range, Record};
use std::sync::Arc;

/// The kept answers of all logs.
pub(crate) struct Answers<'a> {
    pub(crate) logs: &'a Logs,
    /// How long a key lives.
    pub(crate) lives_millis: i64,
}

/// A key that has its answer.
pub(crate) struct Found {
    ledger: Arc<Ledger>,
    key: u128,
    remembered: Remembered,
}

/// An answer to be given again.
pub(crate) struct Replay {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
}

impl Answers<'_> {
    /// What stands for a request under a key.
    pub(crate) fn ticket(&self, key: u128, digest: u64) -> Arc<Ticket> {
        Arc::new(Ticket::new(key, digest, self.lives_millis))
    }

    /// The answer kept under a key that lives, in whichever log.
    pub(crate) async fn find(&self, key: u128) -> Result<Option<Found>> {
        for ledger in self.logs.ledgers() {
            let remembered = ledger.ask(move |state| state.remembered(key)).await??;
            let now = ledger.now();
            let lives = |known: &Remembered| now.saturating_sub(known.time) < self.lives_millis;
            if let Some(remembered) = remembered.filter(lives) {
                return Ok(Some(Found { ledger, key, remembered }));
            }
        }
        Ok(None)
    }

    /// What is registered just now: a refusal rests on it.
    pub(crate) fn registry_version(&self) -> Position {
        self.logs.default_ledger().registry().version()
    }

    /// Keeps an answer by itself; a refusal only if what it `rests_on` is still so.
    pub(crate) async fn keep(&self, ticket: Arc<Ticket>, answer: KeptAnswer, rests_on: Option<Position>) -> Result<()> {
        self.logs.default_ledger().keep(ticket, answer, rests_on).await
    }
}

impl Found {
    /// Whether it answers the request of this digest.
    pub(crate) const fn answers(&self, digest: u64) -> bool {
        self.remembered.digest == digest
    }

    /// The answer itself.
    pub(crate) async fn replay(&self) -> Result<Replay> {
        let record = match record_at(&self.ledger, self.remembered.position).await? {
            Some(record) => Some(record),
            None => self.written_again().await?,
        };
        let entry = record.and_then(|record| serde_json::from_slice::<Entry>(&record.body).ok());
        let Some(Entry::AnswerKept { answer: KeptAnswer { status, headers, body }, .. }) = entry else {
            return Err(Error::new(Kind::Unavailable, "A kept answer could not be read; see the server's log."));
        };
        Ok(Replay { status, headers, body: self.assemble(body).await? })
    }

    /// The entry of the answer where it was written again, and the first one reclaimed, since the key was looked up.
    async fn written_again(&self) -> Result<Option<Record>> {
        let (key, Remembered { position, .. }) = (self.key, self.remembered);
        let known = self.ledger.ask(move |state| state.remembered(key)).await??;
        match known.filter(|known| known.position != position) {
            Some(known) => record_at(&self.ledger, known.position).await,
            None => Ok(None),
        }
    }

    async fn assemble(&self, pieces: Vec<Piece>) -> Result<Bytes> {
        let mut body = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => body.extend_from_slice(text.as_bytes()),
                Piece::Event(position) => {
                    let event = record_at(&self.ledger, position).await?.ok_or_else(gone)?;
                    body.extend_from_slice(&event.body);
                }
            }
        }
        Ok(body.into())
    }
}

async fn record_at(ledger: &Ledger, position: Position) -> Result<Option<Record>> {
    let range = Range::All(Position(position.0.saturating_sub(1)));
    let page =
        ledger.log().read_committed(range, Limit { records: 1, bytes: usize::MAX }).await.map_err(read_failed)?;
    Ok(page.into_iter().next().filter(|record| record.header.position == position))
}

fn gone() -> Error {
    let detail = "This request was carried out before, and retention has removed an event of its answer since; it is \
        not carried out again.";
    Error::new(Kind::Trimmed, detail)
}
