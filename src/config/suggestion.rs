//! Suggests the known name that a misspelt one was probably meant to be.
//!
//! - Case and the separators `_`, `-` do not count: other spellings of a name have distance 0.
//! - There is always a suggestion if at least one name is known.

/// The known name with the smallest distance; the earlier one of two with the same distance.
pub(super) fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(written);
    known.min_by_key(|name| distance(&folded, &fold(name)))
}

/// The nearest known name, if a typing error is likely: at most one edit for every ten characters, or two.
pub(crate) fn likely_name<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(written);
    let edits_max = (folded.len() / 10).max(2);
    let edits = |name: &str| {
        let name = fold(name);
        // A common prefix costs nothing to compare: names of one family are long and differ at their ends.
        let common = folded.iter().zip(&name).take_while(|(a, b)| a == b).count();
        let (rest, other) = (folded.get(common..).unwrap_or_default(), name.get(common..).unwrap_or_default());
        (rest.len().abs_diff(other.len()) <= edits_max).then(|| distance(rest, other))
    };
    let near = known.filter_map(|name| Some((edits(name)?, name)));
    near.min_by_key(|(edits, _)| *edits).filter(|(edits, _)| *edits <= edits_max).map(|(_, name)| name)
}

/// The nearest path; a name in the wrong section has a small distance, too.
pub(super) fn nearest_path<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let last = |path: &str| fold(path.rsplit('.').next().unwrap_or(path));
    let (folded, name) = (fold(written), last(written));
    known.min_by_key(|path| {
        let whole = distance(&folded, &fold(path));
        whole.min(MOVED + distance(&name, &last(path)) * 2)
    })
}

/// The distance of the right name in another section, in edits.
const MOVED: usize = 2;

fn fold(name: &str) -> Vec<char> {
    name.chars().filter(|c| !matches!(c, '_' | '-')).map(|c| c.to_ascii_lowercase()).collect()
}

/// Edits between two names: an inserted, deleted or replaced character, or two swapped ones.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut two_ago: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    let mut before = None;
    for (row, &x) in a.iter().enumerate() {
        let mut current = vec![row + 1];
        let mut left = row + 1;
        for (column, &y) in b.iter().enumerate() {
            let at = |line: &[usize], index: usize| line.get(index).copied().unwrap_or(usize::MAX / 2);
            let mut cost = (at(&above, column) + usize::from(x != y)).min(at(&above, column + 1) + 1).min(left + 1);
            let previous = column.checked_sub(1).and_then(|index| b.get(index));
            if before == Some(y) && previous == Some(&x) {
                cost = cost.min(at(&two_ago, column - 1) + 1);
            }
            current.push(cost);
            left = cost;
        }
        before = Some(x);
        two_ago = std::mem::replace(&mut above, current);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (a, b, edits) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("listen", "lsiten", 1),
            ("max_size", "maxSize", 0),
            ("max-size", "MAX_SIZE", 0),
            ("polling", "pooling", 1),
        ] {
            assert_eq!(distance(&fold(a), &fold(b)), edits, "{a} {b}");
        }
    }

    #[test]
    fn only_a_name_that_is_a_slip_away_is_likely() {
        let known = || ["gts.order.created.v1", "gts.order.cancelled.v1", "shop.orders"].into_iter();
        assert_eq!(likely_name("gts.order.craeted.v1", known()), Some("gts.order.created.v1"));
        assert_eq!(likely_name("shop.order", known()), Some("shop.orders"));
        assert_eq!(likely_name("gts.invoice.paid.v1", known()), None);
        assert_eq!(likely_name("", known()), None);
    }

    #[test]
    fn a_name_in_the_wrong_section_finds_its_own() {
        let known = || ["polling.max_timeout_secs", "consumer.max_limit", "batch.max_size"].into_iter();
        assert_eq!(nearest_path("max_limit", known()), Some("consumer.max_limit"));
        assert_eq!(nearest_path("polling.max_limit", known()), Some("consumer.max_limit"));
        assert_eq!(nearest_path("polling.max_timeout", known()), Some("polling.max_timeout_secs"));
        let twins = || ["types.profile", "gts.profile", "topics.profile"].into_iter();
        assert_eq!(nearest_path("gtx.profile", twins()), Some("gts.profile"));
        assert_eq!(nearest("anything", std::iter::empty()), None);
    }
}
