//! Reading the log into the state: at start, and whenever another process wrote.

use super::state::State;
use log::{Limit, Log, LogError, Range, Record};

/// How much is read at a time while folding.
const PAGE: Limit = Limit { records: 16 * 1024, bytes: 4 * 1024 * 1024 };

/// Applies every record behind the state's position; `folded` is told of each page, with the state as it is then.
pub(super) async fn catch_up(
    log: &dyn Log,
    state: &mut State,
    mut folded: impl FnMut(&mut State, &[Record]),
) -> Result<(), LogError> {
    loop {
        let page = log.read(Range::All(state.position()), PAGE).await?;
        if page.is_empty() {
            return Ok(());
        }
        for record in &page {
            state.apply(record);
        }
        folded(state, &page);
    }
}
