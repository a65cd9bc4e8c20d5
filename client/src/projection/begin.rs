//! Where a runner starts: at the view's own checkpoint, at the broker's, or with an empty view.

use super::error::ViewError;
use super::{Checkpoint, ProjectionError, ProjectionRunner, ProjectionView};
use crate::retry::jitter;
use crate::stop::StopSignal;
use contract::Projection;

impl<P: ProjectionView> ProjectionRunner<P> {
    /// The checkpoint to start at, after clearing a view of another generation; `None` if the stop signal comes first.
    pub(super) async fn begin(
        &mut self,
        projection: &Projection,
        was_reset: bool,
        stop: &mut StopSignal<'_>,
    ) -> Result<Option<Checkpoint>, ProjectionError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let cause = match self.place(projection, was_reset).await {
                Ok(at) => return Ok(Some(at)),
                Err(cause) => cause,
            };
            let Some(wait) = self.reading.options.apply.wait_after(tries, None, jitter()) else {
                return Err(ProjectionError::View { projection: self.reading.name.clone(), cause });
            };
            tracing::warn!(projection = self.reading.name, %cause, tries, "the view cannot start; retrying");
            if stop.stopped_within(wait).await {
                return Ok(None);
            }
        }
    }

    async fn place(&mut self, projection: &Projection, was_reset: bool) -> Result<Checkpoint, ViewError> {
        let generation = projection.generation;
        let own = self.view.checkpoint().await.map_err(Into::into)?;
        match own {
            Some(own) if own.generation == generation => Ok(own),
            None if !was_reset => Ok(Checkpoint { generation, offset: projection.checkpoint }),
            _ => {
                let start = Checkpoint { generation, offset: projection.start };
                self.view.clear(start).await.map_err(Into::into)?;
                Ok(start)
            }
        }
    }
}
