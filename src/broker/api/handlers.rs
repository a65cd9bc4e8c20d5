//! Handlers.

use super::BrokerWrites;
use crate::broker::Broker;
use crate::ledger::ReplyRecorder;
use contract::api::{BoxFuture, HandlerApi};
use contract::{Cursor, Handler, NewHandler, Page, RegisterOutcome, Result};

impl BrokerWrites<'_> {
    pub(crate) async fn put_handler(
        self,
        name: &str,
        handler: NewHandler,
        recorder: ReplyRecorder<RegisterOutcome<Handler>>,
    ) -> Result<RegisterOutcome<Handler>> {
        self.refreshed().await?.claims(None).put_handler(name, handler, recorder).await
    }

    pub(crate) async fn delete_handler(self, name: &str, recorder: ReplyRecorder<()>) -> Result<()> {
        self.refreshed().await?.claims(None).delete_handler(name, &recorder).await
    }
}

impl HandlerApi for Broker {
    fn put_handler<'a>(
        &'a self,
        name: &'a str,
        handler: NewHandler,
    ) -> BoxFuture<'a, Result<RegisterOutcome<Handler>>> {
        Box::pin(self.writes().put_handler(name, handler, ReplyRecorder::disabled()))
    }

    fn handler<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Handler>> {
        Box::pin(self.with_refresh(move || async move { self.claims(None).handler(name).await }))
    }

    fn handlers<'a>(&'a self, cursor: Option<&'a Cursor>, limit: usize) -> BoxFuture<'a, Result<Page<Handler>>> {
        Box::pin(async move { self.claims(None).handlers(cursor, limit).await })
    }

    fn delete_handler<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.writes().delete_handler(name, ReplyRecorder::disabled()))
    }
}
