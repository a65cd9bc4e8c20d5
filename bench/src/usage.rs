//! What a process has used: processor time and memory; and how many files it may open.

use crate::Outcome;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Processor time of this process so far, all threads together.
pub(crate) fn cpu_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(spent.tv_sec).unwrap_or(0), u32::try_from(spent.tv_nsec).unwrap_or(0))
}

/// Processor time of another process so far, all threads together, in seconds; counted in hundredths.
pub(crate) fn cpu_seconds_of(process: u32) -> Outcome<f64> {
    let [user, system, ..] = cpu_ticks_of(process)?;
    Ok((user + system) / rustix::param::clock_ticks_per_second() as f64)
}

/// Processor time so far of a process and all its children, each with one thread, in seconds. Those that have ended are
/// counted in hundredths, the others exactly: hundreds that each did little add up.
pub(crate) fn cpu_seconds_of_family(process: u32) -> Outcome<f64> {
    let [.., ended_user, ended_system] = cpu_ticks_of(process)?;
    let ended = (ended_user + ended_system) / rustix::param::clock_ticks_per_second() as f64;
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"))?;
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    // One that ends meanwhile is counted with those that have ended, the next time.
    let running = children.chain([process]).filter_map(|process| running_seconds_of(process).ok());
    Ok(ended + running.sum::<f64>())
}

/// `utime`, `stime`, and the same of children that have ended. The name stands in brackets and may have blanks in it;
/// behind it these are the 12th to 15th.
fn cpu_ticks_of(process: u32) -> Outcome<[f64; 4]> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, fields) = text.rsplit_once(')').ok_or("a process has no state")?;
    let ticks: Vec<f64> = fields.split_whitespace().skip(11).take(4).filter_map(|ticks| ticks.parse().ok()).collect();
    ticks.try_into().map_err(|_| "a process does not say what it has used".into())
}

/// What the first thread of a process has run, in seconds.
fn running_seconds_of(process: u32) -> Outcome<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat"))?;
    let nanos: f64 = text.split_whitespace().next().ok_or("a process does not say what it has run")?.parse()?;
    Ok(nanos / 1e9)
}

/// How many files a process started by this one may have open.
pub(crate) fn open_files_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// RAM of a process, in bytes.
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
        Self::of(std::process::id())
    }

    /// That of another process.
    pub(crate) fn of(process: u32) -> Outcome<Self> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        Ok(Self { rss_bytes: field("VmRSS:"), peak_bytes: field("VmHWM:") })
    }
}
