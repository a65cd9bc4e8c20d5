//! Reading the log into the state: at start, and whenever another process wrote.
//!
//! A log that others share may go back: its server is replaced by a copy that had not received everything, or restored.
//! Others may have written past the old end by the time it is read again. So reading begins with the last record that was
//! applied: it must be there, and be the same.

use super::state::State;
use bytes::Bytes;
use contract::{Position, Sequence};
use log::{Damage, Limit, Log, LogError, Range, Record};

/// One record.
const ONE: Limit = Limit { records: 1, bytes: 0 };

/// How much is read at a time while folding.
const PAGE: Limit = Limit { records: 16 * 1024, bytes: 4 * 1024 * 1024 };

/// Applies every record behind the state's position; `folded` is told of each page, with the state as it is then.
///
/// [`LogError::Diverged`] where the log does not hold the last record that was applied.
pub(super) async fn catch_up(
    log: &dyn Log,
    state: &mut State,
    mut folded: impl FnMut(&mut State, &[Record]),
) -> Result<(), LogError> {
    let mut is_compared = !log.is_shared() || state.position() == Position::ZERO;
    loop {
        let from = state.position().0 - u64::from(!is_compared);
        let page = match log.follow(Position(from), PAGE).await {
            Err(LogError::Damaged(damage)) if is_compared => vec![without_body(log, state, damage).await?],
            read => read?,
        };
        let new = match is_compared {
            true => page.as_slice(),
            false => behind_last(log, state, &page).await?,
        };
        if new.is_empty() && is_compared {
            return Ok(());
        }
        is_compared = true;
        let applied = new.iter().try_for_each(|record| state.apply(record));
        if !new.is_empty() {
            folded(state, new);
        }
        applied?;
    }
}

/// What of a page that begins with the last applied record comes behind it.
async fn behind_last<'a>(log: &dyn Log, state: &State, page: &'a [Record]) -> Result<&'a [Record], LogError> {
    let diverged = LogError::Diverged(state.position());
    if let Some((first, rest)) = page.split_first()
        && first.header.position == state.position()
    {
        return if state.ends_with(first) { Ok(rest) } else { Err(diverged) };
    }
    // It is not there. Retention may have removed it; then its topic says so.
    let behind = Range::Topic(state.last.topic, Sequence(state.last.sequence.0.saturating_sub(1)));
    match log.read(behind, ONE).await {
        Err(LogError::Trimmed(_)) => Ok(page),
        Ok(_) => Err(diverged),
        Err(error) => Err(error),
    }
}

/// The next record with an empty body, where its own is damaged. An event is folded by its header, so it is only the
/// event's readers who miss something; what an entry said cannot be done without.
async fn without_body(log: &dyn Log, state: &State, damage: Damage) -> Result<Record, LogError> {
    match log.headers(Range::All(state.position()), ONE).await?.first() {
        Some(header) if header.facets.is_some() => {
            tracing::warn!(
                file = %damage.file.display(), offset = damage.offset, reason = damage.reason,
                position = header.position.get(), sequence = header.sequence.get(),
                "an event cannot be read; everything else can"
            );
            Ok(Record { header: *header, body: Bytes::new() })
        }
        _ => Err(LogError::Damaged(damage)),
    }
}
