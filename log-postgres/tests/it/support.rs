//! Databases of the tests' own, and logs in them.

use contract::BoxFuture;
use log::Log;
use log::testing::Engine;
use log_postgres::testing::Server;
use log_postgres::{Options, PostgresLog};
use std::sync::Arc;

/// A log in an empty database of the shared server.
pub(crate) struct TestEngine {
    pub(crate) url: String,
}

impl TestEngine {
    pub(crate) fn new() -> Self {
        Self { url: Server::shared().create_database() }
    }
}

impl Engine for TestEngine {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Log>> {
        Box::pin(async { Arc::new(open(&self.url).await) as Arc<dyn Log> })
    }
}

pub(crate) async fn open(url: &str) -> PostgresLog {
    PostgresLog::open(url, Options::default()).await.unwrap()
}
