//! The error that ends a projection's runner.

use contract::{Error, Sequence, TopicId};
use std::fmt;
use uuid::Uuid;

/// An error of the program's own code.
pub(super) type ViewError = Box<dyn std::error::Error + Send + Sync>;

/// Why a runner ended before the stop signal.
#[derive(Debug)]
pub enum ProjectionError {
    /// The view failed to apply an event in every try. The events before it are applied.
    Poison {
        /// The projection.
        projection: String,
        /// The event's topic.
        topic: Option<TopicId>,
        /// Its number there.
        sequence: Sequence,
        /// Its id.
        id: Uuid,
        /// The view's last error.
        cause: ViewError,
    },
    /// The view could not be cleared, or did not return its checkpoint.
    View {
        /// The projection.
        projection: String,
        /// The view's last error.
        cause: ViewError,
    },
    /// The broker refused a request for good.
    Broker {
        /// The projection.
        projection: String,
        /// The refusal.
        error: Error,
    },
}

impl fmt::Display for ProjectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poison { projection, topic, sequence, id, cause } => {
                let topic = topic.as_ref().map_or("an unknown topic", |topic| topic.as_str());
                write!(f, "projection {projection} cannot apply event {id}, sequence {sequence} of {topic}: {cause}")
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
