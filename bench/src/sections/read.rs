//! Reading: sequentially, through the broker and straight from the log, from a warm cache.

use super::{Run, runtime};
use crate::Outcome;
use crate::figures::{fine, gibibytes, median, whole};
use crate::raw::{self, Samples};
use crate::report::{Report, Table};
use crate::store::Store;
use crate::{events, usage};
use contract::api::*;
use contract::{Offset, Position, Sequence, TopicRead};
use log::{Log, ReadLimit, ReadRange, Record, TopicNumber};
use std::time::Instant;

/// With 450 bytes each, more than 1 GiB of text.
const EVENTS: u64 = 2_500_000;
const GIBIBYTE: f64 = 1024.0 * 1024.0 * 1024.0;
/// Straight from the log a page is this large.
const PAGE: ReadLimit = ReadLimit { records: usize::MAX, bytes: 1024 * 1024 };
/// The first topic registered after the default one.
const TOPIC_NUMBER: TopicNumber = TopicNumber(2);

/// One pass over the log.
#[derive(Debug, Clone, Copy)]
struct Pass {
    events: u64,
    text_bytes: u64,
    seconds: f64,
    cpu_seconds: f64,
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Broker,
    LogAll,
    LogTopic,
}

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    let (place, rounds, raw_time) = (run.place, run.rounds(), run.raw_time());
    let events = run.count(EVENTS);
    let history = run.history(events)?;
    history.stop()?;
    let log = history.folder().join("log");
    let runtime = runtime()?;
    let store = runtime.block_on(Store::files(history.folder()))?;
    let mut samples = Samples::default();
    let (mut files, mut passes) = (Vec::new(), [Vec::new(), Vec::new(), Vec::new()]);
    raw::read_segments(&log)?;
    for _ in 0..rounds {
        samples.take(place, raw_time)?;
        let (bytes, seconds) = raw::read_segments(&log)?;
        files.push(bytes as f64 / seconds);
        for (passes, way) in passes.iter_mut().zip([Way::Broker, Way::LogAll, Way::LogTopic]) {
            passes.push(runtime.block_on(async { way.pass(&store, events).await })?);
        }
    }
    runtime.block_on(store.close());
    show(report, &passes, median(files));
    report.table(&samples.table());
    Ok(())
}

fn show(report: &mut Report, passes: &[Vec<Pass>; 3], files: f64) {
    let title = "Sequential reading, one reader, warm cache";
    let mut table = Table::new(title, ["", "text GiB/s", "events/s", "CPU us/event", "text GiB read"]);
    for (name, passes) in
        ["broker.read, pages of 100", "log.read(All), pages of 1 MiB", "log.read(Topic), pages of 1 MiB"]
            .iter()
            .zip(passes)
    {
        let figure = |figure: fn(&Pass) -> f64| median(passes.iter().map(figure));
        let speed = figure(|pass| pass.text_bytes as f64 / pass.seconds);
        table.row([
            (*name).to_owned(),
            gibibytes(speed),
            whole(figure(|pass| pass.events as f64 / pass.seconds)),
            fine(figure(|pass| pass.cpu_seconds * 1e6 / pass.events as f64)),
            gibibytes(figure(|pass| pass.text_bytes as f64)),
        ]);
        let measured = format!("{} GiB/s", gibibytes(speed));
        report.target(*name, ">= 1 GiB/s", measured, speed >= GIBIBYTE);
    }
    table.note(format!("bare: the same files read in pieces of 1 MiB: {} GiB/s (with frames)", gibibytes(files)));
    table.note("text: the events' JSON alone, every checksum checked");
    report.table(&table);
}

impl Way {
    async fn pass(self, store: &Store, events: u64) -> Outcome<Pass> {
        let (cpu, begun) = (usage::cpu_time(), Instant::now());
        let (events, text_bytes) = match self {
            Self::Broker => through_broker(store, events).await?,
            Self::LogAll => {
                let next = |last: &Record| ReadRange::All(last.header.position);
                through_log(store.log.as_ref(), ReadRange::All(Position::ZERO), next, events).await?
            }
            Self::LogTopic => {
                let next = |last: &Record| ReadRange::Topic(TOPIC_NUMBER, last.header.sequence);
                through_log(store.log.as_ref(), ReadRange::Topic(TOPIC_NUMBER, Sequence::ZERO), next, events).await?
            }
        };
        let cpu_seconds = usage::cpu_time().saturating_sub(cpu).as_secs_f64();
        Ok(Pass { events, text_bytes, seconds: begun.elapsed().as_secs_f64(), cpu_seconds })
    }
}

async fn through_broker(store: &Store, events: u64) -> Outcome<(u64, u64)> {
    let (mut offset, mut count, mut bytes) = (Offset::ZERO, 0, 0);
    let topic = events::topic()?;
    while count < events {
        let page = store.broker.read(TopicRead::all(topic.clone()).after(offset)).await?;
        if page.items.is_empty() {
            break;
        }
        count += page.items.len() as u64;
        bytes += page.items.iter().map(|event| event.text.len() as u64).sum::<u64>();
        offset = page.next_offset;
    }
    Ok((count, bytes))
}

async fn through_log(
    log: &dyn Log,
    mut range: ReadRange,
    next: impl Fn(&Record) -> ReadRange,
    events: u64,
) -> Outcome<(u64, u64)> {
    let (mut count, mut bytes) = (0, 0);
    while count < events {
        let page = log.read(range, PAGE).await?;
        let Some(last) = page.last() else { break };
        range = next(last);
        count += page.len() as u64;
        bytes += page.iter().map(|record| record.body.len() as u64).sum::<u64>();
    }
    Ok((count, bytes))
}
