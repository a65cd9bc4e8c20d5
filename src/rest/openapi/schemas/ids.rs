//! Texts with a grammar: GTS identifiers and patterns, durations, versions.
//!
//! The patterns say what the parsers of the contract take, but for numbers of absurd length; a test compares the two.

use crate::rest::openapi::examples;
use crate::rest::openapi::shape::{Shape, patterned};
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
/// What stands before the `*` of a pattern, behind the last `~`.
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
/// Days may also stand behind the `T`, as seed 000 writes them.
macro_rules! days {
    () => {
        concat!("T([0-9]{1,4}D([0-9]{1,5}H)?([0-9]{1,6}M)?(", seconds!(), ")?|", clock!(), ")")
    };
}

/// A GTS identifier.
pub(in crate::rest::openapi) const ID: &str =
    concat!(r"^gts\.", segment!(), "(~", segment!(), ")*(~(", anonymous!(), ")?)?$");
/// A GTS identifier, or what stands for several.
pub(in crate::rest::openapi) const PATTERN: &str = concat!(
    r"^gts\.(",
    segment!(),
    "(~",
    segment!(),
    ")*(~(",
    anonymous!(),
    ")?)?|(",
    segment!(),
    "~)*",
    part!(),
    r"\*)$"
);
/// An ISO 8601 duration without months and years.
pub(in crate::rest::openapi) const DURATION: &str =
    concat!("^P(([0-9]{1,3}W)?[0-9]{1,4}D(T(", clock!(), "))?|[0-9]{1,3}W(", days!(), ")?|", days!(), ")$");
/// A schema's version.
pub(in crate::rest::openapi) const VERSION: &str = concat!("^", counted!(), r"\.", counted!(), "$");
/// A page token.
pub(in crate::rest::openapi) const CURSOR: &str = "^[np]([0-7][0-9a-fA-F])*$";

/// A GTS identifier.
pub(in crate::rest::openapi) fn id(description: &str) -> Shape {
    patterned(ID, &format!("{description} A GTS identifier.")).up_to(limits::ID_BYTES_MAX).like(examples::CREATED)
}

/// The id of a topic.
pub(in crate::rest::openapi) fn topic_id(description: &str) -> Shape {
    id(description).like(examples::TOPIC)
}

/// The id of a subject type.
pub(in crate::rest::openapi) fn subject_type_id(description: &str) -> Shape {
    id(description).like(examples::SUBJECT_TYPE)
}

/// A GTS pattern.
pub(in crate::rest::openapi) fn pattern(description: &str) -> Shape {
    let description = format!("{description} A GTS identifier, or a pattern with one `*` at its end.");
    patterned(PATTERN, &description).up_to(limits::ID_BYTES_MAX).like("gts.hyperspot.core.events.type.v1~vendor.*")
}

/// A duration.
pub(in crate::rest::openapi) fn duration(description: &str) -> Shape {
    let description = format!("{description} An ISO 8601 duration; days may stand behind the `T`, months never.");
    patterned(DURATION, &description).up_to(64).like("PT24H")
}

/// A schema's version.
pub(in crate::rest::openapi) fn version(description: &str) -> Shape {
    patterned(VERSION, &format!("{description} `MAJOR.MINOR`.")).like("1.0")
}
