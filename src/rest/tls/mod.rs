//! TLS of the server: which certificate new connections get, and the handshake.
//!
//! - The files are read again on request and when they have changed; changes are found by content, so a replaced link or a
//!   file with an old time is noticed too. New connections use what was read last, open ones keep what they began with.
//! - Files that cannot be used replace nothing. The log and `/readyz` say so until they can be used.
//! - Each reading has a session cache of its own: a client certificate that was verified with older files is verified again.
//! - The verified certificate of a client stays in the state of its connection. What it permits is decided elsewhere.

mod files;
mod handshake;
mod queue;

pub use files::TlsFileError;

use crate::config::TlsConfig;
use files::{LoadedTls, TlsFileContents};
use handshake::HandshakeFailures;
use jiff::{SignedDuration, Timestamp};
use queue::HandshakeQueue;
use rustls::ServerConfig;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

/// How often a server should call [`ServerTls::reload`] without a request to.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// A certificate that expires within this time is reported.
const EXPIRY_NOTICE: SignedDuration = SignedDuration::from_hours(14 * 24);
/// How often it is reported in the log.
const EXPIRY_NOTICE_INTERVAL: SignedDuration = SignedDuration::from_hours(24);

/// The TLS of a server.
pub struct ServerTls {
    files: TlsConfig,
    state: RwLock<TlsState>,
    handshakes: HandshakeQueue,
    failures: HandshakeFailures,
}

/// What was read last.
struct TlsState {
    config: Arc<ServerConfig>,
    expires_at: Timestamp,
    /// The digest of the files at the last reading, if they could be read.
    digest: Option<[u8; 32]>,
    /// Why the files at the last reading are not used.
    fault: Option<TlsFileError>,
    /// What to say of a certificate that expires soon.
    expiry_notice: Option<String>,
    /// When the log last said that the certificate expires.
    noticed_at: Option<Timestamp>,
}

/// Why the files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadCause {
    /// The time has come to look whether they have changed.
    Interval,
    /// The operator asked for it.
    Request,
}

impl ServerTls {
    /// Reads the files.
    pub fn load(files: TlsConfig, now: Timestamp) -> Result<Self, TlsFileError> {
        let contents = TlsFileContents::read(&files)?;
        let LoadedTls { config, expires_at } = contents.build(files.client_auth)?;
        let digest = Some(contents.digest());
        let state =
            RwLock::new(TlsState { config, expires_at, digest, fault: None, expiry_notice: None, noticed_at: None });
        let tls = Self { files, state, handshakes: HandshakeQueue::default(), failures: HandshakeFailures::default() };
        tls.warn_of_key_permissions();
        tls.notice_expiry(now);
        Ok(tls)
    }

    /// Reads the files again, and uses them for new connections if they have changed and are valid. A pair that has expired is
    /// as bad as one that does not fit together.
    pub fn reload(&self, cause: ReloadCause, now: Timestamp) {
        let contents = TlsFileContents::read(&self.files);
        let digest = contents.as_ref().ok().map(TlsFileContents::digest);
        let is_same = digest == self.read_state().digest;
        if cause == ReloadCause::Interval && is_same && digest.is_some() {
            return self.notice_expiry(now);
        }
        let loaded =
            contents.and_then(|contents| contents.build(self.files.client_auth)).and_then(|loaded| {
                match loaded.expires_at > now || is_same {
                    true => Ok(loaded),
                    false => Err(expired(loaded.expires_at)),
                }
            });
        match loaded {
            Ok(loaded) => {
                self.replace(loaded, digest);
                self.warn_of_key_permissions();
                let expires_at = self.read_state().expires_at;
                tracing::info!(%expires_at, "the files of TLS were read again; new connections use them");
            }
            Err(fault) => self.keep(fault, digest),
        }
        self.notice_expiry(now);
    }

    /// What an operator should look at: one sentence each.
    pub(crate) fn degradations(&self) -> Vec<String> {
        let state = self.read_state();
        let fault = state.fault.as_ref().map(|fault| {
            let key = fault.key;
            // The details may name paths of the machine.
            format!("The new files of TLS are not used because of `{key}`; the log output has the reason.")
        });
        fault.into_iter().chain(state.expiry_notice.clone()).collect()
    }

    /// The configuration of a new connection.
    fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.read_state().config)
    }

    fn replace(&self, LoadedTls { config, expires_at }: LoadedTls, digest: Option<[u8; 32]>) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        *state = TlsState { config, expires_at, digest, fault: None, expiry_notice: None, noticed_at: None };
    }

    /// Keeps what is in use, and says why.
    fn keep(&self, fault: TlsFileError, digest: Option<[u8; 32]>) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.fault.as_ref() != Some(&fault) {
            tracing::error!(%fault, "the new files of TLS cannot be used; new connections use the old ones");
        }
        (state.fault, state.digest) = (Some(fault), digest);
    }

    fn notice_expiry(&self, now: Timestamp) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.expiry_notice = expiry_notice(state.expires_at, now);
        let Some(notice) = state.expiry_notice.clone() else { return };
        if state.noticed_at.is_none_or(|noticed_at| now.duration_since(noticed_at) >= EXPIRY_NOTICE_INTERVAL) {
            state.noticed_at = Some(now);
            tracing::warn!("{notice}");
        }
    }

    fn warn_of_key_permissions(&self) {
        if let Some(key) = self.files.key.as_deref().filter(|key| files::is_readable_by_others(key)) {
            tracing::warn!(
                key = %key.display(),
                "the private key of TLS may be read by other users of this machine; make it 0600 or 0400"
            );
        }
    }

    fn read_state(&self) -> RwLockReadGuard<'_, TlsState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("files", &self.files).finish_non_exhaustive()
    }
}

fn expired(expires_at: Timestamp) -> TlsFileError {
    TlsFileError { key: "server.tls.certificate", detail: format!("has expired on {expires_at}") }
}

/// A sentence about a certificate that expires soon or has expired.
fn expiry_notice(expires_at: Timestamp, now: Timestamp) -> Option<String> {
    if expires_at <= now {
        return Some(format!("The TLS certificate of the server has expired on {expires_at}: clients refuse it."));
    }
    (expires_at.duration_since(now) <= EXPIRY_NOTICE)
        .then(|| format!("The TLS certificate of the server expires on {expires_at}."))
}
