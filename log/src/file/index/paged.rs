//! The index of a sealed segment in its `.idx` file, read page by page as needed. `docs/format.md` describes it.
//!
//! - Its head (summary, topics, sections) and its filters stay in RAM; everything else is read per lookup.
//! - A page that does not match its checksum is [`Miss::BadIndex`]: the index is rebuilt from the segment.

use super::bloom_filter::BloomFilter;
use super::pages::{IndexSection, PAYLOAD_BYTES, PageReader, PageWriter};
use super::{FrameLocation, LiveIndex, LookupError, ReadPlan, RecordOrder, SegmentSummary, TopicSummary};
use crate::file::Disk;
use crate::file::segment_head::SegmentHead;
use crate::{ReadLimit, ReadRange};
use bytes::{Buf, BufMut};

const MAGIC: &[u8; 8] = b"EVIDX\r\n\x1A";
const VERSION: u32 = 1;
/// Bytes of the head before the summary: magic, version, length, segment, salt and six sections.
const FIXED_BYTES: usize = 8 + 4 + 4 + 8 + 4 + 4 + 6 * 8;

const RECORD_BYTES: usize = 8;
const TOPIC_BYTES: usize = 12;
const ID_BYTES: usize = 20;
const AGGREGATE_BYTES: usize = 32;

/// An index in its file.
#[derive(Debug)]
pub(crate) struct PagedIndex {
    file: String,
    base: u64,
    summary: SegmentSummary,
    sections: IndexSections,
    ids: BloomFilter,
    aggregates: BloomFilter,
}

#[derive(Debug, Clone, Copy)]
struct IndexSections {
    records: IndexSection,
    topics: IndexSection,
    ids: IndexSection,
    aggregates: IndexSection,
    id_filter: IndexSection,
    aggregate_filter: IndexSection,
}

/// The pages of an index file: those of its head, and those after them. The head is written last, so an index with a head is
/// complete.
pub(crate) struct EncodedIndex {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// The index file of a segment. `None` for an empty segment.
pub(crate) fn encode(live: &LiveIndex, head: &SegmentHead) -> Option<EncodedIndex> {
    let summary = live.summary()?;
    let head_bytes = FIXED_BYTES + SegmentSummary::encoded_bytes(summary.topics.len());
    let mut pages = PageWriter::with_room(head_bytes.div_ceil(PAYLOAD_BYTES) as u32, &room_for(live));
    let records = pages.section(live.records().map(|(delta, offset)| record_entry(delta, offset)));
    let topics = summary.topics.iter().flat_map(|topic| live.topic_entries(topic.topic));
    let topics = pages.section(topics.map(|(delta, place)| topic_entry(delta, place)));
    let ids = pages.section(live.sorted_ids().map(|(id, offset)| id_entry(id, offset)));
    let aggregates = pages.section(live.sorted_aggregates().map(|(key, place)| aggregate_entry(key, place)));
    let id_filter = pages.stream(&BloomFilter::of(live.id_keys()).encode());
    let aggregate_filter = pages.stream(&BloomFilter::of(live.aggregate_keys()).encode());
    let sections = IndexSections { records, topics, ids, aggregates, id_filter, aggregate_filter };

    let mut head_pages = PageWriter::new(0);
    head_pages.stream(&encode_head(head, head_bytes, &sections, &summary));
    Some(EncodedIndex { head: head_pages.finish(), body: pages.finish() })
}

/// Entries and bytes of an entry, of all sections. Without the exact capacity a file of megabytes would be in memory twice.
fn room_for(live: &LiveIndex) -> [(usize, usize); 6] {
    let (records, ids, aggregates) = (live.count(), live.id_count(), live.aggregate_entries());
    let filter = |keys: usize| (BloomFilter::bytes_of(keys), 1);
    [
        (records, RECORD_BYTES),
        (records, TOPIC_BYTES),
        (ids, ID_BYTES),
        (aggregates, AGGREGATE_BYTES),
        filter(live.id_keys().len()),
        filter(live.aggregate_keys().len()),
    ]
}

impl PagedIndex {
    /// Reads the head and the filters of a segment's index.
    pub(crate) fn open(disk: &dyn Disk, head: &SegmentHead) -> Result<Self, LookupError> {
        let file = head.name.index_file();
        let reader = PageReader { disk, file: &file };
        let (sections, summary) = read_head(reader, head)?;
        let ids = BloomFilter::decode(&reader.stream(sections.id_filter)?);
        let aggregates = BloomFilter::decode(&reader.stream(sections.aggregate_filter)?);
        Ok(Self { base: head.name.base.get(), summary, sections, ids, aggregates, file })
    }

    /// The summary of its segment.
    pub(crate) fn summary(&self) -> &SegmentSummary {
        &self.summary
    }

    pub(crate) fn places(
        &self,
        disk: &dyn Disk,
        range: ReadRange,
        limit: ReadLimit,
    ) -> Result<Vec<FrameLocation>, LookupError> {
        let wanted = ReadPlan::places_max(limit) as u32;
        let places = match range {
            ReadRange::All(after) => {
                let rank = self.rank_after(disk, after.get())?;
                self.record_places(disk, rank, wanted)?
            }
            ReadRange::Topic(topic, after) => {
                let Some(summary) = self.summary.topic(topic) else { return Ok(Vec::new()) };
                let rank = self.topic_rank_after(disk, summary, after.get())?;
                self.topic_places(disk, summary, rank, wanted)?
            }
            ReadRange::Aggregate(key, after) => self.aggregate_places(disk, key, after.get(), wanted)?,
        };
        let mut plan = ReadPlan::new(limit);
        let _all = places.into_iter().all(|place| plan.take(place));
        Ok(plan.places)
    }

    pub(crate) fn nth(
        &self,
        disk: &dyn Disk,
        order: RecordOrder,
        rank: u32,
    ) -> Result<Option<FrameLocation>, LookupError> {
        let places = match order {
            RecordOrder::Log => self.record_places(disk, rank, 1)?,
            RecordOrder::Topic(topic) => match self.summary.topic(topic) {
                Some(summary) => self.topic_places(disk, summary, rank, 1)?,
                None => Vec::new(),
            },
        };
        Ok(places.first().copied())
    }

    pub(crate) fn ids(&self, disk: &dyn Disk, id: u128) -> Result<Vec<u64>, LookupError> {
        let (reader, section) = (self.reader(disk), self.sections.ids);
        let id_of = |mut entry: &[u8]| entry.try_get_u128_le().unwrap_or_default();
        let mut next = reader.partition(section, 0..section.count, |entry| id_of(entry) < id)?;
        let mut offsets = Vec::new();
        loop {
            // An id is rarely stored twice.
            let entries = reader.entries(section, next..next.saturating_add(2))?;
            let entries = entries.as_chunks::<ID_BYTES>().0;
            let ours = entries.iter().take_while(|entry| id_of(*entry) == id).filter_map(|entry| offset_at(entry, 16));
            let before = offsets.len();
            offsets.extend(ours);
            if offsets.len() < before + 2 {
                return Ok(offsets);
            }
            next += 2;
        }
    }

    pub(crate) fn aggregate(&self, disk: &dyn Disk, key: u128, most: usize) -> Result<Vec<u64>, LookupError> {
        let (reader, section) = (self.reader(disk), self.sections.aggregates);
        let key_of = |mut entry: &[u8]| entry.try_get_u128_le().unwrap_or_default();
        let end = reader.partition(section, 0..section.count, |entry| key_of(entry) <= key)?;
        let start = end.saturating_sub(u32::try_from(most).unwrap_or(u32::MAX));
        let entries = reader.entries(section, start..end)?;
        let ours = entries.as_chunks::<AGGREGATE_BYTES>().0.iter().rev().take_while(|entry| key_of(*entry) == key);
        Ok(ours.filter_map(|entry| offset_at(entry, 24)).collect())
    }

    pub(crate) fn may_hold_id(&self, id: u128) -> bool {
        self.ids.may_hold(id)
    }

    pub(crate) fn may_hold_aggregate(&self, key: u128) -> bool {
        self.aggregates.may_hold(key)
    }

    fn reader<'a>(&'a self, disk: &'a dyn Disk) -> PageReader<'a> {
        PageReader { disk, file: &self.file }
    }

    fn rank_after(&self, disk: &dyn Disk, after: u64) -> Result<u32, LookupError> {
        let SegmentSummary { first, last, count, .. } = self.summary;
        if let Some(rank) = dense_rank(first.get(), last.get(), count, after) {
            return Ok(rank);
        }
        let position_of = |mut entry: &[u8]| self.base + u64::from(entry.try_get_u32_le().unwrap_or_default());
        self.reader(disk).partition(self.sections.records, 0..count, |entry| position_of(entry) <= after)
    }

    fn topic_rank_after(&self, disk: &dyn Disk, topic: &TopicSummary, after: u64) -> Result<u32, LookupError> {
        if let Some(rank) = dense_rank(topic.first.get(), topic.last.get(), topic.count, after) {
            return Ok(rank);
        }
        let start = self.summary.topic_start(topic.topic);
        let sequence_of = |mut entry: &[u8]| topic.first.get() + u64::from(entry.try_get_u32_le().unwrap_or_default());
        let within = start..start + topic.count;
        let found = self.reader(disk).partition(self.sections.topics, within, |entry| sequence_of(entry) <= after)?;
        Ok(found - start)
    }

    /// Locations by position. The length of a frame is the distance to the next one.
    fn record_places(&self, disk: &dyn Disk, rank: u32, most: u32) -> Result<Vec<FrameLocation>, LookupError> {
        let end = rank.saturating_add(most).min(self.summary.count);
        let entries = self.reader(disk).entries(self.sections.records, rank..end.saturating_add(1))?;
        let entries = entries.as_chunks::<RECORD_BYTES>().0;
        let ends = entries.iter().skip(1).filter_map(|entry| offset_at(entry, 4)).chain([self.summary.bytes]);
        let places = entries.iter().zip(ends).take(end.saturating_sub(rank) as usize);
        Ok(places.filter_map(|(entry, end)| self.record_place(entry, end)).collect())
    }

    fn record_place(&self, mut entry: &[u8], end: u64) -> Option<FrameLocation> {
        let number = self.base + u64::from(entry.try_get_u32_le().ok()?);
        let offset = u64::from(entry.try_get_u32_le().ok()?);
        Some(FrameLocation { offset, bytes: end.checked_sub(offset)? as usize, number })
    }

    fn topic_places(
        &self,
        disk: &dyn Disk,
        topic: &TopicSummary,
        rank: u32,
        most: u32,
    ) -> Result<Vec<FrameLocation>, LookupError> {
        let start = self.summary.topic_start(topic.topic);
        let (from, to) = (start + rank, start + rank.saturating_add(most).min(topic.count));
        let entries = self.reader(disk).entries(self.sections.topics, from..to)?;
        Ok(entries.as_chunks::<TOPIC_BYTES>().0.iter().filter_map(|entry| topic_place(topic, entry)).collect())
    }

    fn aggregate_places(
        &self,
        disk: &dyn Disk,
        key: u128,
        after: u64,
        most: u32,
    ) -> Result<Vec<FrameLocation>, LookupError> {
        let (reader, section) = (self.reader(disk), self.sections.aggregates);
        let order_of = |entry: &[u8]| aggregate_place(entry).map(|(key, place)| (key, place.number));
        let start = reader.partition(section, 0..section.count, |entry| order_of(entry) <= Some((key, after)))?;
        // An aggregate's records in a segment are few as a rule: two pages of entries at most.
        let entries = reader.entries(section, start..start.saturating_add(most.min(200)))?;
        let places = entries.as_chunks::<AGGREGATE_BYTES>().0.iter().filter_map(|entry| aggregate_place(entry));
        Ok(places.take_while(|(found, _)| *found == key).map(|(_, place)| place).collect())
    }
}

/// Whether a segment has an index that was finished: its head is there.
pub(crate) fn is_finished(disk: &dyn Disk, head: &SegmentHead) -> Result<bool, LookupError> {
    match read_head(PageReader { disk, file: &head.name.index_file() }, head) {
        Ok(_) => Ok(true),
        Err(LookupError::Gone | LookupError::BadIndex) => Ok(false),
        Err(failed) => Err(failed),
    }
}

fn read_head(reader: PageReader<'_>, head: &SegmentHead) -> Result<(IndexSections, SegmentSummary), LookupError> {
    let fixed = reader.stream(head_section(FIXED_BYTES))?;
    let head_bytes = fixed.get(12..16).map_or(0, |mut field| field.get_u32_le()) as usize;
    decode_head(&reader.stream(head_section(head_bytes))?, head).ok_or(LookupError::BadIndex)
}

/// How many of `count` numbers from `first` to `last` are at or before `after`, if none is missing between them.
fn dense_rank(first: u64, last: u64, count: u32, after: u64) -> Option<u32> {
    let dense = last - first == u64::from(count.saturating_sub(1));
    dense.then(|| after.saturating_add(1).saturating_sub(first).min(u64::from(count)) as u32)
}

fn head_section(bytes: usize) -> IndexSection {
    IndexSection { page: 0, count: bytes as u32, entry_bytes: 1 }
}

fn encode_head(head: &SegmentHead, head_bytes: usize, sections: &IndexSections, summary: &SegmentSummary) -> Vec<u8> {
    let mut out = Vec::with_capacity(head_bytes);
    out.put_slice(MAGIC);
    out.put_u32_le(VERSION);
    out.put_u32_le(head_bytes as u32);
    out.put_u64_le(head.name.base.get());
    out.put_u32_le(head.name.generation);
    out.put_u32_le(head.salt);
    let IndexSections { records, topics, ids, aggregates, id_filter, aggregate_filter } = sections;
    for section in [records, topics, ids, aggregates, id_filter, aggregate_filter] {
        out.put_u32_le(section.page);
        out.put_u32_le(section.count);
    }
    summary.encode(&mut out);
    out
}

fn decode_head(bytes: &[u8], head: &SegmentHead) -> Option<(IndexSections, SegmentSummary)> {
    let mut fields = bytes.strip_prefix(MAGIC)?;
    let version = fields.try_get_u32_le().ok()?;
    let _head_bytes = fields.try_get_u32_le().ok()?;
    let base = fields.try_get_u64_le().ok()?;
    let generation = fields.try_get_u32_le().ok()?;
    let salt = fields.try_get_u32_le().ok()?;
    let mut section = |entry_bytes: usize| {
        Some(IndexSection { page: fields.try_get_u32_le().ok()?, count: fields.try_get_u32_le().ok()?, entry_bytes })
    };
    let sections = IndexSections {
        records: section(RECORD_BYTES)?,
        topics: section(TOPIC_BYTES)?,
        ids: section(ID_BYTES)?,
        aggregates: section(AGGREGATE_BYTES)?,
        id_filter: section(1)?,
        aggregate_filter: section(1)?,
    };
    let ours = (base, generation, salt) == (head.name.base.get(), head.name.generation, head.salt);
    let summary = SegmentSummary::decode(&mut fields)?;
    (version == VERSION && ours).then_some((sections, summary))
}

fn record_entry(delta: u32, offset: u32) -> [u8; RECORD_BYTES] {
    let mut entry = [0; RECORD_BYTES];
    let mut out = entry.as_mut_slice();
    out.put_u32_le(delta);
    out.put_u32_le(offset);
    entry
}

fn topic_entry(delta: u32, place: FrameLocation) -> [u8; TOPIC_BYTES] {
    let mut entry = [0; TOPIC_BYTES];
    let mut out = entry.as_mut_slice();
    out.put_u32_le(delta);
    out.put_u32_le(place.offset as u32);
    out.put_u32_le(place.bytes as u32);
    entry
}

fn topic_place(topic: &TopicSummary, mut entry: &[u8]) -> Option<FrameLocation> {
    let number = topic.first.get() + u64::from(entry.try_get_u32_le().ok()?);
    let offset = u64::from(entry.try_get_u32_le().ok()?);
    Some(FrameLocation { offset, bytes: entry.try_get_u32_le().ok()? as usize, number })
}

fn id_entry(id: u128, offset: u32) -> [u8; ID_BYTES] {
    let mut entry = [0; ID_BYTES];
    let mut out = entry.as_mut_slice();
    out.put_u128_le(id);
    out.put_u32_le(offset);
    entry
}

fn aggregate_entry(key: u128, place: FrameLocation) -> [u8; AGGREGATE_BYTES] {
    let mut entry = [0; AGGREGATE_BYTES];
    let mut out = entry.as_mut_slice();
    out.put_u128_le(key);
    out.put_u64_le(place.number);
    out.put_u32_le(place.offset as u32);
    out.put_u32_le(place.bytes as u32);
    entry
}

fn aggregate_place(mut entry: &[u8]) -> Option<(u128, FrameLocation)> {
    let key = entry.try_get_u128_le().ok()?;
    let number = entry.try_get_u64_le().ok()?;
    let offset = u64::from(entry.try_get_u32_le().ok()?);
    Some((key, FrameLocation { offset, bytes: entry.try_get_u32_le().ok()? as usize, number }))
}

fn offset_at(entry: &[u8], at: usize) -> Option<u64> {
    entry.get(at..)?.try_get_u32_le().ok().map(u64::from)
}
