//! Texts that look random: keys of makers that no rule knows. They only flag.
//!
//! - A candidate is a run of 24 to 128 letters, digits, `_`, `-`, `+` and `=`. Longer ones are pictures and other files.
//! - It has capitals, small letters and digits that follow each other without order, and more than 4 bits per character. So
//!   UUIDs, hexadecimal hashes, ULIDs and words with separators are none.

const RUN_BYTES_MIN: usize = 24;
const RUN_BYTES_MAX: usize = 128;
const BITS_MIN: f64 = 4.0;
/// How many of the neighbours must be of different kinds (capital, small letter, digit). In a random text of base 62 it
/// is about 0.62, in words far less.
const CHANGES_MIN: f64 = 0.45;
/// Names of members whose values are random and no secrets.
const HASH_NAMES: &[&str] = &[
    "hash",
    "digest",
    "sha",
    "md5",
    "checksum",
    "etag",
    "integrity",
    "fingerprint",
    "thumbprint",
    "signature",
    "nonce",
    "cursor",
    "traceparent",
];

#[expect(clippy::indexing_slicing, reason = "a byte is less than 256, and `get_mut` gives no constant")]
const fn build_table() -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    loop {
        table[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'=');
        if byte == u8::MAX {
            return table;
        }
        byte += 1;
    }
}

static IN_RUN: [bool; 256] = build_table();

fn is_in_run(text: &[u8], at: usize) -> bool {
    text.get(at).is_some_and(|byte| IN_RUN.get(usize::from(*byte)).copied().unwrap_or(false))
}

/// Whether a text has a random run. Of a text without long runs only every 24th character is looked at.
pub(super) fn has_random_run(text: &[u8]) -> bool {
    let (mut start, mut probe) = (0, RUN_BYTES_MIN - 1);
    while probe < text.len() {
        match (start..=probe).rev().find(|at| !is_in_run(text, *at)) {
            Some(gap) => start = gap + 1,
            None => {
                let more = (probe + 1..text.len()).take_while(|at| is_in_run(text, *at)).count();
                let end = probe + 1 + more;
                if text.get(start..end).is_some_and(is_random) {
                    return true;
                }
                start = end + 1;
            }
        }
        probe = start + RUN_BYTES_MIN - 1;
    }
    false
}

/// Whether a value is random enough to be a key, in a member of this name.
pub(super) fn is_suspicious(name: Option<&str>, value: &str) -> bool {
    let lower = name.map(str::to_ascii_lowercase).unwrap_or_default();
    let names_hash = HASH_NAMES.iter().any(|hash| lower.contains(hash));
    let value_lower = value.get(..value.floor_char_boundary(16)).unwrap_or_default().to_ascii_lowercase();
    let is_hash = ["sha1-", "sha256", "sha384", "sha512", "md5", "w/\"", "data:"]
        .iter()
        .any(|hash| value_lower.starts_with(hash));
    !names_hash && !is_hash && has_random_run(value.as_bytes())
}

fn is_random(run: &[u8]) -> bool {
    if !(RUN_BYTES_MIN..=RUN_BYTES_MAX).contains(&run.len()) {
        return false;
    }
    let kind = |byte: &u8| match byte {
        b'a'..=b'z' => Some(0_usize),
        b'A'..=b'Z' => Some(1),
        b'0'..=b'9' => Some(2),
        _ => None,
    };
    let (mut kinds, mut changes, mut before) = ([0_usize; 3], 0_usize, None);
    for found in run.iter().filter_map(kind) {
        if let Some(count) = kinds.get_mut(found) {
            *count += 1;
        }
        changes += usize::from(before.is_some_and(|before| before != found));
        before = Some(found);
    }
    let neighbours = kinds.iter().sum::<usize>().saturating_sub(1);
    kinds.iter().all(|count| *count > 0) && changes as f64 >= CHANGES_MIN * neighbours as f64 && bits(run) > BITS_MIN
}

/// Shannon's entropy, in bits per character.
fn bits(run: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in run {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            *count += 1;
        }
    }
    let total = run.len() as f64;
    let share = |count: &u32| f64::from(*count) / total;
    counts.iter().filter(|count| **count > 0).map(share).map(|share| -share * share.log2()).sum()
}
