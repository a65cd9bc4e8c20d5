//! The resources that the program holds: measured every second, printed per minute, and compared between two quarters
//! of the run.

use std::path::Path;

/// The resources that the program held at one moment.
pub(super) struct Sample {
    second: u64,
    rss_bytes: u64,
    descriptors: u64,
    threads: u64,
    disk_bytes: u64,
}

/// One resource that must level off.
struct Gauge {
    name: &'static str,
    value: fn(&Sample) -> u64,
    /// How far one quarter may exceed another regardless of size: the granularity of the measurement.
    slack: u64,
}

const MIB: u64 = 1024 * 1024;

/// The slack of memory is what the allocator keeps in a few arenas; of descriptors, the connections that happen to be
/// open; of threads, blocking threads that start and end; of the folder, a few segments that wait to be rewritten, and
/// what the last resolved dead letters (10,000 are kept) may add.
const GAUGES: [Gauge; 4] = [
    Gauge { name: "memory (RSS)", value: |sample| sample.rss_bytes, slack: 8 * MIB },
    Gauge { name: "descriptors", value: |sample| sample.descriptors, slack: 16 },
    Gauge { name: "threads", value: |sample| sample.threads, slack: 4 },
    Gauge { name: "folder", value: |sample| sample.disk_bytes, slack: MIB },
];

/// By how many per cent the last quarter may exceed the second.
const GROWTH_MAX: u64 = 15;

impl Sample {
    pub(super) fn take(second: u64, pid: u32, folder: &Path) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the broker runs");
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        Self {
            second,
            rss_bytes: field("VmRSS:") * 1024,
            threads: field("Threads:"),
            descriptors: std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64,
            disk_bytes: bytes_of(folder),
        }
    }
}

/// Bytes of all files in a folder and below, except the space reserved for a full disk.
fn bytes_of(folder: &Path) -> u64 {
    // Files and folders may be deleted meanwhile.
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let entries = entries.filter_map(Result::ok).filter(|entry| entry.file_name() != "reserve");
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_of(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}

fn median(samples: &[Sample], value: fn(&Sample) -> u64) -> u64 {
    let mut values: Vec<_> = samples.iter().map(value).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Prints a line per minute, each with the medians of its samples; for the folder, which varies, also the largest
/// sample.
pub(super) fn print_table(samples: &[Sample]) {
    println!("| minute | RSS MiB | descriptors | threads | folder KiB | folder KiB, most |");
    println!("|---|---|---|---|---|---|");
    for minute in samples.chunk_by(|one, other| one.second / 60 == other.second / 60) {
        let most = minute.iter().map(|sample| sample.disk_bytes).max().unwrap_or_default();
        println!(
            "| {} | {:.1} | {} | {} | {} | {} |",
            minute[0].second / 60,
            median(minute, |sample| sample.rss_bytes) as f64 / MIB as f64,
            median(minute, |sample| sample.descriptors),
            median(minute, |sample| sample.threads),
            median(minute, |sample| sample.disk_bytes) / 1024,
            most / 1024,
        );
    }
}

/// Fails if the last quarter of the run holds more than the second. In the first quarter, pools and caches fill.
pub(super) fn check_level(samples: &[Sample]) {
    let quarter = samples.len() / 4;
    let (second, last) = (&samples[quarter..2 * quarter], &samples[3 * quarter..]);
    let mut grown = Vec::new();
    for Gauge { name, value, slack } in GAUGES {
        let (before, after) = (median(second, value), median(last, value));
        println!("{name}: {before} in the second quarter, {after} in the last");
        if after > before + before * GROWTH_MAX / 100 + slack {
            grown.push(format!("{name} from {before} to {after}"));
        }
    }
    assert!(grown.is_empty(), "grown by more than {GROWTH_MAX} %: {grown:?}");
}
