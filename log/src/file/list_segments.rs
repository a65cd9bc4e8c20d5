//! The segments that hold a topic's records, as the API lists them.

use super::LOG_FOLDER;
use super::index::{LookupError, TopicSummary};
use super::segment_head::SegmentHead;
use super::state::SharedLog;
use crate::{LogError, ReadLimit, ReadRange, RecordHeader, TopicNumber};
use contract::{Segment, Sequence, Timestamp};

/// How often the listing may restart because records were removed during it.
const RETRIES_MAX: usize = 100;

impl SharedLog {
    /// The runs of a topic's records, oldest first, without removed ones.
    pub(crate) fn segments(&self, topic: TopicNumber) -> Result<Vec<Segment>, LogError> {
        let mut retries = 0;
        loop {
            match self.list_segments(topic) {
                Err(LookupError::Gone | LookupError::BadIndex) if retries < RETRIES_MAX => retries += 1,
                other => return other.map_err(|miss| self.lookup_failed(miss)),
            }
        }
    }

    fn list_segments(&self, topic: TopicNumber) -> Result<Vec<Segment>, LookupError> {
        let (parts, removed) = {
            let state = self.state();
            let sealed = state.runs(topic).iter().filter_map(|run| state.sealed(run.base));
            let sealed = sealed.filter_map(|segment| Some((segment.head, *segment.summary.topic(topic)?)));
            let active = state.active.iter().filter_map(|active| Some((active.head, *active.index.topic(topic)?)));
            (sealed.chain(active).collect::<Vec<_>>(), state.trim_marks.removed_through(topic))
        };
        let mut segments = Vec::new();
        for (head, mut summary) in parts.into_iter().filter(|(_, summary)| summary.last > removed) {
            if summary.first <= removed {
                let first = self.first_behind(topic, removed)?;
                summary.count = summary.count.min((summary.last.get() - first.sequence.get() + 1) as u32);
                (summary.first, summary.first_time) = (first.sequence, first.time);
            }
            segments.push(Self::segment(&head, &summary));
        }
        Ok(segments)
    }

    fn first_behind(&self, topic: TopicNumber, removed: Sequence) -> Result<RecordHeader, LookupError> {
        match self.read_headers(ReadRange::Topic(topic, removed), ReadLimit { records: 1, bytes: 0 }) {
            Ok(headers) => headers.first().copied().ok_or(LookupError::Gone),
            // Removed in the meantime: start again.
            Err(LogError::Trimmed(_)) => Err(LookupError::Gone),
            Err(error) => Err(error.into()),
        }
    }

    fn segment(head: &SegmentHead, summary: &TopicSummary) -> Segment {
        Segment {
            location: location(&head.name.file()),
            start_sequence: summary.first,
            start_time: Timestamp::from_millis(summary.first_time),
            end_sequence: summary.last,
            end_time: Timestamp::from_millis(summary.last_time),
            amount: u64::from(summary.count),
            created_at: Timestamp::from_millis(head.created),
        }
    }
}

/// A file's path within its data folder, as a URL. The path of the folder is not shown to clients.
fn location(file: &str) -> String {
    format!("file://{LOG_FOLDER}/{file}")
}
