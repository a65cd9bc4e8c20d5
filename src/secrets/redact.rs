//! Redaction of what others report: what receivers respond, and the errors of handlers.

use super::scan::{self, SecretMatch};
use std::borrow::Cow;

/// The text with the name of the rule, `‹rule›`, in place of every secret. Call it before the text is cut: a part of a secret is
/// not recognised.
pub(crate) fn redact(text: &str) -> Cow<'_, str> {
    let Some(mut found) = scan::find(text, 0) else { return Cow::Borrowed(text) };
    let (mut redacted, mut from) = (String::with_capacity(text.len()), 0);
    loop {
        let end = end_of_secret(text, found);
        redacted += text.get(from..found.start).unwrap_or_default();
        redacted += "‹";
        redacted += found.rule.name;
        redacted += "›";
        from = end;
        match scan::find(text, from) {
            Some(next) => found = next,
            None => break,
        }
    }
    redacted += text.get(from..).unwrap_or_default();
    Cow::Owned(redacted)
}

/// A private key is matched by its head; all of it is secret, up to its last line or the end of the text.
fn end_of_secret(text: &str, SecretMatch { rule, end, .. }: SecretMatch) -> usize {
    const LAST_LINE: &str = "-----END ";
    if rule.name != "private-key" {
        return end;
    }
    let rest = text.get(end..).unwrap_or_default();
    let Some(last) = rest.find(LAST_LINE) else { return text.len() };
    let after = last + LAST_LINE.len();
    let dashes = rest.get(after..).and_then(|rest| rest.find("-----"));
    dashes.map_or(text.len(), |dashes| end + after + dashes + 5)
}
