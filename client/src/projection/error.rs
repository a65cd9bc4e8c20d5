//! Why a runner ended before it was asked to.

use contract::{Error, Sequence, TopicId};
use std::fmt;
use uuid::Uuid;

/// What a program's own code went wrong with.
pub(super) type ViewError = Box<dyn std::error::Error + Send + Sync>;

/// Why a runner ended before it was asked to.
#[derive(Debug)]
pub enum ProjectionError {
    /// An event that the view did not take, however often it was tried. What came before it is applied.
    Poison {
        /// The projection.
        projection: String,
        /// The event's topic.
        topic: Option<TopicId>,
        /// Its number there.
        sequence: Sequence,
        /// Its id.
        id: Uuid,
        /// What the view said last.
        cause: ViewError,
    },
    /// The view could not be cleared, or did not say how far it is.
    View {
        /// The projection.
        projection: String,
        /// What the view said last.
        cause: ViewError,
    },
    /// The broker refused, for good.
    Broker {
        /// The projection.
        projection: String,
        /// Why.
        error: Error,
    },
}

impl fmt::Display for ProjectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poison { projection, topic, sequence, id, cause } => {
                let topic = topic.as_ref().map_or("an unknown topic", |topic| topic.as_str());
                write!(f, "projection {projection} does not take event {id}, sequence {sequence} of {topic}: {cause}")
            }
            Self::View { projection, cause } => write!(f, "the view of projection {projection} fails: {cause}"),
            Self::Broker { projection, error } => write!(f, "the broker refuses projection {projection}: {error}"),
        }
    }
}

impl std::error::Error for ProjectionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Poison { cause, .. } | Self::View { cause, .. } => Some(cause.as_ref()),
            Self::Broker { error, .. } => Some(error),
        }
    }
}
