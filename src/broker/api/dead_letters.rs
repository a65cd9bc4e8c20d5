//! Dead letters.

use super::BrokerWrites;
use crate::broker::Broker;
use crate::ledger::ReplyRecorder;
use contract::api::{BoxFuture, DeadLetterApi};
use contract::{
    BulkResolveOutcome, BulkResolveRequest, Cursor, DeadLetter, DeadLetterFilter, DeadLetterSummary, Page, ProducerId,
    RedriveRequest, Result,
};
use uuid::Uuid;

impl BrokerWrites<'_> {
    pub(crate) async fn redrive(
        self,
        id: Uuid,
        redrive: RedriveRequest,
        by: Option<&ProducerId>,
        recorder: ReplyRecorder<DeadLetter>,
    ) -> Result<DeadLetter> {
        self.refreshed().await?.letters(by).redrive(id, &redrive, &recorder).await
    }

    pub(crate) async fn discard(
        self,
        id: Uuid,
        reason: String,
        by: Option<&ProducerId>,
        recorder: ReplyRecorder<DeadLetter>,
    ) -> Result<DeadLetter> {
        self.refreshed().await?.letters(by).discard(id, reason, &recorder).await
    }

    pub(crate) async fn redrive_all(
        self,
        order: BulkResolveRequest,
        by: Option<&ProducerId>,
        recorder: ReplyRecorder<BulkResolveOutcome>,
    ) -> Result<BulkResolveOutcome> {
        self.refreshed().await?.letters(by).redrive_all(order, &recorder).await
    }

    pub(crate) async fn discard_all(
        self,
        order: BulkResolveRequest,
        by: Option<&ProducerId>,
        recorder: ReplyRecorder<BulkResolveOutcome>,
    ) -> Result<BulkResolveOutcome> {
        self.refreshed().await?.letters(by).discard_all(order, &recorder).await
    }
}

impl DeadLetterApi for Broker {
    fn dead_letters<'a>(
        &'a self,
        filter: &'a DeadLetterFilter,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<DeadLetter>>> {
        Box::pin(async move { self.letters(None).list(filter, cursor, limit).await })
    }

    fn dead_letter_summary(&self) -> BoxFuture<'_, Result<DeadLetterSummary>> {
        Box::pin(async move { Ok(self.letters(None).summary()) })
    }

    fn dead_letter(&self, id: Uuid) -> BoxFuture<'_, Result<DeadLetter>> {
        Box::pin(self.with_refresh(move || async move { self.letters(None).get(id).await }))
    }

    fn redrive<'a>(
        &'a self,
        id: Uuid,
        redrive: RedriveRequest,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<DeadLetter>> {
        Box::pin(self.writes().redrive(id, redrive, by, ReplyRecorder::disabled()))
    }

    fn discard<'a>(
        &'a self,
        id: Uuid,
        reason: String,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<DeadLetter>> {
        Box::pin(self.writes().discard(id, reason, by, ReplyRecorder::disabled()))
    }

    fn redrive_all<'a>(
        &'a self,
        order: BulkResolveRequest,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BulkResolveOutcome>> {
        Box::pin(self.writes().redrive_all(order, by, ReplyRecorder::disabled()))
    }

    fn discard_all<'a>(
        &'a self,
        order: BulkResolveRequest,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BulkResolveOutcome>> {
        Box::pin(self.writes().discard_all(order, by, ReplyRecorder::disabled()))
    }
}
