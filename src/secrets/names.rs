//! Members whose names say that their values are secrets. They only flag.

use super::rules::is_placeholder;
use uuid::Uuid;

/// The ends of such names, as they are spelt in JSON, with the quotation mark. The search for literals looks for these, and
/// the whole name is compared only where one is found.
pub(super) const NAME_ENDS: &[&str] = &[
    "word\"", "WORD\"", "Word\"", "swd\"", "SWD\"", "\"pwd\"", "hrase\"", "HRASE\"", "ecret\"", "ECRET\"", "ey\"",
    "EY\"", "oken\"", "OKEN\"", "zation\"",
];
/// Names without separators, in lower case, that may follow other words.
const ENDS: &[&str] =
    &["password", "passwd", "passphrase", "secret", "apikey", "privatekey", "secretkey", "secretaccesskey"];
/// The same, but whole names: with other words before them they are usually no secrets (`pageToken`).
const NAMES: &[&str] = &[
    "pwd",
    "token",
    "accesstoken",
    "refreshtoken",
    "idtoken",
    "authtoken",
    "apitoken",
    "bearertoken",
    "sessiontoken",
    "securitytoken",
    "authorization",
];
/// Longest name that is compared.
const NAME_BYTES_MAX: usize = 64;
/// The shortest value that is taken for a secret.
const VALUE_BYTES_MIN: usize = 6;

/// Whether a member of this name holds a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    if name.len() > NAME_BYTES_MAX {
        return false;
    }
    let plain: String =
        name.chars().filter(|c| !matches!(c, '_' | '-' | '.' | ' ')).collect::<String>().to_ascii_lowercase();
    ENDS.iter().any(|end| plain.ends_with(end)) || NAMES.contains(&plain.as_str())
}

/// Whether a value of such a member may be a secret: not an identifier, a placeholder or a reference.
pub(super) fn is_secret_value(value: &str) -> bool {
    value.len() >= VALUE_BYTES_MIN && !is_placeholder(value) && Uuid::try_parse(value).is_err()
}

/// Whether JSON has a member of such a name, with a text as its value, whose name ends at `end` (after the quotation mark).
pub(super) fn is_secret_member(text: &[u8], end: usize) -> bool {
    let Some((rest, name)) = text.get(end..).zip(text.get(..end.saturating_sub(1))) else { return false };
    let mut rest = rest.iter().filter(|byte| !byte.is_ascii_whitespace());
    if (rest.next(), rest.next()) != (Some(&b':'), Some(&b'"')) {
        return false;
    }
    let name = name.get(name.len().saturating_sub(NAME_BYTES_MAX + 1)..).unwrap_or_default();
    let start = name.iter().rposition(|byte| *byte == b'"').map(|at| at + 1);
    let name = start.and_then(|start| name.get(start..)).and_then(|name| std::str::from_utf8(name).ok());
    name.is_some_and(is_secret_name)
}
