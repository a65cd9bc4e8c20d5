//! Waking: from the publisher's call, and from its answer, to a waiting reader's hands.

use super::{Run, runtime};
use crate::events::{self, Aggregates, Maker};
use crate::figures::{share, whole};
use crate::raw::{self, Samples, Shape};
use crate::report::{Report, Table};
use crate::store::Store;
use crate::{Failure, Outcome};
use contract::api::*;
use contract::{Offset, TopicRead};
use event_broker::Broker;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const ROUNDS: u64 = 2000;
/// Long enough for the reader to be asleep.
const PAUSE: Duration = Duration::from_micros(500);

/// One round, in microseconds.
struct Round {
    call_to_answer: f64,
    call_to_receipt: f64,
    /// Below 0 where the reader was faster than the publisher's own answer.
    answer_to_receipt: f64,
}

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    let runtime = runtime()?;
    let mut samples = Samples::default();
    let mut table = Table::new("One publisher, one waiting reader; microseconds", ["", "p50", "p99", "most"]);
    samples.take(run.place, run.raw_time())?;
    add(&mut table, "bare: one task wakes another", runtime.block_on(bare_wakes(run.count(ROUNDS)))?);
    let memory = runtime.block_on(async { rounds(&Store::memory().await?, run.count(ROUNDS)).await })?;
    add_rounds(&mut table, "memory", &memory);
    let loops = raw::sync_loop(run.place, raw::BLOCK_BYTES, Shape::WrittenAhead, run.raw_time())?;
    let bare = loops.waits.iter().map(|nanos| f64::from(*nanos) / 1e3).collect();
    add(&mut table, "bare: 4 KiB + fdatasync, written ahead", bare);
    let folder = run.place.fresh("wake")?;
    let file = runtime.block_on(async { rounds(&Store::files(&folder).await?, run.count(ROUNDS)).await })?;
    add_rounds(&mut table, "file", &file);
    samples.take(run.place, run.raw_time())?;
    table.note("below 0: the reader received the event before the publisher received its response");
    report.table(&table);
    report.table(&samples.table());
    Ok(())
}

fn add_rounds(table: &mut Table, engine: &str, rounds: &[Round]) {
    let mut add = |name: &str, figure: fn(&Round) -> f64| {
        add(table, &format!("{engine}: {name}"), rounds.iter().map(figure).collect());
    };
    add("call to answer", |round| round.call_to_answer);
    add("call to receipt", |round| round.call_to_receipt);
    add("answer to receipt", |round| round.answer_to_receipt);
}

fn add(table: &mut Table, name: &str, mut samples: Vec<f64>) {
    samples.sort_unstable_by(f64::total_cmp);
    let at = |part| whole(share(&samples, part).copied().unwrap_or(f64::NAN));
    table.row([name.to_owned(), at(0.5), at(0.99), at(1.0)]);
}

async fn rounds(store: &Store, count: u64) -> Outcome<Vec<Round>> {
    let (receipts, mut received) = mpsc::channel(1);
    let reader = tokio::spawn(read(Arc::clone(&store.broker), count, receipts));
    let maker = Maker::new(Aggregates::Among(100))?;
    let mut rounds = Vec::new();
    for number in 0..count {
        tokio::time::sleep(PAUSE).await;
        let event = maker.event(number)?;
        let called = Instant::now();
        store.broker.publish(event, None).await?;
        let answered = Instant::now();
        let receipt = received.recv().await.ok_or("the reader is gone")?;
        rounds.push(Round {
            call_to_answer: micros(called, answered),
            call_to_receipt: micros(called, receipt),
            answer_to_receipt: micros(answered, receipt),
        });
    }
    reader.await??;
    store.broker.close().await;
    Ok(rounds)
}

/// Waits for each event behind the last, and says when it came.
async fn read(broker: Arc<Broker>, count: u64, receipts: mpsc::Sender<Instant>) -> Outcome {
    let mut offset = Offset::ZERO;
    let topic = events::topic()?;
    while offset.0 < count {
        let page = broker.wait(TopicRead::all(topic.clone()).after(offset), Duration::from_secs(10)).await?;
        let now = Instant::now();
        offset = page.next_offset;
        for _ in &page.items {
            receipts.send(now).await?;
        }
    }
    Ok(())
}

/// What the runtime itself takes to wake a task that waits.
async fn bare_wakes(count: u64) -> Outcome<Vec<f64>> {
    let (sender, mut receiver) = mpsc::channel::<Instant>(1);
    let sleeper = tokio::spawn(async move {
        let mut wakes = Vec::new();
        while let Some(sent) = receiver.recv().await {
            wakes.push(micros(sent, Instant::now()));
        }
        Ok::<_, Failure>(wakes)
    });
    for _ in 0..count {
        tokio::time::sleep(PAUSE).await;
        sender.send(Instant::now()).await?;
    }
    drop(sender);
    sleeper.await?
}

/// From one moment to another, which may be the earlier.
fn micros(from: Instant, to: Instant) -> f64 {
    let (ahead, behind) = (to.saturating_duration_since(from), from.saturating_duration_since(to));
    (ahead.as_secs_f64() - behind.as_secs_f64()) * 1e6
}
