//! An aggregate's records in a growing segment. Most aggregates have one, and one needs no allocation of its own.

/// Aggregate sequences and record numbers, ascending.
#[derive(Debug)]
pub(super) enum AggregateRun {
    /// The only one so far.
    One((u64, u32)),
    /// Two or more.
    Many(Vec<(u64, u32)>),
}

impl AggregateRun {
    pub(super) fn push(&mut self, entry: (u64, u32)) {
        match self {
            Self::One(first) => *self = Self::Many(vec![*first, entry]),
            Self::Many(entries) => entries.push(entry),
        }
    }

    pub(super) fn entries(&self) -> &[(u64, u32)] {
        match self {
            Self::One(only) => std::slice::from_ref(only),
            Self::Many(entries) => entries,
        }
    }
}
