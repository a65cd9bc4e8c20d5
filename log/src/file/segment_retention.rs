//! The choice of what to do with sealed segments: a pure function. The background thread executes it.

use super::index::{SegmentSummary, TopicSummary};
use super::trim_marks::TrimMarks;
use std::ops::Range;

/// What to do with a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentAction {
    /// Keep it unchanged.
    Keep,
    /// Copy the remaining records to a new file: that frees at least half of the bytes.
    Rewrite,
    /// Remove it: nothing is left.
    Drop,
}

/// What to do with a segment of which `trim_marks` may hide records.
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

/// Neighbours that are merged at once.
const MERGED_SEGMENTS: usize = 8;
/// A segment is small up to this part of the size at which segments are sealed, and up to this many bytes.
const SMALL_PART: u64 = 8;
const SMALL_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The first run of neighbouring small segments to be merged into one, if there is one. `sizes` are their bytes; `None` stands
/// for a segment that cannot be merged.
///
/// The largest must not be larger than the others together: so every record is copied a few times at most (as often as its
/// segment doubles), and at most some tens of small segments stay.
pub(crate) fn choose_merge(sizes: &[Option<u64>], segment_bytes: u64) -> Option<Range<usize>> {
    let small_max = (segment_bytes / SMALL_PART).min(SMALL_BYTES_MAX);
    let is_due = |run: &[Option<u64>]| {
        let sizes: Option<Vec<u64>> = run.iter().map(|size| size.filter(|size| *size <= small_max)).collect();
        let Some(sizes) = sizes else { return false };
        sizes.iter().max().is_some_and(|largest| 2 * largest <= sizes.iter().sum())
    };
    let start = sizes.windows(MERGED_SEGMENTS).position(is_due)?;
    Some(start..start + MERGED_SEGMENTS)
}

/// Whether any record of a segment was removed: its bytes are still in the file.
pub(crate) fn holds_removed(topics: &[TopicSummary], trim_marks: &TrimMarks) -> bool {
    topics.iter().any(|topic| topic.first <= trim_marks.removed_through(topic.topic))
}

/// Bytes of a topic's removed records, if all have the same size.
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
    fn neighbours_are_merged_if_all_are_small_and_none_outweighs_the_others() {
        let (small, large) = (Some(100), Some(801));
        let eight = |size| vec![size; 8];
        for (sizes, expected) in [
            (eight(small), Some(0..8)),
            (vec![small; 7], None),
            ([vec![large], eight(small)].concat(), Some(1..9)),
            ([vec![small; 4], vec![large], vec![small; 7]].concat(), None),
            ([vec![small; 4], vec![None], vec![small; 7]].concat(), None),
            ([vec![Some(700)], vec![small; 7]].concat(), Some(0..8)),
            ([vec![Some(701)], vec![small; 7]].concat(), None),
        ] {
            assert_eq!(choose_merge(&sizes, 6400), expected, "{sizes:?}");
        }
        // However many are added one by one: few stay.
        let mut sizes = Vec::new();
        for _ in 0..10_000 {
            sizes.push(Some(100));
            while let Some(run) = choose_merge(&sizes, u64::MAX) {
                let merged = sizes.get(run.clone()).unwrap().iter().copied().sum();
                sizes.splice(run, [merged]);
            }
        }
        assert!(sizes.len() <= 60, "{}", sizes.len());
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
