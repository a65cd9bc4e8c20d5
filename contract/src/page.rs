//! Pages of lists, and the opaque cursors that continue them.

use crate::{Error, Result, limits};
use std::fmt;
use std::str::FromStr;

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// The cursor of the next page; absent on the last page.
    pub next: Option<Cursor>,
    /// The cursor of the previous page; absent on the first page.
    pub prev: Option<Cursor>,
}

impl<T> Page<T> {
    /// The page of `rows`, which come in order of their keys, that `cursor` names; the first page without one.
    pub fn of(
        rows: impl DoubleEndedIterator<Item = T>,
        cursor: Option<&Cursor>,
        limit: usize,
        key: impl Fn(&T) -> String,
    ) -> Self {
        Self::of_rows_with_sizes(rows, cursor, limit, |_| 0, key)
    }

    /// The same for rows of any size: a page has at most [`limits::LIST_BYTES_MAX`] bytes, but always one row.
    pub fn of_rows_with_sizes(
        rows: impl DoubleEndedIterator<Item = T>,
        cursor: Option<&Cursor>,
        limit: usize,
        bytes: impl Fn(&T) -> usize,
        key: impl Fn(&T) -> String,
    ) -> Self {
        // Rows on the other side of the cursor belong to the page's other neighbour.
        let mut passed = false;
        let mut side = |is_passed: bool| {
            passed |= is_passed;
            !is_passed
        };
        let most = limit.saturating_add(1);
        let mut items: Vec<T> = match cursor {
            None => rows.take(most).collect(),
            Some(Cursor::After(last)) => rows.filter(|row| side(key(row) <= *last)).take(most).collect(),
            Some(Cursor::Before(first)) => rows.rev().filter(|row| side(key(row) >= *first)).take(most).collect(),
        };
        let sums = items.iter().scan(0, |sum: &mut usize, row| {
            *sum += bytes(row);
            Some(*sum)
        });
        let fitting = sums.take_while(|sum| *sum <= limits::LIST_BYTES_MAX).count().max(1).min(limit);
        let more = items.len() > fitting;
        items.truncate(fitting);
        let backwards = matches!(cursor, Some(Cursor::Before(_)));
        if backwards {
            items.reverse();
        }
        let (has_next, has_prev) = if backwards { (passed, more) } else { (more, passed) };
        let next = items.last().filter(|_| has_next).map(|row| Cursor::After(key(row)));
        let prev = items.first().filter(|_| has_prev).map(|row| Cursor::Before(key(row)));
        Self { items, next, prev }
    }

    /// The same page with converted rows.
    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(f).collect(), next: self.next, prev: self.prev }
    }
}

/// A position between two rows of a list. Its text is opaque to callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cursor {
    /// The page after this row.
    After(String),
    /// The page before this row.
    Before(String),
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (side, key) = match self {
            Self::After(key) => ('n', key),
            Self::Before(key) => ('p', key),
        };
        write!(f, "{side}")?;
        key.bytes().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = || Error::invalid("/cursor", "is not a cursor of this list");
        let (side, hex) = text.split_at_checked(1).ok_or_else(refused)?;
        let pairs = hex.as_bytes().chunks(2).map(|pair| {
            let digits =
                std::str::from_utf8(pair).ok().filter(|digits| digits.len() == 2 && !digits.starts_with('+'))?;
            u8::from_str_radix(digits, 16).ok()
        });
        let key = pairs.collect::<Option<Vec<u8>>>().and_then(|bytes| String::from_utf8(bytes).ok());
        match (side, key) {
            ("n", Some(key)) => Ok(Self::After(key)),
            ("p", Some(key)) => Ok(Self::Before(key)),
            _ => Err(refused()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_large_rows_is_cut_by_bytes_and_continues_with_the_next_row() {
        let (mut cursor, mut pages) = (None, Vec::new());
        loop {
            let bytes = |row: &&str| if *row == "c" { 2 * limits::LIST_BYTES_MAX } else { limits::LIST_BYTES_MAX / 2 };
            let rows = ["a", "b", "c", "d", "e"].into_iter();
            let page = Page::of_rows_with_sizes(rows, cursor.as_ref(), 4, bytes, |row| (*row).to_owned());
            pages.push(page.items.concat());
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        assert_eq!(pages, ["ab", "c", "de"]);
    }

    fn page(cursor: Option<&Cursor>, limit: usize) -> (String, Option<Cursor>, Option<Cursor>) {
        let rows = ["a", "b", "c", "d", "e"].into_iter();
        let page = Page::of(rows, cursor, limit, |row| (*row).to_owned());
        (page.items.concat(), page.prev, page.next)
    }

    #[test]
    fn a_list_can_be_walked_forwards_and_back() {
        let (first, none, next) = page(None, 2);
        assert_eq!((first.as_str(), none), ("ab", None));
        let (second, prev, next) = page(next.as_ref(), 2);
        assert_eq!(second, "cd");
        let (third, _, end) = page(next.as_ref(), 2);
        assert_eq!((third.as_str(), end), ("e", None));
        let (back, before, again) = page(prev.as_ref(), 2);
        assert_eq!((back.as_str(), before), ("ab", None));
        assert_eq!(page(again.as_ref(), 2).0, "cd");
    }

    #[test]
    fn a_cursor_survives_the_trip_and_nothing_else_passes_for_one() {
        for cursor in [Cursor::After("gts.a~é".to_owned()), Cursor::Before(String::new())] {
            assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
        }
        for text in ["", "x61", "n6", "n+6", "nzz", "nff", "é"] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }
}
