//! Pools: concurrency and rate that subscriptions share. The pool `default` always exists.

use super::decide::{ChangePool, CreatePool, DeletePool, unknown_pool};
use super::{DEFAULT_POOL, Subscriptions, validate};
use crate::config::DispatchConfig;
use crate::ledger::{DispatchRows, ReplyRecorder};
use contract::{Cursor, Error, Kind, Page, Pool, PoolChange, Result};
use std::collections::BTreeSet;

impl Subscriptions<'_> {
    /// Creates a pool. Creating the same pool again is no error.
    pub(crate) async fn create_pool(&self, pool: Pool, recorder: ReplyRecorder<Pool>) -> Result<Pool> {
        validate::pool(&pool)?;
        if pool.code == DEFAULT_POOL {
            return Err(Error::new(Kind::AlreadyExists, "The default pool is there already; change it."));
        }
        self.context.logs.default_ledger().submit_recording(CreatePool(pool), recorder).await
    }

    /// A pool by its code.
    pub(crate) fn pool(&self, code: &str) -> Result<Pool> {
        let rows = self.context.logs.default_ledger().dispatch();
        pool_of(&rows, &self.context.rules.config.dispatch, code).ok_or_else(|| Error::not_found("pool"))
    }

    /// Pools in order of their codes.
    pub(crate) fn pools(&self, cursor: Option<&Cursor>, limit: usize) -> Result<Page<Pool>> {
        self.context.reader.check_limit(limit)?;
        let mut pools: Vec<_> = self.context.logs.default_ledger().dispatch().pools().cloned().collect();
        if pools.iter().all(|pool| pool.code != DEFAULT_POOL) {
            pools.push(self.pool(DEFAULT_POOL)?);
        }
        pools.sort_unstable_by(|one, other| one.code.cmp(&other.code));
        Ok(Page::of(pools.into_iter(), cursor, limit, |pool| pool.code.clone()))
    }

    /// Changes a pool; deliveries in flight are not affected.
    pub(crate) async fn change_pool(
        &self,
        code: &str,
        change: PoolChange,
        recorder: ReplyRecorder<Pool>,
    ) -> Result<Pool> {
        let unstored = (code == DEFAULT_POOL).then(|| default_pool(&self.context.rules.config.dispatch));
        let change = ChangePool { code: code.to_owned(), change, unstored };
        self.context.logs.default_ledger().submit_recording(change, recorder).await
    }

    /// Deletes a pool that is not in use. For the default pool this restores its defaults.
    pub(crate) async fn delete_pool(&self, code: &str, recorder: ReplyRecorder<()>) -> Result<()> {
        // Meanwhile no subscription of a side log may start to use it.
        let _alone = self.context.logs.names().write().await;
        let mut used_elsewhere = BTreeSet::new();
        for side in self.context.logs.side_logs() {
            let rows = side.ledger.dispatch();
            let users = rows.subscriptions().filter(|row| row.definition.pool.as_deref() == Some(code));
            used_elsewhere.extend(users.map(|row| row.definition.code.clone()));
        }
        let drop = DeletePool { code: code.to_owned(), used_elsewhere };
        self.context.logs.default_ledger().submit_recording(drop, recorder).await
    }

    /// Refuses a pool that does not exist. Decisions in the default log check it again.
    pub(super) fn check_pool(&self, code: Option<&str>) -> Result<()> {
        match code {
            Some(code) if self.pool(code).is_err() => Err(unknown_pool()),
            _ => Ok(()),
        }
    }
}

/// A pool with its current definition.
pub(crate) fn pool_of(rows: &DispatchRows, config: &DispatchConfig, code: &str) -> Option<Pool> {
    rows.pool(code).cloned().or_else(|| (code == DEFAULT_POOL).then(|| default_pool(config)))
}

/// The default pool, as the configuration defines it.
fn default_pool(config: &DispatchConfig) -> Pool {
    Pool { code: DEFAULT_POOL.to_owned(), concurrency: config.concurrency, rate_per_minute: None }
}
