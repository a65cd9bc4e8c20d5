//! Projections.

use super::BrokerWrites;
use crate::broker::Broker;
use crate::ledger::ReplyRecorder;
use crate::projections::AwaitedProjection;
use contract::api::{BoxFuture, ProjectionApi};
use contract::{Cursor, NewCheckpoint, NewProjection, Offset, Page, Projection, RegisterOutcome, Result};
use std::time::Duration;

impl BrokerWrites<'_> {
    pub(crate) async fn put_projection(
        self,
        name: &str,
        projection: NewProjection,
        recorder: ReplyRecorder<RegisterOutcome<Projection>>,
    ) -> Result<RegisterOutcome<Projection>> {
        self.refreshed().await?.projections().put(name, projection, recorder).await
    }

    pub(crate) async fn delete_projection(self, name: &str, recorder: ReplyRecorder<()>) -> Result<()> {
        self.refreshed().await?.projections().delete(name, recorder).await
    }

    pub(crate) async fn move_checkpoint(
        self,
        name: &str,
        to: NewCheckpoint,
        recorder: ReplyRecorder<Projection>,
    ) -> Result<Projection> {
        let recorder = &recorder;
        self.with_refresh(|broker| async move { broker.projections().checkpoint(name, to, recorder.clone()).await })
            .await
    }

    pub(crate) async fn reset_projection(
        self,
        name: &str,
        offset: Offset,
        recorder: ReplyRecorder<Projection>,
    ) -> Result<Projection> {
        self.refreshed().await?.projections().reset(name, offset, recorder).await
    }
}

impl Broker {
    /// The projections that a publish waits for, by their names with commas between them.
    pub(crate) async fn awaited_projections(&self, names: &str) -> Result<Vec<AwaitedProjection>> {
        self.with_refresh(|| async move { self.projections().awaited(names.split(',')) }).await
    }
}

impl ProjectionApi for Broker {
    fn put_projection<'a>(
        &'a self,
        name: &'a str,
        projection: NewProjection,
    ) -> BoxFuture<'a, Result<RegisterOutcome<Projection>>> {
        Box::pin(self.writes().put_projection(name, projection, ReplyRecorder::disabled()))
    }

    fn projection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(self.with_refresh(move || async move { self.projections().get(name).await }))
    }

    fn projections<'a>(&'a self, cursor: Option<&'a Cursor>, limit: usize) -> BoxFuture<'a, Result<Page<Projection>>> {
        Box::pin(async move { self.projections().list(cursor, limit).await })
    }

    fn delete_projection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.writes().delete_projection(name, ReplyRecorder::disabled()))
    }

    fn move_checkpoint<'a>(&'a self, name: &'a str, to: NewCheckpoint) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(self.writes().move_checkpoint(name, to, ReplyRecorder::disabled()))
    }

    fn reset_projection<'a>(&'a self, name: &'a str, offset: Offset) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(self.writes().reset_projection(name, offset, ReplyRecorder::disabled()))
    }

    fn wait_for_projection<'a>(
        &'a self,
        name: &'a str,
        offset: Offset,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Projection>> {
        Box::pin(self.with_refresh(move || async move { self.projections().wait(name, offset, timeout).await }))
    }
}
