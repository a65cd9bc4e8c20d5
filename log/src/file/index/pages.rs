//! Pages of an index file: 4092 bytes of entries and their checksum, so that any part can be read and verified on its own.
//!
//! - An entry never spans two pages; the rest of a page is zeros.
//! - The checksum starts from the page's number: a page in another's place is not valid.

use super::LookupError;
use crate::file::Disk;
use std::ops::Range;

/// Bytes of a page.
pub(super) const PAGE_BYTES: usize = 4096;
/// Bytes of a page that hold entries.
pub(super) const PAYLOAD_BYTES: usize = PAGE_BYTES - 4;

/// A run of entries of one size, starting on a page of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexSection {
    /// Its first page.
    pub(super) page: u32,
    /// Entries in it.
    pub(super) count: u32,
    /// Bytes of an entry.
    pub(super) entry_bytes: usize,
}

impl IndexSection {
    fn per_page(&self) -> u32 {
        (PAYLOAD_BYTES / self.entry_bytes) as u32
    }
}

/// Builds the pages of a file, one section after the other.
pub(super) struct PageWriter {
    next_page: u32,
    bytes: Vec<u8>,
}

impl PageWriter {
    /// Pages from `first_page` on.
    pub(super) fn new(first_page: u32) -> Self {
        Self { next_page: first_page, bytes: Vec::new() }
    }

    /// Pages from `first_page` on, with room for sections of so many entries of so many bytes.
    pub(super) fn with_room(first_page: u32, sections: &[(usize, usize)]) -> Self {
        let pages = |(count, bytes): &(usize, usize)| count.div_ceil(PAYLOAD_BYTES / bytes.max(&1));
        let bytes = sections.iter().map(pages).sum::<usize>() * PAGE_BYTES;
        Self { next_page: first_page, bytes: Vec::with_capacity(bytes) }
    }

    /// Adds a section of fixed-size entries.
    pub(super) fn section<const N: usize>(&mut self, entries: impl Iterator<Item = [u8; N]>) -> IndexSection {
        let mut section = IndexSection { page: self.next_page, count: 0, entry_bytes: N };
        let per_page = section.per_page();
        for entry in entries {
            if section.count > 0 && section.count.is_multiple_of(per_page) {
                self.finish_page();
            }
            self.bytes.extend_from_slice(&entry);
            section.count += 1;
        }
        if section.count > 0 {
            self.finish_page();
        }
        section
    }

    /// Adds a run of bytes.
    pub(super) fn stream(&mut self, bytes: &[u8]) -> IndexSection {
        let section = IndexSection { page: self.next_page, count: bytes.len() as u32, entry_bytes: 1 };
        for part in bytes.chunks(PAYLOAD_BYTES) {
            self.bytes.extend_from_slice(part);
            self.finish_page();
        }
        section
    }

    /// The pages.
    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn finish_page(&mut self) {
        let start = self.bytes.len() / PAGE_BYTES * PAGE_BYTES;
        let padding = start + PAYLOAD_BYTES - self.bytes.len();
        self.bytes.extend_from_slice([0; PAYLOAD_BYTES].get(..padding).unwrap_or_default());
        let checksum = self.bytes.get(start..).map_or(0, |payload| crc32c::crc32c_append(self.next_page, payload));
        self.bytes.extend_from_slice(&checksum.to_le_bytes());
        self.next_page += 1;
    }
}

/// Reads pages of one file.
#[derive(Clone, Copy)]
pub(super) struct PageReader<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) file: &'a str,
}

impl PageReader<'_> {
    /// Entries `range` of a section, contiguous.
    pub(super) fn entries(self, section: IndexSection, range: Range<u32>) -> Result<Vec<u8>, LookupError> {
        let end = range.end.min(section.count);
        if range.start >= end {
            return Ok(Vec::new());
        }
        let per_page = section.per_page();
        let first_page = range.start / per_page;
        let pages = self.pages(section.page + first_page, (end - 1) / per_page - first_page + 1)?;
        let used = per_page as usize * section.entry_bytes;
        let mut entries = Vec::with_capacity(pages.len());
        for page in pages.chunks_exact(PAGE_BYTES) {
            entries.extend_from_slice(page.get(..used).unwrap_or_default());
        }
        let skipped = (range.start - first_page * per_page) as usize * section.entry_bytes;
        entries.drain(..skipped);
        entries.truncate((end - range.start) as usize * section.entry_bytes);
        Ok(entries)
    }

    /// The first entry of `range` for which `before` is false; it is true for all before it.
    pub(super) fn partition(
        self,
        section: IndexSection,
        range: Range<u32>,
        before: impl Fn(&[u8]) -> bool,
    ) -> Result<u32, LookupError> {
        if range.is_empty() {
            return Ok(range.start);
        }
        let per_page = section.per_page();
        let of_page = |page: u32| range.start.max(page * per_page)..range.end.min((page + 1) * per_page);
        let (mut low, mut high) = (range.start / per_page, (range.end - 1) / per_page);
        while low < high {
            let middle = low.midpoint(high);
            let last = of_page(middle).end - 1;
            if before(&self.entries(section, last..last + 1)?) { low = middle + 1 } else { high = middle }
        }
        let entries = self.entries(section, of_page(low))?;
        let passed = entries.chunks_exact(section.entry_bytes).take_while(|entry| before(entry)).count();
        Ok(of_page(low).start + passed as u32)
    }

    /// A run of bytes, whole.
    pub(super) fn stream(self, section: IndexSection) -> Result<Vec<u8>, LookupError> {
        self.entries(section, 0..section.count)
    }

    fn pages(self, first: u32, count: u32) -> Result<Vec<u8>, LookupError> {
        let mut bytes = vec![0; count as usize * PAGE_BYTES];
        let filled = self.disk.read(self.file, u64::from(first) * PAGE_BYTES as u64, &mut bytes)?;
        let intact = bytes.chunks_exact(PAGE_BYTES).zip(first..).all(|(page, number)| {
            page.split_last_chunk::<4>().is_some_and(|(payload, checksum)| {
                crc32c::crc32c_append(number, payload) == u32::from_le_bytes(*checksum)
            })
        });
        if filled == bytes.len() && intact { Ok(bytes) } else { Err(LookupError::BadIndex) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fault_disk::FaultDisk;

    #[test]
    fn entries_and_their_order_survive_paging() {
        for count in [0u32, 1, 340, 341, 342, 5000] {
            let mut writer = PageWriter::new(0);
            writer.stream(b"in front");
            let section = writer.section((0..count).map(|number| (u128::from(number) * 2).to_be_bytes()));
            let disk = FaultDisk::new();
            disk.write("f", 0, &writer.finish()).unwrap();
            let reader = PageReader { disk: &disk, file: "f" };
            let all = reader.entries(section, 0..count).unwrap();
            assert_eq!(all.len(), count as usize * 16);
            for key in [0, 1, 2, 339, 340, 341, 680, 681, 682, 683, 9998, 9999, 20_000] {
                let before = |entry: &[u8]| u128::from_be_bytes(entry.try_into().unwrap()) < key;
                let expected = (key.div_ceil(2) as u32).min(count);
                assert_eq!(reader.partition(section, 0..count, before).unwrap(), expected, "{key} of {count}");
            }
        }
    }

    #[test]
    fn a_page_in_anothers_place_is_not_valid() {
        let mut writer = PageWriter::new(0);
        let section = writer.section((0..2000u32).map(u32::to_le_bytes));
        let disk = FaultDisk::new();
        let mut bytes = writer.finish();
        disk.write("f", 0, &bytes).unwrap();
        let reader = PageReader { disk: &disk, file: "f" };
        assert!(reader.entries(section, 0..2000).is_ok());
        bytes.copy_within(..PAGE_BYTES, PAGE_BYTES);
        disk.write("f", 0, &bytes).unwrap();
        assert!(reader.entries(section, 0..100).is_ok());
        assert!(matches!(reader.entries(section, 1500..1501), Err(LookupError::BadIndex)));
    }
}
