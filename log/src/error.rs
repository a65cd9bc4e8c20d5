//! What can go wrong in an engine.

use crate::file::is_out_of_files;
use contract::{Position, Sequence};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a call of an engine failed.
#[derive(Debug, Clone)]
pub enum LogError {
    /// The tail is not where the caller expected it; this is where it is.
    TailMoved(Position),
    /// The range starts among removed records; this is the first sequence left.
    Trimmed(Sequence),
    /// The batch's numbers do not follow the tail. A bug in the caller.
    Misnumbered(&'static str),
    /// A write or sync failed: nothing is appended any more until the log is opened again.
    Poisoned(Arc<io::Error>),
    /// There is no room for this append. Nothing of it was written, and the log is unchanged.
    Full(Arc<io::Error>),
    /// Bytes on disk are not what was written.
    Damaged(FileDamage),
    /// Reading, opening or removing failed; the log itself is unchanged.
    Io(Arc<io::Error>),
    /// Another process has the log open.
    Locked(PathBuf),
    /// The engine's server does not allow this; the text names the missing privilege, and how to grant it.
    Forbidden(String),
    /// The engine's server cannot be reached, or was lost half way; the engine reconnects by itself. Or no file could
    /// be opened because there was no descriptor left. Whether an append that ends with this is stored is known when reading works again: it is whole at its positions, or nowhere.
    Unavailable(Arc<io::Error>),
    /// The log went back: the record that was read at this position is no longer there, or is another one, or nothing shows
    /// that it is the same. The state that was built from it is invalid; open the log again.
    Diverged(Position),
    /// The broker's own entries up to this sequence were reclaimed before a reader had read them. Its state
    /// lacks them; open the log again: its snapshot contains them.
    Reclaimed(Sequence),
    /// A record of a newer version that this version cannot read.
    Unsupported {
        /// Where it is.
        position: Position,
        /// What it is, and which version can read it.
        reason: String,
    },
}

/// Where bytes are not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDamage {
    /// The file.
    pub file: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// What is wrong there.
    pub reason: String,
}

impl fmt::Display for FileDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}: {}", self.file.display(), self.offset, self.reason)
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TailMoved(tail) => write!(f, "the log's tail is at position {tail} now"),
            Self::Trimmed(earliest) => write!(f, "removed; the earliest sequence left is {earliest}"),
            Self::Misnumbered(what) => write!(f, "the batch does not follow the tail: {what}"),
            Self::Poisoned(cause) => write!(f, "the log stopped after a failed write or sync ({cause}); open it again"),
            Self::Full(cause) => write!(f, "there is no room in the log ({cause}); nothing was written"),
            Self::Damaged(damage) => write!(f, "damaged: {damage}"),
            Self::Io(cause) => write!(f, "the log could not be read: {cause}"),
            Self::Locked(path) => {
                write!(f, "another process has {} open; one data folder, one broker", path.display())
            }
            Self::Forbidden(what) => write!(f, "not allowed: {what}"),
            Self::Unavailable(cause) => write!(f, "the log cannot be reached: {cause}"),
            Self::Diverged(position) => {
                write!(f, "the log went back: the record that was read at position {position} is not there any more")
            }
            Self::Reclaimed(through) => {
                write!(f, "the broker's own entries up to {through} were reclaimed before they were read here")
            }
            Self::Unsupported { position, reason } => write!(f, "the record at position {position} {reason}"),
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Poisoned(cause) | Self::Full(cause) | Self::Io(cause) | Self::Unavailable(cause) => {
                Some(cause.as_ref())
            }
            _ => None,
        }
    }
}

impl From<io::Error> for LogError {
    fn from(cause: io::Error) -> Self {
        match is_out_of_files(&cause) {
            // It passes by itself, as connections end and files are closed.
            true => Self::Unavailable(Arc::new(cause)),
            false => Self::Io(Arc::new(cause)),
        }
    }
}
