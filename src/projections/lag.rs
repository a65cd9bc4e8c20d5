//! The lag of a view: how many events it has not applied yet, and since when the first of them is stored.

use crate::ledger::{Ledger, read_failed};
use contract::{NewProjection, Offset, Position, ProjectionLag, Result, Sequence, TopicId, limits};
use log::{LogError, ReadLimit, ReadRange, RecordHeader, TopicNumber};

/// One record.
const ONE: ReadLimit = ReadLimit { records: 1, bytes: 0 };
/// How much of the log is read at a time to find its next event.
const SCAN: ReadLimit = ReadLimit { records: 256, bytes: 256 * 1024 };

/// The lag at `now` of a projection with this checkpoint.
pub(super) async fn of(
    ledger: &Ledger,
    definition: &NewProjection,
    checkpoint: Offset,
    now: i64,
) -> Result<ProjectionLag> {
    match &definition.topic {
        Some(topic) => in_topic(ledger, topic, checkpoint, now).await,
        None => in_log(ledger, Position(checkpoint.get()), now).await,
    }
}

async fn in_topic(ledger: &Ledger, topic: &TopicId, checkpoint: Offset, now: i64) -> Result<ProjectionLag> {
    let registry = ledger.registry();
    let Some(topic) = registry.topic(topic) else { return Ok(ProjectionLag::default()) };
    // A checkpoint may be visible just before the tail that it depends on.
    let events = topic.tail().get().saturating_sub(checkpoint.get());
    if events == 0 {
        return Ok(ProjectionLag::default());
    }
    let oldest = first_behind(ledger, topic.number, checkpoint.into()).await?;
    Ok(ProjectionLag { events, seconds: oldest.map_or(0, |header| age(&header, now)) })
}

/// A topic's first event after `after` that is still stored.
async fn first_behind(ledger: &Ledger, topic: TopicNumber, after: Sequence) -> Result<Option<RecordHeader>> {
    let page = match ledger.log().headers(ReadRange::Topic(topic, after), ONE).await {
        Err(LogError::Trimmed(earliest)) => {
            let after = Sequence(earliest.get().saturating_sub(1));
            ledger.log().headers(ReadRange::Topic(topic, after), ONE).await
        }
        page => page,
    };
    Ok(page.map_err(read_failed)?.into_iter().next())
}

/// The broker's own entries after a log's last event, such as the checkpoint's, are no lag.
async fn in_log(ledger: &Ledger, checkpoint: Position, now: i64) -> Result<ProjectionLag> {
    let tail = *ledger.position().borrow();
    let events = tail.get().saturating_sub(checkpoint.get());
    let (mut after, mut looked_at) = (checkpoint, 0);
    while after < tail && looked_at < limits::SCAN_EVENTS_MAX {
        let page = committed(ledger, after).await?;
        if let Some(event) = page.iter().find(|header| header.facets.is_some()) {
            return Ok(ProjectionLag { events, seconds: age(event, now) });
        }
        let Some(last) = page.last() else { return Ok(ProjectionLag::default()) };
        after = last.position;
        looked_at += page.len();
    }
    Ok(if after < tail { ProjectionLag { events, seconds: 0 } } else { ProjectionLag::default() })
}

/// The next records of the log, of which the first may be damaged. A shared log that cannot confirm its tail now returns only
/// what it has confirmed, in whole batches.
async fn committed(ledger: &Ledger, after: Position) -> Result<Vec<RecordHeader>> {
    match ledger.log().read_committed(ReadRange::All(after), SCAN).await {
        Ok(page) => Ok(page.into_iter().map(|record| record.header).collect()),
        Err(LogError::Damaged(_)) => ledger.log().headers(ReadRange::All(after), ONE).await.map_err(read_failed),
        Err(error) => Err(read_failed(error)),
    }
}

fn age(header: &RecordHeader, now: i64) -> u64 {
    u64::try_from(now.saturating_sub(header.time) / 1000).unwrap_or(0)
}
