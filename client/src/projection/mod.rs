//! Projections: views that are made of events, and kept up to date by a [`ProjectionRunner`].
//!
//! - Events are applied one by one, in order. The checkpoint at the broker moves only when the effect of an event is durable.
//! - An event may be applied again after a crash. A view that stores its [`Checkpoint`] in the same transaction as the effect
//!   applies every event exactly once, whenever it is killed; any other view must tolerate a repetition.
//! - A reset starts a new generation: the view is cleared and rebuilt. A view that stores its checkpoint notices a reset that
//!   happened while it was not running; any other view notices only resets while it runs.
//! - An event that cannot be applied stops its own projection, with an error that names it; other projections are separate
//!   tasks and continue.

mod begin;
mod error;
mod reader;
mod runner;

pub use error::ProjectionError;
pub use runner::{ProjectionOptions, ProjectionRunner};

use contract::{Generation, Offset, StoredEvent};

/// The progress of a view in a generation of its projection. The default is that of an empty view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The generation in which it was made; 0: in none yet.
    pub generation: Generation,
    /// What is applied: a sequence of the topic, or a position if the projection reads the log.
    pub offset: Offset,
}

/// A view that is made of events.
pub trait ProjectionView: Send {
    /// The error of the view.
    type Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send;

    /// Applies one event. `Ok` means that its effect is durable. A view that keeps its own checkpoint stores `at` in the same
    /// transaction.
    fn apply(&mut self, event: &StoredEvent, at: Checkpoint) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// The checkpoint that the view has stored last, or [`Checkpoint::default`] if there is none yet. A view that does not keep
    /// its checkpoint always returns `None`; then the broker's checkpoint is used.
    fn checkpoint(&mut self) -> impl Future<Output = Result<Option<Checkpoint>, Self::Error>> + Send {
        std::future::ready(Ok(None))
    }

    /// Empties the view, which will be rebuilt from the events after `start`. A view that keeps its own checkpoint stores
    /// `start` in the same transaction.
    fn clear(&mut self, start: Checkpoint) -> impl Future<Output = Result<(), Self::Error>> + Send;
}
