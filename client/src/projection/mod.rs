//! Projections: views that are made of events, and kept up to date by a [`Runner`].
//!
//! - Events are applied one by one, in order. The broker is told of an event only when its effect is durable.
//! - An event may be applied again after a crash. A view that keeps its [`Checkpoint`] in the same transaction as the
//!   effect is given every event exactly once, whenever it is killed; one that does not must not mind a repetition.
//! - A reset begins a new generation: the view is cleared and made again. A view that keeps its checkpoint notices one
//!   that came while it did not run; one that does not is told of those it lives to see.
//! - An event that cannot be applied stops its own projection and is named; others are tasks of their own and go on.

mod begin;
mod error;
mod reader;
mod runner;

pub use error::ProjectionError;
pub use runner::{ProjectionOptions, ProjectionRunner};

use contract::{Generation, Offset, StoredEvent};

/// How far a view has come, in which life of its projection. The default is that of an empty view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The generation it was made in; 0: in none yet.
    pub generation: Generation,
    /// What is applied: a sequence of the topic, or a position where the whole log is read.
    pub offset: Offset,
}

/// A view that is made of events.
pub trait ProjectionView: Send {
    /// Why something could not be done.
    type Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send;

    /// Applies one event. `Ok` means that its effect is durable. A view that keeps its own checkpoint stores `at` in the
    /// same transaction.
    fn apply(&mut self, event: &StoredEvent, at: Checkpoint) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// How far the view has come, where it keeps that itself: the checkpoint stored last, or [`Checkpoint::default`] while
    /// there is none. `None`, always: it does not keep it, and the broker's is used.
    fn checkpoint(&mut self) -> impl Future<Output = Result<Option<Checkpoint>, Self::Error>> + Send {
        std::future::ready(Ok(None))
    }

    /// Empties the view, which is to be made again of what comes behind `start`. A view that keeps its own checkpoint
    /// stores `start` in the same transaction.
    fn clear(&mut self, start: Checkpoint) -> impl Future<Output = Result<(), Self::Error>> + Send;
}
