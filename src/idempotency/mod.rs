//! Stored replies: the reply to a request with an `Idempotency-Key`, found again when the request is repeated.
//!
//! - A key is looked up in every log: the reply is stored with its effect, and the next request with the key may concern another
//!   log.
//! - An expired key is ignored: the request is a new one.
//! - A replay is the stored reply, byte for byte. Events in it are not copied but read from their logs; if retention has removed
//!   one, the replay is refused, as a duplicate of it would be.
//!
//! The ledger stores a reply with its effect; `rest` renders it.

mod in_flight;
mod scope;

pub(crate) use in_flight::{InFlightGuard, InFlightKeys};
pub(crate) use scope::{KeyScope, digest};

use crate::ledger::{Entry, IdempotencyRow, IdempotentRequest, Ledger, ReplyPiece, StoredReply, read_failed};
use crate::logs::Logs;
use bytes::Bytes;
use contract::{Error, Kind, Position, Result};
use log::{ReadLimit, ReadRange, Record};
use std::sync::Arc;
use uuid::Uuid;

/// The stored replies of all logs.
pub(crate) struct StoredReplies<'a> {
    pub(crate) logs: &'a Logs,
    /// How long a key is valid.
    pub(crate) lives_millis: i64,
}

/// A key with a stored reply.
pub(crate) struct FoundReply<'a> {
    logs: &'a Logs,
    ledger: Arc<Ledger>,
    key: u128,
    remembered: IdempotencyRow,
}

/// A reply to be sent again.
pub(crate) struct ReplayedReply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
}

impl<'a> StoredReplies<'a> {
    /// The identity of a request with a key.
    pub(crate) fn request(&self, key: u128, digest: u64) -> Arc<IdempotentRequest> {
        Arc::new(IdempotentRequest::new(key, digest, self.lives_millis))
    }

    /// The reply stored under a valid key, in any log.
    pub(crate) async fn find(&self, key: u128) -> Result<Option<FoundReply<'a>>> {
        for ledger in self.logs.ledgers() {
            let remembered = ledger.query_rows(move |state| state.stored_key(key)).await?;
            let age = |known: &IdempotencyRow| ledger.time_for(known.time).saturating_sub(known.time);
            let lives = |known: &IdempotencyRow| age(known) < self.lives_millis;
            if let Some(remembered) = remembered.filter(lives) {
                return Ok(Some(FoundReply { logs: self.logs, ledger, key, remembered }));
            }
        }
        Ok(None)
    }

    /// The position of the registry that a refusal depends on.
    pub(crate) fn registry_version(&self) -> Position {
        self.logs.default_ledger().registry().version()
    }

    /// Names events by log and position, for a reply that the default log stores. `None` if one is removed already: such a reply
    /// could not be replayed.
    pub(crate) async fn name_events(&self, events: Vec<(Position, Bytes)>) -> Result<Option<Vec<ReplyPiece>>> {
        let mut names = Vec::new();
        for (position, text) in events {
            let Some(name) = self.name_event(position, &text).await? else { return Ok(None) };
            names.push(name);
        }
        Ok(Some(names))
    }

    async fn name_event(&self, position: Position, text: &Bytes) -> Result<Option<ReplyPiece>> {
        for (location, ledger) in self.logs.housed_ledgers() {
            if let Some(event) = record_at(&ledger, position).await?.filter(|event| event.body == *text) {
                let id = Uuid::from_u128(event.header.id);
                return Ok(Some(match location {
                    None => ReplyPiece::Event(position),
                    Some(log) => ReplyPiece::EventOf { log, position, id },
                }));
            }
        }
        Ok(None)
    }

    /// Stores a reply by itself; a refusal only if the registry is still at the position that it `rests_on`.
    pub(crate) async fn record_reply(
        &self,
        ticket: Arc<IdempotentRequest>,
        answer: StoredReply,
        rests_on: Option<Position>,
    ) -> Result<()> {
        self.logs.default_ledger().record_reply(ticket, answer, rests_on).await
    }
}

impl FoundReply<'_> {
    /// Whether it is the reply to the request with this digest.
    pub(crate) const fn answers(&self, digest: u64) -> bool {
        self.remembered.digest == digest
    }

    /// Reads the reply.
    pub(crate) async fn replay(&self) -> Result<ReplayedReply> {
        let record = match record_at(&self.ledger, self.remembered.position).await? {
            Some(record) => Some(record),
            None => self.rewritten_entry().await?,
        };
        let entry = record.and_then(|record| serde_json::from_slice::<Entry>(&record.body).ok());
        let Some(Entry::AnswerKept { answer: StoredReply { status, headers, body }, .. }) = entry else {
            return Err(Error::new(Kind::Unavailable, "A stored reply could not be read; see the server's log."));
        };
        Ok(ReplayedReply { status, headers, body: self.assemble(body).await? })
    }

    /// The entry of the reply, if it was written again and the first one reclaimed since the key was looked up.
    async fn rewritten_entry(&self) -> Result<Option<Record>> {
        let (key, IdempotencyRow { position, .. }) = (self.key, self.remembered);
        let known = self.ledger.query_rows(move |state| state.stored_key(key)).await?;
        match known.filter(|known| known.position != position) {
            Some(known) => record_at(&self.ledger, known.position).await,
            None => Ok(None),
        }
    }

    async fn assemble(&self, pieces: Vec<ReplyPiece>) -> Result<Bytes> {
        let mut body = Vec::new();
        for piece in pieces {
            match piece {
                ReplyPiece::Text(text) => body.extend_from_slice(text.as_bytes()),
                ReplyPiece::Event(position) => {
                    let event = record_at(&self.ledger, position).await?.ok_or_else(reply_removed)?;
                    body.extend_from_slice(&event.body);
                }
                ReplyPiece::EventOf { log, position, id } => {
                    // The log was dropped with its events.
                    let side = self.logs.side_log(&log).map_err(|_| reply_removed())?;
                    let event = record_at(&side.ledger, position).await?;
                    let event = event.filter(|event| event.header.id == id.as_u128()).ok_or_else(reply_removed)?;
                    body.extend_from_slice(&event.body);
                }
            }
        }
        Ok(body.into())
    }
}

async fn record_at(ledger: &Ledger, position: Position) -> Result<Option<Record>> {
    let range = ReadRange::All(Position(position.0.saturating_sub(1)));
    let page =
        ledger.log().read_committed(range, ReadLimit { records: 1, bytes: usize::MAX }).await.map_err(read_failed)?;
    Ok(page.into_iter().next().filter(|record| record.header.position == position))
}

fn reply_removed() -> Error {
    let detail = "This request was processed before, and retention has removed an event of its response since; it is not \
        processed again.";
    Error::new(Kind::Trimmed, detail)
}
