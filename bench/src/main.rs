//! Measures the broker beside the bare disk it stands on, and over HTTP beside other servers.
//!
//! - Every figure is taken next to one of the raw disk, in turns, and medians are compared: the disk is noisy.
//! - Targets are marked, never asserted: the program ends well whatever the figures are.
//! - Nothing of the engine is touched: syncs and bytes are counted at the `Disk` seam ([`counting`]).
//!
//! What grows with history (growth, memory, opening) is measured in child processes ([`worker`]), so that the memory
//! of one measurement is not counted in another.

mod counting;
mod events;
mod figures;
mod history;
mod http;
mod load;
mod machine;
mod place;
mod raw;
mod report;
mod sections;
mod store;
mod usage;
mod worker;

use clap::{Parser, Subcommand};
use place::Place;
use report::Report;
use sections::Run;
use std::path::PathBuf;
use std::process::ExitCode;

/// Whatever went wrong; a benchmark has nobody to tell errors apart for.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
/// A result with any error.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Measures the event broker beside the bare disk, on this machine.
#[derive(Parser)]
#[command(name = "bench", after_help = "Without a section all of them run, which takes about fifteen minutes.")]
struct Arguments {
    #[command(subcommand)]
    section: Option<Section>,
    /// Ten times fewer events and shorter rounds: about a minute, to see that it works.
    #[arg(long, global = true)]
    quick: bool,
    /// Where the files go, on the disk to be measured; what is put there is removed at the end.
    #[arg(long, value_name = "DIR", global = true, default_value = "target/bench-data")]
    data: PathBuf,
    /// Write all tables to this file too; what it has of sections that did not run is kept.
    #[arg(long, value_name = "FILE", global = true)]
    markdown: Option<PathBuf>,
    /// The day of the run, for the heading of the file.
    #[arg(long, value_name = "DATE", global = true)]
    date: Option<String>,
    #[command(flatten)]
    paths: http::programs::Paths,
}

#[derive(Subcommand, Clone, Copy, PartialEq, Eq)]
enum Section {
    /// Every section.
    All,
    /// 1, 16 and 256 callers, single events and batches of 100, in memory and in files.
    Publish,
    /// Publishing in files on a disk that is no faster than the one the design was made for.
    SlowDisk,
    /// The file engine alone, without a broker above it.
    Append,
    /// From publishing to a waiting reader's hands.
    Wake,
    /// The cost of an event, from the first million to the tenth.
    Growth,
    /// RAM with ten million aggregates and as many live keys.
    Memory,
    /// Opening after a crash, after a clean stop, and without the state folder.
    Open,
    /// Sequential reading through the broker and straight from the log.
    Read,
    /// What searching events for secrets costs.
    Secrets,
    /// The broker on PostgreSQL, beside plain SQL that writes the same rows.
    Postgres,
    /// Claiming events and finishing them over HTTP, beside publishing.
    Claims,
    /// Deliveries to a receiver on this machine, and publishing beside jobs that wait.
    Dispatch,
    /// Deliveries beside a receiver that never responds, in the same pool.
    Hanging,
    /// A shared group with a hundred and with a thousand waiting members.
    Groups,
    /// Every section that measures over HTTP: the next seven.
    Http,
    /// One event to a request, on 1 to 256 connections, beside a bare handler and durable-streams.
    HttpPublish,
    /// Batches of 100, beside the same and the bare disk.
    HttpBatch,
    /// List pages of 100.
    HttpRead,
    /// From publishing to the answers of long polls.
    HttpPoll,
    /// From publishing to streams.
    HttpStream,
    /// What readers cost that wait for nothing.
    Idle,
    /// Publishing, long polls and idle polls with TLS, beside the same without.
    HttpTls,
    /// Publishing in one way only, for a profiler.
    Alone(sections::publish::Alone),
    /// A broker in a process of its own, told what to do on standard input.
    #[command(hide = true)]
    Worker,
    /// A bare axum server in a process of its own.
    #[command(hide = true)]
    Bare,
}

fn main() -> ExitCode {
    // The program's, so that the figures are its figures.
    allocator::give_back_soon();
    let arguments = Arguments::parse();
    let outcome = match arguments.section {
        Some(Section::Worker) => worker::serve(&arguments.data),
        Some(Section::Bare) => http::bare::serve(),
        Some(Section::Alone(alone)) => {
            Place::claim(&arguments.data).and_then(|place| sections::publish::alone(&place, alone))
        }
        section => measure(&arguments, section.unwrap_or(Section::All)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments, section: Section) -> Outcome {
    let place = Place::claim(&arguments.data)?;
    let mut report = Report::begin(machine::facts(place.folder()), machine::run(arguments.date.as_deref()));
    let mut run = Run::new(&place, arguments.quick, arguments.paths.clone());
    for (name, measure) in chosen(section) {
        report.section(name);
        measure(&mut run, &mut report)?;
        report.end_section(&machine::load_average());
    }
    run.finish()?;
    report.end();
    match &arguments.markdown {
        Some(file) => {
            let former = std::fs::read_to_string(file).unwrap_or_default();
            Ok(std::fs::write(file, report.markdown_over(&former))?)
        }
        None => Ok(()),
    }
}

type Measure = fn(&mut Run<'_>, &mut Report) -> Outcome;

/// The sections of a run, in the order that lets them share one history.
fn chosen(section: Section) -> Vec<(&'static str, Measure)> {
    let disk: [(Section, &'static str, Measure); 14] = [
        (Section::Publish, "publish", sections::publish::measure),
        (Section::SlowDisk, "slow-disk", sections::publish::measure_slow_disk),
        (Section::Append, "append", sections::append::measure),
        (Section::Wake, "wake", sections::wake::measure),
        (Section::Growth, "growth", sections::growth::measure),
        (Section::Memory, "memory", sections::memory::measure),
        (Section::Open, "open", sections::open::measure),
        (Section::Read, "read", sections::read::measure),
        (Section::Secrets, "secrets", sections::secrets::measure),
        (Section::Postgres, "postgres", sections::postgres::measure),
        (Section::Claims, "claims", sections::claims::measure),
        (Section::Dispatch, "dispatch", sections::dispatch::measure),
        (Section::Hanging, "hanging", sections::dispatch::hanging::measure),
        (Section::Groups, "groups", sections::groups::measure),
    ];
    let http: [(Section, &'static str, Measure); 7] = [
        (Section::HttpPublish, "http-publish", sections::http::publish::measure),
        (Section::HttpBatch, "http-batch", sections::http::batch::measure),
        (Section::HttpRead, "http-read", sections::http::read::measure),
        (Section::HttpPoll, "http-poll", sections::http::delivery::measure_polls),
        (Section::HttpStream, "http-stream", sections::http::delivery::measure_streams),
        (Section::Idle, "idle", sections::http::idle::measure),
        (Section::HttpTls, "http-tls", sections::http::tls::measure),
    ];
    let wanted = |known: Section, group: Section| section == Section::All || section == group || section == known;
    let disk = disk.into_iter().filter(|(known, ..)| wanted(*known, Section::All));
    let http = http.into_iter().filter(|(known, ..)| wanted(*known, Section::Http));
    disk.chain(http).map(|(_, name, measure)| (name, measure)).collect()
}
