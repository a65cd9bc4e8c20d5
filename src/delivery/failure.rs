//! Failures of attempts: one word for programs, one sentence for people.
//!
//! - A sentence never contains a secret, a submitted value or a private address.
//! - Most failures are retryable; the others are marked ([`DeliveryFailure::for_good`]).

use std::error::Error as StdError;
use std::fmt;
use std::io;

macro_rules! classes {
    ($($(#[$doc:meta])* $class:ident = $word:literal;)*) => {
        /// The class of a failure, in one word.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum ErrorClass { $($(#[$doc])* $class,)* }

        impl ErrorClass {
            /// Every class.
            #[cfg(test)]
            pub(crate) const ALL: &'static [Self] = &[$(Self::$class,)*];

            /// The word itself.
            pub(crate) const fn as_str(self) -> &'static str { match self { $(Self::$class => $word,)* } }
        }
    };
}

classes! {
    /// The target is in no public network, and those are not allowed.
    TargetRefused = "target_refused";
    /// The host's name could not be resolved.
    Dns = "dns";
    /// Nobody took the connection.
    Connect = "connect";
    /// No encrypted connection that can be trusted came about.
    Tls = "tls";
    /// Not done in time: connecting, waiting for the answer, or reading it.
    Timeout = "timeout";
    /// The connection ended before the answer did.
    Reset = "reset";
    /// What came back is not HTTP.
    Protocol = "protocol";
    /// The answer is larger than what is read of one.
    TooLarge = "too_large";
    /// No access token could be had.
    Auth = "auth";
    /// The event could not be put into the format asked for.
    Payload = "payload";
    /// The event is damaged on disk, and cannot be read.
    Damaged = "damaged";
    /// A redirect; none is followed.
    Http3xx = "http_3xx";
    /// The receiver refuses the request.
    Http4xx = "http_4xx";
    /// The receiver has failed.
    Http5xx = "http_5xx";
    /// A status that says nothing about a delivery.
    HttpOther = "http_other";
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why an attempt came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeliveryFailure {
    pub(crate) class: ErrorClass,
    pub(crate) message: String,
    /// Whether the same attempt may succeed later.
    pub(crate) retryable: bool,
}

impl DeliveryFailure {
    pub(super) fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), retryable: true }
    }

    /// The same failure, which no repetition mends.
    pub(super) fn for_good(mut self) -> Self {
        self.retryable = false;
        self
    }

    /// What an error of the HTTP client means: the first cause that says something, else a broken protocol.
    pub(super) fn of(error: &(dyn StdError + 'static)) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(failure) = of_one(error) {
                return failure;
            }
            cause = error.source();
        }
        Self::new(ErrorClass::Protocol, "The response is not HTTP, or ended against its rules.")
    }
}

impl fmt::Display for DeliveryFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

impl StdError for DeliveryFailure {}

/// What a single cause says, without those below it.
fn of_one(error: &(dyn StdError + 'static)) -> Option<DeliveryFailure> {
    if let Some(failure) = error.downcast_ref::<DeliveryFailure>() {
        return Some(failure.clone());
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return of_io(error);
    }
    let error = error.downcast_ref::<hyper::Error>()?;
    if error.is_parse_too_large() {
        return Some(DeliveryFailure::new(ErrorClass::TooLarge, "The head of the response is too large."));
    }
    let ended = error.is_incomplete_message() || error.is_closed() || error.is_canceled() || error.is_timeout();
    ended.then(reset)
}

/// What the socket says, or rustls through it: in TLS 1.3 a refused client certificate is only told after the handshake.
/// rustls' errors are all of one kind, and over HTTP/2 that and their text is all that is left of them.
fn of_io(error: &io::Error) -> Option<DeliveryFailure> {
    match error.kind() {
        io::ErrorKind::InvalidData => Some(tls(error)),
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::NotConnected
        | io::ErrorKind::UnexpectedEof => Some(reset()),
        io::ErrorKind::TimedOut => Some(DeliveryFailure::new(ErrorClass::Timeout, "The connection went silent.")),
        _ => None,
    }
}

fn reset() -> DeliveryFailure {
    DeliveryFailure::new(ErrorClass::Reset, "The connection ended before the response was complete.")
}

/// What rustls has to say against the other side.
pub(super) fn tls(error: &dyn StdError) -> DeliveryFailure {
    DeliveryFailure::new(ErrorClass::Tls, format!("No trusted encrypted connection: {error}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_word_of_its_own() {
        let mut words: Vec<_> = ErrorClass::ALL.iter().map(|class| class.as_str()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), ErrorClass::ALL.len());
    }
}
