//! Events of a topic as far as they can be read: of a damaged event, its header.
//!
//! - Work that one damaged event must not stop reads pages here. It sees where the event is and what its header says.
//! - Removed events are skipped. An event whose header is damaged too cannot be passed: such a read fails.

use super::read::unreadable;
use crate::ledger::{Ledger, Registry, read_failed};
use contract::{Error, Result, Sequence};
use log::{LogError, ReadLimit, ReadRange, Record, RecordHeader, TopicNumber};

const ONE: ReadLimit = ReadLimit { records: 1, bytes: 0 };

/// A part of a topic.
pub(crate) enum TopicScanPage {
    /// Intact events; none behind the tail.
    Intact(Vec<Record>),
    /// The next event is damaged.
    Damaged(RecordHeader),
}

/// One event.
pub(crate) enum EventLookup {
    Intact(Record),
    Damaged(RecordHeader),
}

/// Reads the next events behind `after`; if the next ones were removed, `after` moves behind them.
pub(crate) async fn read_page(
    ledger: &Ledger,
    topic: TopicNumber,
    after: &mut Sequence,
    limit: ReadLimit,
) -> Result<TopicScanPage> {
    loop {
        let range = ReadRange::Topic(topic, *after);
        match ledger.log().read(range, limit).await {
            Ok(page) => return Ok(TopicScanPage::Intact(page)),
            Err(LogError::Trimmed(earliest)) if earliest.get() > after.get() + 1 => {
                *after = Sequence(earliest.get() - 1);
            }
            Err(error @ LogError::Damaged(_)) => {
                return match next_header(ledger, range).await {
                    Some(header) => Ok(TopicScanPage::Damaged(header)),
                    None => Err(unreadable(ledger, range, error).await),
                };
            }
            Err(error) => return Err(read_failed(error)),
        }
    }
}

/// Reads the event with this sequence; `None` if it was removed.
pub(crate) async fn find_event(ledger: &Ledger, topic: TopicNumber, sequence: Sequence) -> Result<Option<EventLookup>> {
    let mut after = Sequence(sequence.get().saturating_sub(1));
    let found = match read_page(ledger, topic, &mut after, ONE).await? {
        TopicScanPage::Intact(page) => page.into_iter().next().map(EventLookup::Intact),
        TopicScanPage::Damaged(header) => Some(EventLookup::Damaged(header)),
    };
    Ok(found.filter(|event| event.header().sequence == sequence))
}

/// The first header of a range that begins with a damaged record, if it is intact.
async fn next_header(ledger: &Ledger, range: ReadRange) -> Option<RecordHeader> {
    ledger.log().headers(range, ONE).await.ok()?.first().copied()
}

/// The name of an event's type by the header alone; `None` if the type is not registered.
pub(crate) fn type_by_header(registry: &Registry, header: &RecordHeader) -> Option<String> {
    let tag = header.facets?.type_tag;
    let known = registry.event_types().find(|known| known.tag == tag)?;
    Some(known.event_type.definition.id.to_string())
}

/// Whether an event could not be read because it is damaged.
pub(crate) fn is_damage(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<LogError>());
    matches!(source, Some(LogError::Damaged(_)))
}

/// Why an event that is shown has no body, and what helps.
pub(crate) fn damage_detail(sequence: Sequence) -> String {
    format!(
        "The event with sequence {sequence} is damaged on disk and cannot be read. The operator can cut it out: stop the \
         broker and run `event-broker repair`."
    )
}

impl EventLookup {
    pub(crate) const fn header(&self) -> &RecordHeader {
        match self {
            Self::Intact(record) => &record.header,
            Self::Damaged(header) => header,
        }
    }
}
