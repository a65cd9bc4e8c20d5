//! A frame: one record in a segment. Encoder and decoder; `docs/format.md` describes the bytes.
//!
//! - The header's checksum starts from the segment's salt, which no publisher knows: a body cannot look like a frame.
//! - Header and body have their own checksums, so that a header can be trusted without reading its body.

use crate::{AggregateMark, EventFacets, IdempotencyMark, Record, RecordHeader, TopicNumber};
use bytes::{Buf, BufMut};
use contract::{AggregateSequence, Position, Sequence};
use std::fmt;

/// The part of the header that every frame has.
const FIXED_BYTES: usize = 64;
/// The longest header: with facets, aggregate and idempotency.
pub(crate) const HEADER_BYTES_MAX: usize = FIXED_BYTES + FACETS_BYTES + 2 * MARK_BYTES;
/// Longest body. A length beyond it is damage, not a reason to allocate.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How every frame begins.
pub(crate) const MARKER: [u8; 2] = [0xEB, 0x0F];

const FACETS_BYTES: usize = 32;
const MARK_BYTES: usize = 24;
const VERSION: u8 = 1;
/// The offset of the header's own checksum, which does not cover itself.
const CHECKSUM_AT: usize = 8;
const CHECKSUM_END: usize = 12;

const LAST: u8 = 1;
const FACETS: u8 = 2;
const AGGREGATE: u8 = 4;
const IDEMPOTENCY: u8 = 8;

/// A record's place in its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchSlot {
    /// Its number in the batch, from 0.
    pub(crate) index: u32,
    /// Whether it is the last of the batch.
    pub(crate) last: bool,
}

/// A decoded frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// The record's header.
    pub(crate) header: RecordHeader,
    /// Its place in its batch.
    pub(crate) slot: BatchSlot,
    /// Bytes of this header on disk; the body starts after them.
    pub(crate) header_bytes: usize,
    /// Bytes of the body.
    pub(crate) body_bytes: usize,
    body_checksum: u32,
}

/// Why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameFlaw {
    /// They end before the frame does.
    Short,
    /// They do not begin with the marker.
    Marker,
    /// The header's checksum does not match it.
    HeaderChecksum,
    /// The body's checksum does not match it.
    BodyChecksum,
    /// The checksum matches but a field is unknown: another version, or a bug.
    Field,
}

impl fmt::Display for FrameFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "the file ends inside a record",
            Self::Marker => "no record begins here",
            Self::HeaderChecksum => "a record's header does not match its checksum",
            Self::BodyChecksum => "a record's body does not match its checksum",
            Self::Field => "a record's header has a field that this version does not know",
        })
    }
}

/// Bytes `record` takes on disk.
pub(crate) fn frame_bytes(record: &Record) -> usize {
    header_bytes(flags(&record.header)) + record.body.len()
}

/// Appends the frame of `record` to `out`.
pub(crate) fn encode(record: &Record, slot: BatchSlot, salt: u32, out: &mut Vec<u8>) {
    let Record { header, body } = record;
    let start = out.len();
    let flags = flags(header) | if slot.last { LAST } else { 0 };
    out.reserve(header_bytes(flags) + body.len());
    out.put_slice(&MARKER);
    out.put_u8(VERSION);
    out.put_u8(flags);
    out.put_u32_le(body.len() as u32);
    out.put_u32_le(0);
    out.put_u32_le(crc32c::crc32c(body));
    out.put_u64_le(header.position.get());
    out.put_u64_le(header.sequence.get());
    out.put_u32_le(header.topic.0);
    out.put_u32_le(slot.index);
    out.put_i64_le(header.time);
    out.put_u128_le(header.id);
    if let Some(facets) = &header.facets {
        put_facets(facets, out);
    }
    let checksum = out.get(start..).map_or(0, |bytes| header_checksum(bytes, salt));
    if let Some(field) = out.get_mut(start + CHECKSUM_AT..start + CHECKSUM_END) {
        field.copy_from_slice(&checksum.to_le_bytes());
    }
    out.put_slice(body);
}

/// Decodes the header of the frame at the beginning of `bytes`; they need not contain its body.
pub(crate) fn decode(bytes: &[u8], salt: u32) -> Result<FrameHeader, FrameFlaw> {
    let mut fields = bytes.get(..FIXED_BYTES).ok_or(FrameFlaw::Short)?;
    let marker = [take(fields.try_get_u8())?, take(fields.try_get_u8())?];
    if marker != MARKER {
        return Err(FrameFlaw::Marker);
    }
    let version = take(fields.try_get_u8())?;
    let flags = take(fields.try_get_u8())?;
    let body_bytes = take(fields.try_get_u32_le())? as usize;
    let checksum = take(fields.try_get_u32_le())?;
    let body_checksum = take(fields.try_get_u32_le())?;
    let header_bytes = header_bytes(flags);
    let whole = bytes.get(..header_bytes).ok_or(FrameFlaw::Short)?;
    if header_checksum(whole, salt) != checksum {
        return Err(FrameFlaw::HeaderChecksum);
    }
    let known = flags & !(LAST | FACETS | AGGREGATE | IDEMPOTENCY) == 0;
    if version != VERSION || !known || body_bytes > BODY_BYTES_MAX {
        return Err(FrameFlaw::Field);
    }
    let position = Position(take(fields.try_get_u64_le())?);
    let sequence = Sequence(take(fields.try_get_u64_le())?);
    let topic = TopicNumber(take(fields.try_get_u32_le())?);
    let index = take(fields.try_get_u32_le())?;
    let time = take(fields.try_get_i64_le())?;
    let id = take(fields.try_get_u128_le())?;
    let facets = get_facets(flags, whole.get(FIXED_BYTES..).ok_or(FrameFlaw::Short)?)?;
    let header = RecordHeader { position, topic, sequence, time, id, facets };
    Ok(FrameHeader {
        header,
        slot: BatchSlot { index, last: flags & LAST != 0 },
        header_bytes,
        body_bytes,
        body_checksum,
    })
}

impl FrameHeader {
    /// Bytes of the whole frame.
    pub(crate) fn bytes(&self) -> usize {
        self.header_bytes + self.body_bytes
    }

    /// Checks `body` against its checksum.
    pub(crate) fn check(&self, body: &[u8]) -> Result<(), FrameFlaw> {
        if body.len() < self.body_bytes {
            Err(FrameFlaw::Short)
        } else if crc32c::crc32c(body) != self.body_checksum {
            Err(FrameFlaw::BodyChecksum)
        } else {
            Ok(())
        }
    }

    /// The first position of its batch.
    pub(crate) fn batch_start(&self) -> u64 {
        self.header.position.get().wrapping_sub(u64::from(self.slot.index))
    }
}

fn flags(header: &RecordHeader) -> u8 {
    let Some(facets) = &header.facets else { return 0 };
    let mut flags = FACETS;
    if facets.aggregate.is_some() {
        flags |= AGGREGATE;
    }
    if facets.idempotency.is_some() {
        flags |= IDEMPOTENCY;
    }
    flags
}

fn header_bytes(flags: u8) -> usize {
    let bytes = |flag: u8, bytes: usize| if flags & flag != 0 { bytes } else { 0 };
    FIXED_BYTES + bytes(FACETS, FACETS_BYTES) + bytes(AGGREGATE, MARK_BYTES) + bytes(IDEMPOTENCY, MARK_BYTES)
}

fn header_checksum(header: &[u8], salt: u32) -> u32 {
    let before = crc32c::crc32c_append(salt, header.get(..CHECKSUM_AT).unwrap_or_default());
    crc32c::crc32c_append(before, header.get(CHECKSUM_END..).unwrap_or_default())
}

fn put_facets(facets: &EventFacets, out: &mut Vec<u8>) {
    out.put_u64_le(facets.type_tag);
    out.put_u64_le(facets.subject_type_tag);
    out.put_u128_le(facets.tenant);
    if let Some(aggregate) = &facets.aggregate {
        out.put_u128_le(aggregate.key);
        out.put_u64_le(aggregate.sequence.get());
    }
    if let Some(idempotency) = &facets.idempotency {
        out.put_u128_le(idempotency.key);
        out.put_u64_le(idempotency.digest);
    }
}

fn get_facets(flags: u8, mut fields: &[u8]) -> Result<Option<EventFacets>, FrameFlaw> {
    if flags & FACETS == 0 {
        return if flags & (AGGREGATE | IDEMPOTENCY) == 0 { Ok(None) } else { Err(FrameFlaw::Field) };
    }
    let type_tag = take(fields.try_get_u64_le())?;
    let subject_type_tag = take(fields.try_get_u64_le())?;
    let tenant = take(fields.try_get_u128_le())?;
    let mut aggregate = None;
    if flags & AGGREGATE != 0 {
        let key = take(fields.try_get_u128_le())?;
        aggregate = Some(AggregateMark { key, sequence: AggregateSequence(take(fields.try_get_u64_le())?) });
    }
    let mut idempotency = None;
    if flags & IDEMPOTENCY != 0 {
        let key = take(fields.try_get_u128_le())?;
        idempotency = Some(IdempotencyMark { key, digest: take(fields.try_get_u64_le())? });
    }
    Ok(Some(EventFacets { type_tag, subject_type_tag, tenant, aggregate, idempotency }))
}

fn take<T>(field: Result<T, bytes::TryGetError>) -> Result<T, FrameFlaw> {
    field.map_err(|_| FrameFlaw::Short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn facets() -> impl Strategy<Value = EventFacets> {
        let aggregate = proptest::option::of((any::<u128>(), any::<u64>()));
        let idempotency = proptest::option::of((any::<u128>(), any::<u64>()));
        (any::<u64>(), any::<u64>(), any::<u128>(), aggregate, idempotency).prop_map(
            |(type_tag, subject_type_tag, tenant, aggregate, idempotency)| EventFacets {
                type_tag,
                subject_type_tag,
                tenant,
                aggregate: aggregate
                    .map(|(key, sequence)| AggregateMark { key, sequence: AggregateSequence(sequence) }),
                idempotency: idempotency.map(|(key, digest)| IdempotencyMark { key, digest }),
            },
        )
    }

    fn record() -> impl Strategy<Value = Record> {
        let body = proptest::collection::vec(any::<u8>(), 0..300);
        let numbers = (any::<u64>(), any::<u64>(), any::<u32>(), any::<i64>(), any::<u128>());
        (numbers, proptest::option::of(facets()), body).prop_map(
            |((position, sequence, topic, time, id), facets, body)| Record {
                header: RecordHeader {
                    position: Position(position),
                    topic: TopicNumber(topic),
                    sequence: Sequence(sequence),
                    time,
                    id,
                    facets,
                },
                body: Bytes::from(body),
            },
        )
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(record in record(), index: u32, last: bool, salt: u32) {
            let slot = BatchSlot { index, last };
            let mut bytes = Vec::new();
            encode(&record, slot, salt, &mut bytes);
            prop_assert_eq!(bytes.len(), frame_bytes(&record));
            let frame = decode(&bytes, salt).unwrap();
            let body = &bytes[frame.header_bytes..];
            prop_assert_eq!(frame.header, record.header);
            prop_assert_eq!(frame.slot, slot);
            prop_assert_eq!(frame.check(body), Ok(()));
            prop_assert_eq!(body, &record.body[..]);
        }

        #[test]
        fn one_flipped_bit_anywhere_is_noticed(record in record(), salt: u32, place: prop::sample::Index, bit in 0u8..8) {
            let mut bytes = Vec::new();
            encode(&record, BatchSlot { index: 0, last: true }, salt, &mut bytes);
            let at = place.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let noticed = match decode(&bytes, salt) {
                Err(_) => true,
                Ok(frame) => frame.check(&bytes[frame.header_bytes..]).is_err(),
            };
            prop_assert!(noticed);
        }
    }

    #[test]
    fn another_salt_makes_it_no_frame() {
        let header = RecordHeader {
            position: Position(1),
            topic: TopicNumber(1),
            sequence: Sequence(1),
            time: 0,
            id: 1,
            facets: None,
        };
        let mut bytes = Vec::new();
        encode(&Record { header, body: Bytes::new() }, BatchSlot { index: 0, last: true }, 1, &mut bytes);
        assert_eq!(decode(&bytes, 2), Err(FrameFlaw::HeaderChecksum));
    }
}
