//! Dead letters.

use crate::client::Client;
use crate::query;
use crate::requests::{NO_PARAMS, custom_method};
use contract::api::{BoxFuture, DeadLetterApi};
use contract::{
    BulkResolveOutcome, BulkResolveRequest, Cursor, DeadLetter, DeadLetterFilter, DeadLetterSummary, Page, ProducerId,
    RedriveRequest, Result,
};
use serde_json::json;
use uuid::Uuid;

impl DeadLetterApi for Client {
    fn dead_letters<'a>(
        &'a self,
        filter: &'a DeadLetterFilter,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<DeadLetter>>> {
        let query = query::of_letters(filter, cursor, limit);
        Box::pin(async move { self.list(&["dead-letters"], &query).await })
    }

    fn dead_letter_summary(&self) -> BoxFuture<'_, Result<DeadLetterSummary>> {
        Box::pin(async move { self.get(&["dead-letters", "summary"], NO_PARAMS).await })
    }

    fn dead_letter(&self, id: Uuid) -> BoxFuture<'_, Result<DeadLetter>> {
        Box::pin(async move { self.get(&["dead-letters", &id.to_string()], NO_PARAMS).await })
    }

    fn redrive<'a>(
        &'a self,
        id: Uuid,
        redrive: RedriveRequest,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<DeadLetter>> {
        Box::pin(
            async move { self.post_resolution(&["dead-letters", &custom_method(id, "redrive")], &redrive, by).await },
        )
    }

    fn discard<'a>(
        &'a self,
        id: Uuid,
        reason: String,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<DeadLetter>> {
        Box::pin(async move {
            self.post_resolution(&["dead-letters", &custom_method(id, "discard")], &json!({"reason": reason}), by).await
        })
    }

    fn redrive_all<'a>(
        &'a self,
        order: BulkResolveRequest,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BulkResolveOutcome>> {
        Box::pin(async move { self.post_resolution(&["dead-letters:redrive"], &order, by).await })
    }

    fn discard_all<'a>(
        &'a self,
        order: BulkResolveRequest,
        by: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<BulkResolveOutcome>> {
        Box::pin(async move { self.post_resolution(&["dead-letters:discard"], &order, by).await })
    }
}
