//! The file budget: how the process's limit of open files (`RLIMIT_NOFILE`) is divided.
//!
//! - The log gets what it needs first; connections of clients get the rest. A client can use up its own share only.
//! - The shares grow with the limit, up to the largest useful size.

use rustix::process::{Resource, getrlimit};

/// With fewer connections the server refuses to start.
pub const CONNECTIONS_MIN: usize = 64;
/// Standard streams, the runtime, the listener, lock files, tables of the default log, DNS queries, connections that
/// are being closed, sessions of a database.
const BASE: u64 = 64;
/// Sealed segments and their indexes, over all logs.
const LOG_FILES: (u64, u64) = (32, 512);
/// Lock files, folders and tables of side logs.
const SIDE_LOGS_MAX: u64 = 512;
/// The open files of one log in a folder besides its segments: two locks, its folder, and the runs of its tables.
const SIDE_LOG_FILES: usize = 8;
/// Connections to receivers of events.
const DELIVERIES: (u64, u64) = (16, 4096);
/// The value that stands for no limit.
const LIMIT_MAX: u64 = 1 << 30;

/// The shares of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileBudget {
    /// The limit.
    pub limit: u64,
    /// Open files of logs.
    pub log_files: usize,
    /// Other files of side logs.
    pub side_logs: usize,
    /// Connections to receivers of events.
    pub deliveries: usize,
    /// Connections of clients.
    pub connections: usize,
}

impl FileBudget {
    /// Divides `limit`; `None`: there is no limit.
    #[must_use]
    pub fn of(limit: Option<u64>) -> Self {
        let limit = limit.unwrap_or(LIMIT_MAX).min(LIMIT_MAX);
        let log_files = (limit / 8).clamp(LOG_FILES.0, LOG_FILES.1);
        let side_logs = (limit / 16).min(SIDE_LOGS_MAX);
        let deliveries = (limit / 8).clamp(DELIVERIES.0, DELIVERIES.1);
        let connections = limit.saturating_sub(BASE + log_files + side_logs + deliveries);
        let [log_files, side_logs, deliveries, connections] =
            [log_files, side_logs, deliveries, connections].map(|share| usize::try_from(share).unwrap_or(usize::MAX));
        Self { limit, log_files, side_logs, deliveries, connections }
    }

    /// Divides the limit that the process has now.
    #[must_use]
    pub fn of_process() -> Self {
        Self::of(getrlimit(Resource::Nofile).current)
    }

    /// Divides the hard limit, to which the process may raise its own.
    #[must_use]
    pub fn of_process_at_most() -> Self {
        Self::of(getrlimit(Resource::Nofile).maximum)
    }

    /// How many side logs in folders fit.
    #[must_use]
    pub const fn side_logs_max(&self) -> usize {
        self.side_logs / SIDE_LOG_FILES
    }

    /// Connections that one address may have of `connections`, if the operator configured `wanted` of `configured`:
    /// half of them at most, unless one address may have all.
    #[must_use]
    pub const fn connections_per_address(connections: usize, configured: usize, wanted: usize) -> usize {
        let half = if connections < 2 { 1 } else { connections / 2 };
        if wanted >= configured || wanted < half { wanted } else { half }
    }

    /// The number of connections to accept if `configured` are wanted. `Err` if the limit leaves too few.
    pub fn connections_of(&self, configured: usize) -> Result<usize, String> {
        if self.connections >= configured.min(CONNECTIONS_MIN) {
            return Ok(self.connections.min(configured));
        }
        let Self { limit, log_files, side_logs, deliveries, connections } = self;
        Err(format!(
            "the limit of open files is {limit}, too low: the log takes {log_files}, side logs {side_logs}, deliveries \
            {deliveries}, the broker itself {BASE}, which leaves {connections} for connections, and at least \
            {CONNECTIONS_MIN} are needed; raise it (`ulimit -n 1024`, `LimitNOFILE=` of systemd)"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_get_what_the_log_and_deliveries_leave() {
        for (limit, log_files, side_logs, deliveries, connections) in [
            (256, 32, 16, 32, 112),
            (1024, 128, 64, 128, 640),
            (20_000, 512, 512, 2500, 16_412),
            (1_048_576, 512, 512, 4096, 1_043_392),
        ] {
            let expected = FileBudget { limit, log_files, side_logs, deliveries, connections };
            assert_eq!(FileBudget::of(Some(limit)), expected);
        }
        assert_eq!(FileBudget::of(None).connections_of(25_000), Ok(25_000));
        assert_eq!(FileBudget::of(Some(1024)).connections_of(25_000), Ok(640));
        assert_eq!(FileBudget::of(Some(1024)).connections_of(10), Ok(10));
    }

    #[test]
    fn one_address_has_half_of_the_connections_that_there_are() {
        for (connections, configured, wanted, has) in [
            (25_000, 25_000, 12_500, 12_500),
            (640, 25_000, 12_500, 320),
            (640, 25_000, 100, 100),
            // A server behind a proxy.
            (640, 25_000, 25_000, 25_000),
            (1, 1, 1, 1),
        ] {
            let has_now = FileBudget::connections_per_address(connections, configured, wanted);
            assert_eq!(has_now, has, "{connections} {configured} {wanted}");
        }
    }

    #[test]
    fn side_logs_have_what_their_share_allows() {
        for (limit, logs) in [(256, 2), (1024, 8), (8192, 64), (1_048_576, 64)] {
            assert_eq!(FileBudget::of(Some(limit)).side_logs_max(), logs, "{limit}");
        }
    }

    #[test]
    fn a_limit_that_leaves_too_few_connections_is_refused_with_its_numbers() {
        let refusal = FileBudget::of(Some(128)).connections_of(25_000).unwrap_err();
        for part in ["limit of open files is 128", "the log takes 32", "leaves 8", "at least 64"] {
            assert!(refusal.contains(part), "{refusal}");
        }
        // A small number is granted.
        assert_eq!(FileBudget::of(Some(128)).connections_of(8), Ok(8));
    }
}
