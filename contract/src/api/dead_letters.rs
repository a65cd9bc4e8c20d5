//! Dead letters: work that was given up, and the two ways to resolve it.

use super::BoxFuture;
use crate::{
    BulkResolveOutcome, BulkResolveRequest, Cursor, DeadLetter, DeadLetterFilter, DeadLetterSummary, Page, ProducerId,
    RedriveRequest, Result,
};
use uuid::Uuid;

/// Dead letters.
pub trait DeadLetterApi: Send + Sync {
    /// Dead letters in the order in which they were given up.
    fn dead_letters<'a>(
        &'a self,
        filter: &'a DeadLetterFilter,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<DeadLetter>>>;
    /// The number of open dead letters per handler or subscription, and topic.
    fn dead_letter_summary(&self) -> BoxFuture<'_, Result<DeadLetterSummary>>;
    /// One dead letter.
    fn dead_letter(&self, id: Uuid) -> BoxFuture<'_, Result<DeadLetter>>;
    /// Makes a dead letter's event available again, or publishes a corrected event in its place.
    fn redrive<'a>(
        &'a self,
        id: Uuid,
        redrive: RedriveRequest,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<DeadLetter>>;
    /// Decides that a dead letter's event need not be worked on.
    fn discard<'a>(&'a self, id: Uuid, reason: String, by: Option<&'a ProducerId>)
    -> BoxFuture<'a, Result<DeadLetter>>;
    /// Redrives every open dead letter that the request selects, and returns how many.
    fn redrive_all<'a>(
        &'a self,
        order: BulkResolveRequest,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BulkResolveOutcome>>;
    /// Discards every open dead letter that the request selects, and returns how many.
    fn discard_all<'a>(
        &'a self,
        order: BulkResolveRequest,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BulkResolveOutcome>>;
}
