//! The error of opening a broker.

use crate::logs::{LogFailure, repair_advice};
use contract::{Error, Kind};
use log::LogError;
use std::fmt;

/// Why a broker did not open.
#[derive(Debug)]
pub enum OpenError {
    /// The log could not be opened or read.
    Log(LogError),
    /// A side log could not be opened.
    SideLog(LogFailure),
    /// What the configuration declares was refused.
    Declared {
        /// Its place in the configuration: `topics[2]`.
        path: String,
        /// The refusal.
        error: Error,
    },
}

impl From<LogError> for OpenError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl OpenError {
    pub(super) const fn declared(path: String, error: Error) -> Self {
        Self::Declared { path, error }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(LogError::Damaged(damage)) => {
                write!(f, "damaged: {damage}\n{}", repair_advice(&damage.file))
            }
            Self::Log(error) => error.fmt(f),
            Self::SideLog(failure) => failure.fmt(f),
            Self::Declared { error, .. } if error.kind() == Kind::Unavailable => error.fmt(f),
            Self::Declared { path, error } => write!(f, "`{path}` of the configuration was refused: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Log(error) => Some(error),
            Self::SideLog(failure) => Some(&failure.error),
            Self::Declared { error, .. } => Some(error),
        }
    }
}
