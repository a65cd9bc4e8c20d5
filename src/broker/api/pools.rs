//! Pools.

use super::BrokerWrites;
use crate::broker::Broker;
use crate::ledger::ReplyRecorder;
use contract::api::{BoxFuture, PoolApi};
use contract::{Cursor, Page, Pool, PoolChange, Result};

impl BrokerWrites<'_> {
    pub(crate) async fn create_pool(self, pool: Pool, recorder: ReplyRecorder<Pool>) -> Result<Pool> {
        self.refreshed().await?.subscriptions(None).create_pool(pool, recorder).await
    }

    pub(crate) async fn change_pool(
        self,
        code: &str,
        change: PoolChange,
        recorder: ReplyRecorder<Pool>,
    ) -> Result<Pool> {
        self.refreshed().await?.subscriptions(None).change_pool(code, change, recorder).await
    }

    pub(crate) async fn delete_pool(self, code: &str, recorder: ReplyRecorder<()>) -> Result<()> {
        self.refreshed().await?.subscriptions(None).delete_pool(code, recorder).await
    }
}

impl PoolApi for Broker {
    fn create_pool(&self, pool: Pool) -> BoxFuture<'_, Result<Pool>> {
        Box::pin(self.writes().create_pool(pool, ReplyRecorder::disabled()))
    }

    fn pool<'a>(&'a self, code: &'a str) -> BoxFuture<'a, Result<Pool>> {
        Box::pin(async move {
            self.refresh().await?;
            self.subscriptions(None).pool(code)
        })
    }

    fn pools<'a>(&'a self, cursor: Option<&'a Cursor>, limit: usize) -> BoxFuture<'a, Result<Page<Pool>>> {
        Box::pin(async move {
            self.refresh().await?;
            self.subscriptions(None).pools(cursor, limit)
        })
    }

    fn change_pool<'a>(&'a self, code: &'a str, change: PoolChange) -> BoxFuture<'a, Result<Pool>> {
        Box::pin(self.writes().change_pool(code, change, ReplyRecorder::disabled()))
    }

    fn delete_pool<'a>(&'a self, code: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.writes().delete_pool(code, ReplyRecorder::disabled()))
    }
}
