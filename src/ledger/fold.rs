//! Reading the log into the state: at start, and whenever another process wrote.

use super::state::State;
use bytes::Bytes;
use log::{Damage, Limit, Log, LogError, Range, Record};

/// One record.
const ONE: Limit = Limit { records: 1, bytes: 0 };

/// How much is read at a time while folding.
const PAGE: Limit = Limit { records: 16 * 1024, bytes: 4 * 1024 * 1024 };

/// Applies every record behind the state's position; `folded` is told of each page, with the state as it is then.
pub(super) async fn catch_up(
    log: &dyn Log,
    state: &mut State,
    mut folded: impl FnMut(&mut State, &[Record]),
) -> Result<(), LogError> {
    loop {
        let page = match log.read(Range::All(state.position()), PAGE).await {
            Err(LogError::Damaged(damage)) => vec![without_body(log, state, damage).await?],
            read => read?,
        };
        if page.is_empty() {
            return Ok(());
        }
        for record in &page {
            state.apply(record);
        }
        folded(state, &page);
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
