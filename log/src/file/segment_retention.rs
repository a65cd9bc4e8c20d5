//! What to do with a sealed segment once some of its records were removed. Choosing only; the keeper does it.

use super::index::{SegmentSummary, TopicSummary};
use super::trim_marks::TrimMarks;

/// What to do with a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentAction {
    /// Leave it.
    Keep,
    /// Copy what is left to a new file: at least half of the bytes come back.
    Rewrite,
    /// Take it away: nothing is left.
    Drop,
}

/// What to do with a segment of which `marks` hide some records.
pub(crate) fn choose(summary: &SegmentSummary, trim_marks: &TrimMarks) -> SegmentAction {
    let all: u64 = summary.topics.iter().map(|topic| topic.bytes).sum();
    let removed: u64 = summary.topics.iter().map(|topic| removed_bytes(topic, trim_marks)).sum();
    if summary.topics.iter().all(|topic| topic.last <= trim_marks.removed_through(topic.topic)) {
        SegmentAction::Drop
    } else if removed > 0 && removed >= all.div_ceil(2) {
        SegmentAction::Rewrite
    } else {
        SegmentAction::Keep
    }
}

/// Whether any record of a segment was removed: its bytes are still in the file.
pub(crate) fn holds_removed(topics: &[TopicSummary], trim_marks: &TrimMarks) -> bool {
    topics.iter().any(|topic| topic.first <= trim_marks.removed_through(topic.topic))
}

/// Bytes of a topic's removed records, taking them to be of equal size.
fn removed_bytes(topic: &TopicSummary, trim_marks: &TrimMarks) -> u64 {
    let through = trim_marks.removed_through(topic.topic).min(topic.last);
    let span = topic.last.get() - topic.first.get() + 1;
    let removed = (through.get() + 1).saturating_sub(topic.first.get());
    (u128::from(topic.bytes) * u128::from(removed) / u128::from(span)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TopicNumber;
    use contract::{Position, Sequence};

    fn topic(number: u32, first: u64, last: u64, bytes: u64) -> TopicSummary {
        TopicSummary {
            topic: TopicNumber(number),
            count: (last - first + 1) as u32,
            first: Sequence(first),
            last: Sequence(last),
            first_time: 0,
            last_time: 0,
            bytes,
        }
    }

    #[test]
    fn drops_what_is_empty_and_rewrites_what_is_half_empty() {
        let summary = SegmentSummary {
            first: Position(100),
            last: Position(119),
            first_time: 0,
            last_time: 0,
            count: 20,
            bytes: 2064,
            topics: vec![topic(1, 11, 20, 1000), topic(2, 1, 10, 1000)],
        };
        for (removed, choice) in [
            (&[][..], SegmentAction::Keep),
            (&[(1, 10)], SegmentAction::Keep),
            (&[(1, 19)], SegmentAction::Keep),
            (&[(1, 20)], SegmentAction::Rewrite),
            (&[(1, 15), (2, 5)], SegmentAction::Rewrite),
            (&[(1, 15), (2, 4)], SegmentAction::Keep),
            (&[(1, 99), (2, 9)], SegmentAction::Rewrite),
            (&[(1, 20), (2, 10)], SegmentAction::Drop),
            (&[(1, 99), (2, 99), (3, 5)], SegmentAction::Drop),
            (&[(3, 99)], SegmentAction::Keep),
        ] {
            let mut trim_marks = TrimMarks::default();
            for (topic, through) in removed {
                trim_marks = trim_marks.with_removed(TopicNumber(*topic), Sequence(*through)).unwrap();
            }
            assert_eq!(choose(&summary, &trim_marks), choice, "{removed:?}");
            let is_touched = removed.iter().any(|(topic, through)| *topic < 3 && (*topic, *through) != (1, 10));
            assert_eq!(holds_removed(&summary.topics, &trim_marks), is_touched, "{removed:?}");
        }
    }
}
