//! Pools: concurrency and rate that subscriptions and tasks share.

use super::BoxFuture;
use crate::{Cursor, Page, Pool, PoolChange, Result};

/// Pools.
pub trait PoolApi: Send + Sync {
    /// Creates a pool.
    fn create_pool(&self, pool: Pool) -> BoxFuture<'_, Result<Pool>>;
    /// One pool.
    fn pool<'a>(&'a self, code: &'a str) -> BoxFuture<'a, Result<Pool>>;
    /// Pools in the order of their codes; the default pool is always one of them.
    fn pools<'a>(&'a self, cursor: Option<&'a Cursor>, limit: usize) -> BoxFuture<'a, Result<Page<Pool>>>;
    /// Changes a pool.
    fn change_pool<'a>(&'a self, code: &'a str, change: PoolChange) -> BoxFuture<'a, Result<Pool>>;
    /// Deletes a pool that is not used. Deleting the default pool restores its default settings.
    fn delete_pool<'a>(&'a self, code: &'a str) -> BoxFuture<'a, Result<()>>;
}
