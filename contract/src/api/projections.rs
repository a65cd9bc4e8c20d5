//! Projections: the checkpoints of views that are kept elsewhere.

use super::BoxFuture;
use crate::{Cursor, NewCheckpoint, NewProjection, Offset, Page, Projection, RegisterOutcome, Result};
use std::time::Duration;

/// Projections.
pub trait ProjectionApi: Send + Sync {
    /// Registers a projection. Another filter replaces the previous one; another topic is refused.
    fn put_projection<'a>(
        &'a self,
        name: &'a str,
        projection: NewProjection,
    ) -> BoxFuture<'a, Result<RegisterOutcome<Projection>>>;
    /// One projection.
    fn projection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Projection>>;
    /// Projections in the order of their names.
    fn projections<'a>(&'a self, cursor: Option<&'a Cursor>, limit: usize) -> BoxFuture<'a, Result<Page<Projection>>>;
    /// Deletes a projection. Requests that wait for it end with *not found*.
    fn delete_projection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>>;
    /// Moves a projection's checkpoint forwards. A checkpoint at or below the recorded one changes nothing.
    fn move_checkpoint<'a>(&'a self, name: &'a str, to: NewCheckpoint) -> BoxFuture<'a, Result<Projection>>;
    /// Starts a projection's next generation after `offset`: its view must be rebuilt from there.
    fn reset_projection<'a>(&'a self, name: &'a str, offset: Offset) -> BoxFuture<'a, Result<Projection>>;
    /// Waits until a projection's checkpoint has reached `offset`; [`Kind::ProjectionTimeout`](crate::Kind) if it has not
    /// by then.
    fn wait_for_projection<'a>(
        &'a self,
        name: &'a str,
        offset: Offset,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Projection>>;
}
