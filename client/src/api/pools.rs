//! Pools.

use crate::client::Client;
use crate::query;
use crate::requests::NO_PARAMS;
use contract::api::{BoxFuture, PoolApi};
use contract::{Cursor, Page, Pool, PoolChange, Result};
use reqwest::Method;

impl PoolApi for Client {
    fn create_pool(&self, pool: Pool) -> BoxFuture<'_, Result<Pool>> {
        Box::pin(async move { self.post_keyed(&["pools"], &pool).await })
    }

    fn pool<'a>(&'a self, code: &'a str) -> BoxFuture<'a, Result<Pool>> {
        Box::pin(async move { self.get(&["pools", code], NO_PARAMS).await })
    }

    fn pools<'a>(&'a self, cursor: Option<&'a Cursor>, limit: usize) -> BoxFuture<'a, Result<Page<Pool>>> {
        let query = query::page(cursor, limit);
        Box::pin(async move { self.list(&["pools"], &query).await })
    }

    fn change_pool<'a>(&'a self, code: &'a str, change: PoolChange) -> BoxFuture<'a, Result<Pool>> {
        Box::pin(async move {
            self.send_json(self.request(Method::PATCH, &["pools", code], NO_PARAMS).json(&change).keyed()).await
        })
    }

    fn delete_pool<'a>(&'a self, code: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.remove(&["pools", code]).await })
    }
}
