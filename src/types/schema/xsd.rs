//! XML Schemas (1.0): `data` is `{"xml": "<…/>"}`, the document as text.
//!
//! - Nothing is fetched: a schema that includes or imports another by location is refused, and what a document says of
//!   schema locations is not followed. Document types are refused, so there are no entities to expand.
//! - A compiled schema interns the names of every document it sees and cannot be shared between threads. So a few are
//!   kept and lent out one at a time, and one that has learnt too many names is let go.
//! - The library is young: a panic inside it is a refusal here. Depth and size of documents are bounded.

pub(super) mod compat;
mod shape;
#[cfg(test)]
mod tests;
mod tree;
mod words;

use super::patterns::PatternBudget;
use super::refused;
use contract::{Result, Violation, limits};
use serde_json::Value;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use xsd_schema::regex_convert::{ConvertOptions, convert_xml_pattern};
use xsd_schema::validation::{
    DoctypeView, DriveWithError, SchemaValidator, SchemaValidity, ValidationError, ValidationEventHandler,
    ValidationFlags, ValidationSink, ValidationWarning, drive_quick_xml_with,
};
use xsd_schema::xml::ParseLimits;
use xsd_schema::{EmbeddedLoader, SchemaError, SchemaSet, SchemaSetBuilder};

/// A schema, and what is compiled of it.
pub(crate) struct XsdSchema {
    text: Box<str>,
    /// Compiled and not in use.
    idle: Mutex<Vec<Lent>>,
}

/// One compiled copy.
struct Lent {
    set: SchemaSet,
    /// What its names took before it saw a document, in bytes.
    names_bytes: usize,
}

impl XsdSchema {
    /// Compiles a schema that a request carries `at`.
    pub(super) fn compile(at: &str, text: &str) -> Result<Self> {
        let schema = tree::Element::parse(text).map_err(|detail| refused(at, detail))?;
        shape::check(&schema).map_err(|detail| refused(at, detail))?;
        let compiled = Lent::compile(text).map_err(|detail| refused(at, &detail))?;
        Ok(Self { text: text.into(), idle: Mutex::new(vec![compiled]) })
    }

    /// Holds an event's `data` against the schema.
    pub(super) fn check(&self, data: &Value) -> Result<(), Vec<Violation>> {
        let members = data.as_object().filter(|members| members.len() == 1);
        let Some(document) = members.and_then(|members| members.get("xml")?.as_str()) else {
            let detail = "must have exactly one member, `xml`, that holds the document as text";
            return Err(vec![Violation::new("/data", detail)]);
        };
        let Some(lent) = self.borrow() else {
            return Err(vec![Violation::new(POINTER, "cannot be checked against the schema")]);
        };
        // What a panic leaves behind is dropped with it.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let outcome = validate(&lent.set, document);
            (outcome, lent)
        }));
        let Ok((outcome, lent)) = outcome else {
            return Err(vec![Violation::new(POINTER, "cannot be checked against the schema")]);
        };
        self.give_back(lent);
        if outcome.is_empty() { Ok(()) } else { Err(outcome) }
    }

    fn borrow(&self) -> Option<Lent> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.or_else(|| Lent::compile(&self.text).ok())
    }

    fn give_back(&self, lent: Lent) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let learnt = lent.set.name_table.heap_bytes().saturating_sub(lent.names_bytes);
        if learnt <= NAMES_BYTES_MAX && idle.len() < IDLE_MAX {
            idle.push(lent);
        }
    }
}

/// Why the patterns of a schema take too much to compile.
pub(super) fn check_patterns(text: &str) -> Result<(), String> {
    let mut budget = PatternBudget::default();
    patterns(text).iter().try_for_each(|pattern| budget.spend(pattern))
}

/// About what its patterns take once they are compiled, in bytes, for one copy.
pub(super) fn pattern_bytes(text: &str) -> usize {
    PatternBudget::sum(patterns(text).iter())
}

/// The `pattern` facets of a schema in the syntax of the `regex` crate, as the library converts them.
fn patterns(text: &str) -> Vec<String> {
    // A schema that cannot be read is refused by the compiler, which says why.
    let Ok(schema) = tree::Element::parse(text) else { return Vec::new() };
    let (mut found, mut rest) = (Vec::new(), vec![&schema]);
    while let Some(element) = rest.pop() {
        if element.name == "pattern" {
            let value = element.attribute("value").unwrap_or_default();
            // The library panics at some expressions that are none.
            let converted = catch_unwind(|| convert_xml_pattern(value, ConvertOptions::xsd_v1_0()));
            found.push(converted.unwrap_or_else(|_| value.to_owned()));
        }
        rest.extend(&element.children);
    }
    found
}

impl fmt::Debug for XsdSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XsdSchema").finish_non_exhaustive()
    }
}

impl Lent {
    fn compile(text: &str) -> Result<Self, String> {
        let compiled = catch_unwind(|| {
            let builder = SchemaSetBuilder::with_loader(Box::new(EmbeddedLoader::new()));
            builder.add_source(text, "schema.xsd")?.compile()
        });
        let compiled = match compiled {
            Ok(Ok(compiled)) => compiled,
            Ok(Err(error)) => return Err(words::schema_fault(&error)),
            Err(_) => return Err("it cannot be compiled".to_owned()),
        };
        if !compiled.directive_failures().is_empty() {
            return Err("it includes or imports another schema, and nothing is fetched".to_owned());
        }
        let set = compiled.into_schema_set();
        // The specification lets these pass until they are used.
        let untyped = set.arenas.elements.values().any(|element| element.deferred_type_error.is_some())
            || set.arenas.simple_types.values().any(|list| list.deferred_item_type_error.is_some());
        if untyped {
            return Err("a name in it leads nowhere".to_owned());
        }
        Ok(Self { names_bytes: set.name_table.heap_bytes(), set })
    }
}

/// Where an event carries the document.
const POINTER: &str = "/data/xml";
/// Most compiled copies kept of one schema.
const IDLE_MAX: usize = 8;
/// Most names a copy may learn from documents, in bytes.
const NAMES_BYTES_MAX: usize = 256 * 1024;

fn validate(set: &SchemaSet, document: &str) -> Vec<Violation> {
    let validator = SchemaValidator::new(set, ValidationFlags::default() & !ValidationFlags::BUILD_PSVI_TYPED_VALUES);
    let mut failures = Failures(Vec::new());
    let mut runtime = validator.start_run(&mut failures);
    runtime.set_parse_limits(parse_limits());
    let driven = drive_quick_xml_with(document.as_bytes(), &mut runtime, set, &mut Plain);
    let ended = runtime.end_validation().is_ok();
    drop(runtime);
    let Failures(mut found) = failures;
    match driven {
        Err(error) => found.push(Violation::new(POINTER, words::unreadable(&error))),
        Ok(outcome) if found.is_empty() && (outcome.root_validity != Some(SchemaValidity::Valid) || !ended) => {
            found.push(Violation::new(POINTER, "does not fit the schema"));
        }
        Ok(_) => (),
    }
    found
}

fn parse_limits() -> ParseLimits {
    ParseLimits::none().with_max_depth(limits::XML_DEPTH_MAX).with_max_nodes(limits::XML_NODES_MAX)
}

/// Takes what the validator says, as far as it will be told.
struct Failures(Vec<Violation>);

impl ValidationSink for &mut Failures {
    fn on_error(&mut self, error: ValidationError) {
        if self.0.len() < limits::VIOLATIONS_MAX {
            self.0.push(Violation::new(POINTER, words::failure(&error)));
        }
    }

    fn on_warning(&mut self, _: ValidationWarning) {}
}

/// A reader of documents without document types.
struct Plain;

/// There was a document type.
#[derive(Debug)]
struct HasDoctype;

impl ValidationEventHandler for Plain {
    type Error = HasDoctype;

    fn on_doctype(&mut self, _: DoctypeView<'_>) -> Result<(), HasDoctype> {
        Err(HasDoctype)
    }
}
