//! The summary of a sealed segment, which stays in RAM: its ends, and its topics.

use crate::TopicNumber;
use bytes::{Buf, BufMut};
use contract::{Position, Sequence};

/// The summary of a segment that is not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentSummary {
    /// First position in it.
    pub(crate) first: Position,
    /// Last position in it.
    pub(crate) last: Position,
    /// Time of the first record.
    pub(crate) first_time: i64,
    /// Time of the last record.
    pub(crate) last_time: i64,
    /// Records in it.
    pub(crate) count: u32,
    /// Where its last frame ends.
    pub(crate) bytes: u64,
    /// Its topics, by number.
    pub(crate) topics: Vec<TopicSummary>,
}

/// A topic's part of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TopicSummary {
    /// The topic.
    pub(crate) topic: TopicNumber,
    /// Records of the topic in the segment.
    pub(crate) count: u32,
    /// First sequence.
    pub(crate) first: Sequence,
    /// Last sequence.
    pub(crate) last: Sequence,
    /// Time of the first.
    pub(crate) first_time: i64,
    /// Time of the last.
    pub(crate) last_time: i64,
    /// Bytes of its frames.
    pub(crate) bytes: u64,
}

impl SegmentSummary {
    /// A topic's part of it.
    pub(crate) fn topic(&self, topic: TopicNumber) -> Option<&TopicSummary> {
        let at = self.topics.binary_search_by_key(&topic, |summary| summary.topic).ok()?;
        self.topics.get(at)
    }

    /// Records of the topics before this one: where its part of the topic section begins.
    pub(crate) fn topic_start(&self, topic: TopicNumber) -> u32 {
        self.topics.iter().take_while(|summary| summary.topic < topic).map(|summary| summary.count).sum()
    }

    /// Bytes of [`Self::encode`] for this many topics.
    pub(crate) fn encoded_bytes(topics: usize) -> usize {
        48 + topics * 48
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64_le(self.first.get());
        out.put_u64_le(self.last.get());
        out.put_i64_le(self.first_time);
        out.put_i64_le(self.last_time);
        out.put_u64_le(self.bytes);
        out.put_u32_le(self.count);
        out.put_u32_le(self.topics.len() as u32);
        for topic in &self.topics {
            out.put_u32_le(topic.topic.0);
            out.put_u32_le(topic.count);
            out.put_u64_le(topic.first.get());
            out.put_u64_le(topic.last.get());
            out.put_i64_le(topic.first_time);
            out.put_i64_le(topic.last_time);
            out.put_u64_le(topic.bytes);
        }
    }

    pub(crate) fn decode(fields: &mut &[u8]) -> Option<Self> {
        let first = Position(fields.try_get_u64_le().ok()?);
        let last = Position(fields.try_get_u64_le().ok()?);
        let first_time = fields.try_get_i64_le().ok()?;
        let last_time = fields.try_get_i64_le().ok()?;
        let bytes = fields.try_get_u64_le().ok()?;
        let count = fields.try_get_u32_le().ok()?;
        let topics = fields.try_get_u32_le().ok()?;
        let topics = (0..topics).map(|_| TopicSummary::decode(fields)).collect::<Option<_>>()?;
        Some(Self { first, last, first_time, last_time, count, bytes, topics })
    }
}

impl TopicSummary {
    fn decode(fields: &mut &[u8]) -> Option<Self> {
        Some(Self {
            topic: TopicNumber(fields.try_get_u32_le().ok()?),
            count: fields.try_get_u32_le().ok()?,
            first: Sequence(fields.try_get_u64_le().ok()?),
            last: Sequence(fields.try_get_u64_le().ok()?),
            first_time: fields.try_get_i64_le().ok()?,
            last_time: fields.try_get_i64_le().ok()?,
            bytes: fields.try_get_u64_le().ok()?,
        })
    }
}
