//! The work as a program writes it, and its result.

use contract::{BoxFuture, Claim, ClaimError, NewEvent, StoredEvent, limits};
use std::error::Error;
use std::fmt;

/// Work on one event. A closure `|event, claim| async { … }` is a handler if it returns a `Result` of `()` or of events, with
/// any error.
pub trait EventHandler: Send + Sync + 'static {
    /// Does the work. It starts under a live claim, and is dropped if the claim is lost. Send `claim.token` to every system
    /// outside, which should refuse a token below the highest one it has seen.
    fn handle(&self, event: StoredEvent, claim: Claim) -> BoxFuture<'static, Result<WorkOutput, WorkError>>;
}

impl<F, W, D, E> EventHandler for F
where
    F: Fn(StoredEvent, Claim) -> W + Send + Sync + 'static,
    W: Future<Output = Result<D, E>> + Send + 'static,
    D: Into<WorkOutput>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    fn handle(&self, event: StoredEvent, claim: Claim) -> BoxFuture<'static, Result<WorkOutput, WorkError>> {
        let work = self(event, claim);
        Box::pin(async move { work.await.map(Into::into).map_err(|error| WorkError::of::<E>(error.into().as_ref())) })
    }
}

/// The result of work that is done.
#[derive(Debug, Clone, Default)]
pub struct WorkOutput {
    /// Events that it has produced: they are stored with the completion, or neither is.
    pub events: Vec<NewEvent>,
}

impl From<()> for WorkOutput {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<Vec<NewEvent>> for WorkOutput {
    fn from(events: Vec<NewEvent>) -> Self {
        Self { events }
    }
}

impl From<NewEvent> for WorkOutput {
    fn from(event: NewEvent) -> Self {
        Self { events: vec![event] }
    }
}

/// Why work failed. Any error may be returned; this one sets its class, and whether another attempt makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkError {
    /// Class and message, as the broker stores them.
    pub error: ClaimError,
    /// Whether another attempt makes sense; otherwise the event becomes a dead letter at once.
    pub retryable: bool,
}

impl WorkError {
    /// A failure of this class, after which another attempt makes sense.
    pub fn new(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self { error: ClaimError::new(class, message), retryable: true }
    }

    /// The same failure without another attempt.
    #[must_use]
    pub fn for_good(mut self) -> Self {
        self.retryable = false;
        self
    }

    /// A failure from the program's error: its class is the error's type, its message the chain of causes.
    fn of<E>(error: &(dyn Error + Send + Sync + 'static)) -> Self {
        if let Some(failed) = error.downcast_ref::<Self>() {
            return failed.clone();
        }
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self::new(class_of(std::any::type_name::<E>()), message)
    }
}

/// The last name of a type's path, without type parameters.
fn class_of(path: &str) -> String {
    let plain = path.split('<').next().unwrap_or(path);
    let name = plain.rsplit("::").next().unwrap_or(plain).trim_start_matches('&');
    let reported = if matches!(name, "" | "Box" | "String" | "str") { "Error" } else { name };
    reported.chars().take(limits::LABEL_BYTES_MAX / 4).collect()
}

impl fmt::Display for WorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error.class, self.error.message)
    }
}

impl Error for WorkError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_named_like_the_error_it_was() {
        let number = "x".parse::<u32>().unwrap_err();
        let io = std::io::Error::other("the disk is full");
        type Boxed = Box<dyn Error + Send + Sync>;
        for (failed, class, message) in [
            (WorkError::of::<std::num::ParseIntError>(&number), "ParseIntError", "invalid digit found in string"),
            (WorkError::of::<std::io::Error>(&io), "Error", "the disk is full"),
            (WorkError::of::<String>(Boxed::from("no").as_ref()), "Error", "no"),
            (WorkError::of::<Boxed>(&number), "Error", "invalid digit found in string"),
            (WorkError::of::<Boxed>(&WorkError::new("Declined", "no funds")), "Declined", "no funds"),
        ] {
            assert_eq!((failed.error.class.as_str(), failed.error.message.as_str()), (class, message));
        }
        assert!(!WorkError::of::<WorkError>(&WorkError::new("Declined", "never").for_good()).retryable);
    }
}
