//! Texts for what is wrong with an event or a schema.
//!
//! The validator's own messages quote the event; these texts never do.

use contract::Violation;
use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};

/// Longest pointer in a response, in bytes.
const POINTER_BYTES_MAX: usize = 256;

/// The violations for one failure; `at` is the pointer to the checked value in the event.
pub(super) fn violations(at: &str, error: &ValidationError<'_>) -> Vec<Violation> {
    let path = error.instance_path().as_str();
    match error.kind() {
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let of = |name: &String| format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
            let unknown = |name| Violation::new(pointer(at, &of(name)), "is not a member the schema knows");
            unexpected.iter().take(contract::limits::VIOLATIONS_MAX).map(unknown).collect()
        }
        // Reported for the object instead of the member if the schema names no members.
        Kind::FalseSchema if error.schema_path().as_str().ends_with("/additionalProperties") => {
            vec![Violation::new(pointer(at, path), "must have no members")]
        }
        kind => vec![Violation::new(pointer(at, path), detail(kind))],
    }
}

/// Joins `at` and `path` to one pointer; if that is too long, the nearest enclosing place that fits.
pub(super) fn pointer(at: &str, path: &str) -> String {
    let mut pointer = format!("{at}{path}");
    while pointer.len() > POINTER_BYTES_MAX {
        let around = pointer.rfind('/').unwrap_or(0);
        pointer.truncate(around);
    }
    pointer
}

/// What is wrong with a schema.
pub(super) fn schema_fault(kind: &Kind) -> &'static str {
    match kind {
        Kind::Referencing(_) => "a `$ref` or `$id` cannot be resolved, or points out of the schema",
        Kind::Format { format } if format == "regex" => {
            "this is not a regular expression that can be matched in linear time"
        }
        _ => "this is not what its draft of JSON Schema allows here",
    }
}

fn detail(kind: &Kind) -> String {
    let detail = match kind {
        Kind::Required { property } => {
            return format!("is missing the required member '{}'", property.as_str().unwrap_or_default());
        }
        Kind::Type { kind } => return format!("must be of type {}", types(kind)),
        Kind::Format { format } => return format!("must have the format '{format}'"),
        Kind::Minimum { limit } => return format!("must be at least {limit}"),
        Kind::Maximum { limit } => return format!("must be at most {limit}"),
        Kind::ExclusiveMinimum { limit } => return format!("must be more than {limit}"),
        Kind::ExclusiveMaximum { limit } => return format!("must be less than {limit}"),
        Kind::MultipleOf { multiple_of } => return format!("must be a multiple of {multiple_of}"),
        Kind::MinLength { limit } => return format!("must have at least {limit} characters"),
        Kind::MaxLength { limit } => return format!("must have at most {limit} characters"),
        Kind::MinItems { limit } => return format!("must have at least {limit} items"),
        Kind::MaxItems { limit } => return format!("must have at most {limit} items"),
        Kind::AdditionalItems { limit } => return format!("must have at most {limit} items"),
        Kind::MinProperties { limit } => return format!("must have at least {limit} members"),
        Kind::MaxProperties { limit } => return format!("must have at most {limit} members"),
        Kind::Enum { options } => return listed(options),
        Kind::Constant { .. } => "must be the one value the schema allows",
        Kind::Pattern { .. } => "does not match the schema's pattern",
        Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => "fits none of the schema's alternatives",
        Kind::OneOfMultipleValid { .. } => "fits more than one of the schema's alternatives",
        Kind::Not { .. } => "fits what the schema excludes",
        Kind::FalseSchema => "must be absent",
        Kind::Contains => "has no item, too few or too many of the kind the schema asks for",
        Kind::UniqueItems => "has an item twice",
        Kind::UnevaluatedItems { .. } => "has items the schema does not know",
        Kind::PropertyNames { .. } => "has a member whose name the schema does not allow",
        Kind::ContentEncoding { .. } | Kind::ContentMediaType { .. } | Kind::FromUtf8 { .. } => {
            "does not have the content the schema asks for"
        }
        _ => "does not fit the schema",
    };
    detail.to_owned()
}

/// Longest list of values in a response, in bytes.
const LIST_BYTES_MAX: usize = 300;

/// The values of an `enum`; if they are many or long, the first ones. They come from the schema, not from the event.
fn listed(options: &serde_json::Value) -> String {
    let options: Vec<String> = options.as_array().into_iter().flatten().map(ToString::to_string).collect();
    let mut bytes = 0;
    let fits = |option: &&String| {
        bytes += option.len() + 2;
        bytes <= LIST_BYTES_MAX
    };
    let shown: Vec<_> = options.iter().take_while(fits).map(String::as_str).collect();
    match (shown.is_empty(), options.len() - shown.len()) {
        (true, _) => "must be one of the values the schema lists".to_owned(),
        (false, 0) => format!("must be one of {}", shown.join(", ")),
        (false, more) => format!("must be one of {} and {more} more", shown.join(", ")),
    }
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => one.to_string(),
        TypeKind::Multiple(several) => several.iter().map(|one| one.to_string()).collect::<Vec<_>>().join(" or "),
    }
}
