//! Texts for what is wrong with an XML document or schema.
//!
//! The validator's messages quote the document; these texts name elements at most, as a pointer does.

use super::{DriveWithError, SchemaError, ValidationError};
use xsd_schema::SchemaLimit;
use xsd_schema::xml::NotWellFormed;

/// Longest path in a response, in bytes.
const PATH_BYTES_MAX: usize = 256;

/// What does not fit, and where in the document.
pub(super) fn failure(error: &ValidationError) -> String {
    let what = what(error.constraint);
    match error.element_path().filter(|path| path.len() <= PATH_BYTES_MAX) {
        Some(path) => format!("{what}, at {path}"),
        None => what.to_owned(),
    }
}

/// Why a document could not be parsed to its end.
pub(super) fn unreadable<E>(error: &DriveWithError<E>) -> String {
    match error {
        DriveWithError::NotWellFormed(fault) => format!("is not well-formed XML{}", place(fault)),
        DriveWithError::LimitExceeded(_) => "is nested too deeply, or has too many parts".to_owned(),
        DriveWithError::Hook(_) => "has a document type declaration, which is not allowed".to_owned(),
        _ => "cannot be read".to_owned(),
    }
}

/// What is wrong with a schema.
pub(super) fn schema_fault(error: &SchemaError) -> String {
    let what = match error {
        SchemaError::XmlError { .. } => "it is not well-formed XML",
        SchemaError::NamespaceError { .. } => "a name or a prefix in it cannot be resolved",
        SchemaError::FeatureError { .. } => "it uses what XML Schema 1.0 does not have",
        SchemaError::ResolutionError { .. } | SchemaError::IoError(_) => {
            "a name in it cannot be resolved, or points out of the schema"
        }
        SchemaError::LimitExceeded { limit: SchemaLimit::DirectiveDepth, .. } => "it includes too many others",
        SchemaError::LimitExceeded { .. } => "it is nested too deeply",
        _ => "it is not what XML Schema 1.0 allows",
    };
    match error.location() {
        Some(location) => format!("{what} (line {}, column {})", location.line, location.column),
        None => what.to_owned(),
    }
}

fn place(fault: &NotWellFormed) -> String {
    format!(" (at byte {})", fault.position())
}

/// The rule that was broken, by its name in the specification.
fn what(constraint: &str) -> &'static str {
    if constraint.starts_with("cvc-elt.1") {
        "an element is not one the schema knows"
    } else if constraint.starts_with("cvc-complex-type.2") {
        "an element's content is not what the schema allows"
    } else if constraint.starts_with("cvc-complex-type") {
        "an attribute is missing, or is not one the schema knows"
    } else if constraint.starts_with("cvc-attribute") || constraint.starts_with("cvc-au") {
        "an attribute's value is not what the schema allows"
    } else if constraint.starts_with("cvc-id") || constraint.starts_with("cvc-identity") {
        "a key is missing, there twice, or refers to nothing"
    } else if constraint.starts_with("validation-resource-limit") {
        "the document is too complex to be checked"
    } else {
        "a value is not what the schema allows"
    }
}
