//! What the files of a log are called.
//!
//! - `{base:020}.{generation}.log`: a segment; `base` is the first position it was begun for.
//! - `{base:020}.{generation}.idx`: that segment's index, a cache.
//! - `trimmed.{number}`: what retention let go of; the highest valid one counts.
//!
//! Anything else in the folder is not ours and left alone.

use contract::Position;

/// A segment's file: where it begins, and how often it was rewritten (1 = never).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentName {
    /// The first position it was begun for.
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
    /// What was let go.
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

    /// The same records once rewritten.
    pub(crate) fn next_generation(self) -> Self {
        Self { generation: self.generation + 1, ..self }
    }
}

/// The file of the `number`-th marks.
pub(crate) fn marks_file(number: u64) -> String {
    format!("trimmed.{number}")
}

impl LogFileName {
    /// `None` for a file that is not ours. Only the spelling we write is ours.
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
