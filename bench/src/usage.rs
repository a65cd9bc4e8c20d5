//! What a process has used: processor time and memory.

use crate::Outcome;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Processor time of this process so far, all threads together.
pub(crate) fn cpu_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(spent.tv_sec).unwrap_or(0), u32::try_from(spent.tv_nsec).unwrap_or(0))
}

/// RAM of this process, in bytes.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// Now.
    pub(crate) rss_bytes: u64,
    /// The most it ever was.
    pub(crate) peak_bytes: u64,
}

impl Memory {
    /// As the kernel counts it (`VmRSS` and `VmHWM`).
    pub(crate) fn now() -> Outcome<Self> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        Ok(Self { rss_bytes: field("VmRSS:"), peak_bytes: field("VmHWM:") })
    }
}
