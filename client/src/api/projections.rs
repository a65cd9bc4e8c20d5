//! Projections.

use crate::client::Client;
use crate::query;
use crate::requests::{NO_PARAMS, custom_method};
use crate::response;
use contract::api::{BoxFuture, ProjectionApi};
use contract::{Cursor, NewCheckpoint, NewProjection, Offset, Page, Projection, RegisterOutcome, Result};
use reqwest::Method;
use serde_json::json;
use std::time::Duration;

impl ProjectionApi for Client {
    fn put_projection<'a>(
        &'a self,
        name: &'a str,
        projection: NewProjection,
    ) -> BoxFuture<'a, Result<RegisterOutcome<Projection>>> {
        Box::pin(async move { self.register(Method::PUT, &["projections", name], &projection).await })
    }

    fn projection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(async move { self.get(&["projections", name], NO_PARAMS).await })
    }

    fn projections<'a>(&'a self, cursor: Option<&'a Cursor>, limit: usize) -> BoxFuture<'a, Result<Page<Projection>>> {
        let query = query::page(cursor, limit);
        Box::pin(async move { self.list(&["projections"], &query).await })
    }

    fn delete_projection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.remove(&["projections", name]).await })
    }

    fn move_checkpoint<'a>(&'a self, name: &'a str, to: NewCheckpoint) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(async move { self.post_repeatable(&["projections", &custom_method(name, "checkpoint")], &to).await })
    }

    fn reset_projection<'a>(&'a self, name: &'a str, offset: Offset) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(async move {
            self.post_keyed(&["projections", &custom_method(name, "reset")], &json!({"offset": offset})).await
        })
    }

    fn wait_for_projection<'a>(
        &'a self,
        name: &'a str,
        offset: Offset,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Projection>> {
        let mut query = query::one("offset", offset);
        query.push(query::seconds(timeout));
        Box::pin(async move {
            response::parse(&self.bytes(&["projections", &custom_method(name, "wait")], &query, timeout).await?)
        })
    }
}
