//! Secrets: recognises credentials in what callers submit, and keeps those of others out of what the broker stores.
//!
//! - Texts are searched for the literals of all rules at once ([`scan`]). Only where a literal is found is the rule checked
//!   ([`rules`]), and only if it matches is the JSON walked for the pointer ([`walk`]).
//! - A rule with a form of its own (prefix, length, checksum) may refuse. Member names and random texts only flag.
//! - Neither an error, a header nor a log line contains the secret: a finding is a pointer and the name of a rule. A member
//!   name that itself looks like a secret is not part of a pointer.
//! - Stored events are never inspected and never changed.
//!
//! What is recognised cannot be encoded or encrypted: a secret in Base64 passes.

mod entropy;
mod guard;
mod names;
mod redact;
mod rules;
mod scan;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use guard::{InspectedParts, SecretGuard, SecretInspection, suspected_headers, suspected_payload};
pub(crate) use redact::redact;
