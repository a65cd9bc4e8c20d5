//! The names of a log's files.
//!
//! - `{base:020}.{generation}.log`: a segment; `base` is the position of the record it was created for.
//! - `{base:020}.{generation}.idx`: that segment's index, a cache.
//! - `trimmed.{number}`: what retention removed; the highest valid one is used.
//!
//! Any other file in the folder is ignored.

use contract::Position;

/// A segment's file: its first position, and how often it was rewritten (1 = never).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentName {
    /// The position of the record it was created for.
    pub(crate) base: Position,
    /// 1 as appended; each rewrite adds one.
    pub(crate) generation: u32,
}

/// A file of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFileName {
    /// Records.
    Segment(SegmentName),
    /// An index of records.
    Index(SegmentName),
    /// What was removed.
    Marks(u64),
}

impl SegmentName {
    /// The file of its records.
    pub(crate) fn file(self) -> String {
        format!("{:020}.{}.log", self.base.get(), self.generation)
    }

    /// The file of its index.
    pub(crate) fn index_file(self) -> String {
        format!("{:020}.{}.idx", self.base.get(), self.generation)
    }

    /// The name after a rewrite.
    pub(crate) fn next_generation(self) -> Self {
        Self { generation: self.generation + 1, ..self }
    }
}

/// The file of the `number`-th marks.
pub(crate) fn marks_file(number: u64) -> String {
    format!("trimmed.{number}")
}

impl LogFileName {
    /// `None` for another file. Only names exactly as this engine writes them are its own.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let name = if let Some(number) = text.strip_prefix("trimmed.") {
            Self::Marks(number.parse().ok()?)
        } else {
            let mut parts = text.split('.');
            let base = Position(parts.next()?.parse().ok()?);
            let segment = SegmentName { base, generation: parts.next()?.parse().ok()? };
            match parts.next()? {
                "log" => Self::Segment(segment),
                "idx" => Self::Index(segment),
                _ => return None,
            }
        };
        (name.to_text() == text).then_some(name)
    }

    fn to_text(self) -> String {
        match self {
            Self::Segment(segment) => segment.file(),
            Self::Index(segment) => segment.index_file(),
            Self::Marks(number) => marks_file(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_spelling_we_write_is_ours() {
        let segment = SegmentName { base: Position(7), generation: 2 };
        for (text, name) in [
            ("00000000000000000007.2.log", Some(LogFileName::Segment(segment))),
            ("00000000000000000007.2.idx", Some(LogFileName::Index(segment))),
            ("trimmed.12", Some(LogFileName::Marks(12))),
            ("trimmed.012", None),
            ("7.2.log", None),
            ("00000000000000000007.02.log", None),
            ("00000000000000000007.2.log.bak", None),
            ("LOCK", None),
        ] {
            assert_eq!(LogFileName::parse(text), name, "{text}");
        }
    }
}
