//! Texts with a grammar: identifiers and patterns, durations, versions.
//!
//! The patterns accept what the parsers of the contract accept, except for very long numbers and the length of codes; a test
//! compares both. They use no look-ahead, which some regular expression engines lack.

use crate::rest::openapi::examples;
use crate::rest::openapi::schema_spec::{SchemaSpec, patterned};
use contract::limits;

/// A version's number.
macro_rules! counted {
    () => {
        "(0|[1-9][0-9]{0,8})"
    };
}
macro_rules! name {
    () => {
        "[a-z_][a-z0-9_]*"
    };
}
macro_rules! segment {
    () => {
        concat!(name!(), r"(\.", name!(), r"){1,3}\.v", counted!(), r"(\.", counted!(), ")?")
    };
}
macro_rules! anonymous {
    () => {
        "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    };
}
/// The part of a pattern between the last `~` and the `*`.
macro_rules! part {
    () => {
        concat!(
            "(",
            name!(),
            r"(\.",
            name!(),
            r"){0,3}\.|",
            name!(),
            r"(\.",
            name!(),
            r"){1,3}\.v|",
            name!(),
            r"(\.",
            name!(),
            r"){3}\.v",
            counted!(),
            r"\.)?"
        )
    };
}
/// A part of a code.
macro_rules! code_part {
    () => {
        "[A-Za-z0-9_-]+"
    };
}
/// The first part of a code with dots: anything but `gts`, in upper or lower case.
macro_rules! code_start {
    () => {
        concat!(
            "([A-Za-z0-9_-]{1,2}|[A-Za-z0-9_-]{4,}|[A-FH-Za-fh-z0-9_-][A-Za-z0-9_-]{2}|",
            "[Gg][A-SU-Za-su-z0-9_-][A-Za-z0-9_-]|[Gg][Tt][A-RT-Za-rt-z0-9_-])"
        )
    };
}
macro_rules! code {
    () => {
        concat!(code_start!(), r"(\.", code_part!(), "){1,7}|", code_part!(), "(:", code_part!(), "){1,7}")
    };
}
macro_rules! code_prefix {
    () => {
        concat!(code_start!(), r"(\.", code_part!(), r"){0,6}\.\*|", code_part!(), "(:", code_part!(), r"){0,6}:\*")
    };
}
macro_rules! gts_id {
    () => {
        concat!(r"gts\.", segment!(), "(~", segment!(), ")*(~(", anonymous!(), ")?)?")
    };
}
macro_rules! clock {
    () => {
        concat!(hours!(), "|", minutes!(), "|", seconds!())
    };
}
macro_rules! hours {
    () => {
        concat!("[0-9]{1,5}H([0-9]{1,6}M)?(", seconds!(), ")?")
    };
}
macro_rules! minutes {
    () => {
        concat!("[0-9]{1,6}M(", seconds!(), ")?")
    };
}
macro_rules! seconds {
    () => {
        r"[0-9]{1,8}(\.[0-9]{1,9})?S"
    };
}
/// `PT30D`: days are accepted after the `T` too.
macro_rules! days {
    () => {
        concat!("T([0-9]{1,4}D([0-9]{1,5}H)?([0-9]{1,6}M)?(", seconds!(), ")?|", clock!(), ")")
    };
}

/// A GTS identifier or a code.
pub(in crate::rest::openapi) const ID: &str = concat!("^(", gts_id!(), "|", code!(), ")$");
/// The same, or `-`.
const ID_OR_NONE: &str = concat!("^(", gts_id!(), "|", code!(), "|-)$");
/// An identifier or a pattern.
pub(in crate::rest::openapi) const PATTERN: &str =
    concat!("^(", gts_id!(), r"|gts\.(", segment!(), "~)*", part!(), r"\*|", code!(), "|", code_prefix!(), ")$");
/// An ISO 8601 duration without months and years.
pub(in crate::rest::openapi) const DURATION: &str =
    concat!("^P(([0-9]{1,3}W)?[0-9]{1,4}D(T(", clock!(), "))?|[0-9]{1,3}W(", days!(), ")?|", days!(), ")$");
/// A schema's version.
pub(in crate::rest::openapi) const VERSION: &str = concat!("^", counted!(), r"\.", counted!(), "$");
/// A page token.
pub(in crate::rest::openapi) const CURSOR: &str = "^[np]([0-7][0-9a-fA-F])*$";

/// An identifier.
pub(in crate::rest::openapi) fn id(description: &str) -> SchemaSpec {
    let description = format!("{description} {GRAMMAR}");
    patterned(ID, &description).max_length(limits::ID_BYTES_MAX).example(examples::CREATED)
}

const GRAMMAR: &str =
    "A code such as `order.created` or `shop:orders:order:created` (at most 200 bytes), or a GTS identifier.";

/// The id of a topic.
pub(in crate::rest::openapi) fn topic_id(description: &str) -> SchemaSpec {
    id(description).example(examples::TOPIC)
}

/// The id of a subject type.
pub(in crate::rest::openapi) fn subject_type_id(description: &str) -> SchemaSpec {
    id(description).example(examples::SUBJECT_TYPE)
}

/// The id of a subject type in a path, where `-` stands for events without one.
pub(in crate::rest::openapi) fn subject_type_or_none(description: &str) -> SchemaSpec {
    let description = format!("{description} {GRAMMAR} `-`: events without a subject type.");
    patterned(ID_OR_NONE, &description).max_length(limits::ID_BYTES_MAX).example(examples::SUBJECT_TYPE)
}

/// A pattern of identifiers.
pub(in crate::rest::openapi) fn pattern(description: &str) -> SchemaSpec {
    let description = format!(
        "{description} An identifier, or a pattern with one `*` at its end: `order.*`, `shop:orders:*`, `gts.*`."
    );
    patterned(PATTERN, &description)
        .max_length(limits::ID_BYTES_MAX)
        .example("gts.hyperspot.core.events.type.v1~vendor.*")
}

/// A duration.
pub(in crate::rest::openapi) fn duration(description: &str) -> SchemaSpec {
    let description =
        format!("{description} An ISO 8601 duration, such as `P30D` or `PT12H`; months and years are not allowed.");
    patterned(DURATION, &description).max_length(64).example("PT24H")
}

/// A schema's version.
pub(in crate::rest::openapi) fn version(description: &str) -> SchemaSpec {
    patterned(VERSION, &format!("{description} `MAJOR.MINOR`.")).example("1.0")
}
