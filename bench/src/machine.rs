//! What there is to know of the machine and the run, for whoever compares figures.

use std::fs;
use std::path::Path;

/// Names and facts, in the order they are told.
pub(crate) fn facts(data: &Path) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    facts.push(("cpu", format!("{} x {}", cores(), proc_field("/proc/cpuinfo", "model name"))));
    facts.push(("memory", memory()));
    facts.push(("kernel", fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()));
    facts.push(("disk", file_system(data)));
    facts
}

/// When and how the figures were taken.
pub(crate) fn run(date: Option<&str>) -> String {
    let date = date.map(|date| format!("{date}, ")).unwrap_or_default();
    format!("{date}`{}`", command())
}

/// What the machine had to do in the last minute, five and fifteen, other programs' work included.
pub(crate) fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn command() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    ["cargo run --release --"].into_iter().chain(arguments.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn memory() -> String {
    let text = proc_field("/proc/meminfo", "MemTotal");
    let kibibytes: f64 = text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0);
    format!("{:.1} GiB", kibibytes / 1024.0 / 1024.0)
}

/// The first value of this name in a file of `name : value` lines.
fn proc_field(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let value = text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == name);
    value.map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
}

/// The mount with the longest path above `data`.
fn file_system(data: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let above = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (device, path, kind, options) = (words.next()?, words.next()?, words.next()?, words.next()?);
        data.starts_with(path).then(|| (path.len(), format!("{kind} on {device} ({options})")))
    });
    above.max_by_key(|(length, _)| *length).map_or_else(|| "unknown".to_owned(), |(_, text)| text)
}
