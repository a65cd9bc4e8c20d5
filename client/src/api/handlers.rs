//! Handlers.

use crate::client::Client;
use crate::query;
use crate::requests::NO_PARAMS;
use contract::api::{BoxFuture, HandlerApi};
use contract::{Cursor, Handler, NewHandler, Page, RegisterOutcome, Result};
use reqwest::Method;

impl HandlerApi for Client {
    fn put_handler<'a>(
        &'a self,
        name: &'a str,
        handler: NewHandler,
    ) -> BoxFuture<'a, Result<RegisterOutcome<Handler>>> {
        Box::pin(async move { self.register(Method::PUT, &["handlers", name], &handler).await })
    }

    fn handler<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Handler>> {
        Box::pin(async move { self.get(&["handlers", name], NO_PARAMS).await })
    }

    fn handlers<'a>(&'a self, cursor: Option<&'a Cursor>, limit: usize) -> BoxFuture<'a, Result<Page<Handler>>> {
        let query = query::page(cursor, limit);
        Box::pin(async move { self.list(&["handlers"], &query).await })
    }

    fn delete_handler<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.remove(&["handlers", name]).await })
    }
}
