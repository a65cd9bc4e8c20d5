//! XML Schemas (1.0): `data` is `{"xml": "<…/>"}`, the document as text.
//!
//! - Nothing is fetched: a schema that includes or imports another by location is refused, and locations of schemas in
//!   documents are ignored. Document types are refused, so there are no entities to expand.
//! - A compiled schema interns the names of every document that it validates, and cannot be shared between threads. So
//!   there are a few copies, each used by one thread at a time; a copy with too many interned names is reset.
//! - Checking an event never compiles anything: copies and patterns are created when the schema is compiled.
//! - The library is young: a panic inside it refuses the event. Depth and size of documents are bounded.

pub(super) mod compat;
mod messages;
mod shape;
#[cfg(test)]
mod tests;
mod tree;

use super::check_work::CheckWork;
use super::patterns::{PatternBudget, SchemaOrigin, automaton_states_in};
use super::refused;
use contract::{Result, Violation, limits};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use xsd_schema::namespace::NameTable;
use xsd_schema::parser::frames::ComplexContentResult;
use xsd_schema::regex_convert::{ConvertOptions, convert_xml_pattern};
use xsd_schema::validation::{
    DoctypeView, DriveWithError, SchemaValidator, SchemaValidity, ValidationError, ValidationEventHandler,
    ValidationFlags, ValidationSink, ValidationWarning, drive_quick_xml_with,
};
use xsd_schema::xml::ParseLimits;
use xsd_schema::{EmbeddedLoader, NameId, SchemaError, SchemaSet, SchemaSetBuilder};

/// A compiled schema, with one copy per document that is checked at the same time.
pub(crate) struct XsdSchema {
    copies_max: usize,
    /// The states of the automata of all its patterns.
    pattern_states: usize,
    copies: Mutex<CopyPool>,
    /// Signalled when a copy is returned.
    returned: Condvar,
}

struct CopyPool {
    /// Not in use.
    idle: Vec<CompiledCopy>,
    /// The number of copies, in use or not.
    count: usize,
}

struct CompiledCopy {
    set: SchemaSet,
    /// The number of interned names before the first document.
    names: usize,
    /// The size of these names, in bytes.
    names_bytes: usize,
}

impl XsdSchema {
    /// Compiles a schema at the pointer `at` of a request.
    pub(super) fn compile(at: &str, text: &str) -> Result<Self> {
        let schema = tree::SchemaElement::parse(text).map_err(|detail| refused(at, detail))?;
        shape::check(&schema).map_err(|detail| refused(at, detail))?;
        let first = CompiledCopy::compile(text).map_err(|detail| refused(at, &detail))?;
        let pattern_bytes = pattern_bytes(text, SchemaOrigin::Log).map_err(|detail| refused(at, &detail))?;
        let copies = Mutex::new(CopyPool { idle: vec![first], count: 1 });
        let pattern_states = automaton_states_in(pattern_bytes);
        let copies_max = copies_max(text, pattern_bytes);
        Ok(Self { copies_max, pattern_states, copies, returned: Condvar::new() })
    }

    /// The work of checking a document. No value is matched with all patterns of the schema, so this estimate refuses
    /// none.
    pub(super) fn work(&self, bytes: usize) -> CheckWork {
        CheckWork { looks: bytes, pattern_steps: bytes.saturating_mul(self.pattern_states) }.without_refusal()
    }

    /// Creates the missing copies. This compiles, so it is never called where events are checked.
    pub(super) fn complete(&self, text: &str) {
        let missing = self.copies_max.saturating_sub(self.pool().count);
        for _ in 0..missing {
            // One copy is enough.
            let Ok(copy) = CompiledCopy::compile(text) else { return };
            let mut pool = self.pool();
            pool.count += 1;
            pool.idle.push(copy);
        }
        self.returned.notify_all();
    }

    /// Checks an event's `data` against the schema.
    pub(super) fn check(&self, data: &Value) -> Result<(), Vec<Violation>> {
        let members = data.as_object().filter(|members| members.len() == 1);
        let Some(document) = members.and_then(|members| members.get("xml")?.as_str()) else {
            let detail = "must have exactly one member, `xml`, that holds the document as text";
            return Err(vec![Violation::new("/data", detail)]);
        };
        let copy = self.borrow();
        let outcome = catch_unwind(AssertUnwindSafe(|| validate(&copy.set, document)));
        // Documents change only the names, so a copy can be used again even after a panic.
        self.give_back(copy, outcome.is_err());
        match outcome {
            Ok(found) if found.is_empty() => Ok(()),
            Ok(found) => Err(found),
            Err(_) => Err(vec![Violation::new(POINTER, "cannot be checked against the schema")]),
        }
    }

    fn pool(&self) -> MutexGuard<'_, CopyPool> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a copy. There are as many copies as threads, unless they are large.
    fn borrow(&self) -> CompiledCopy {
        let mut pool = self.pool();
        loop {
            if let Some(copy) = pool.idle.pop() {
                return copy;
            }
            pool = self.returned.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_back(&self, mut copy: CompiledCopy, is_damaged: bool) {
        let learnt = copy.set.name_table.heap_bytes().saturating_sub(copy.names_bytes);
        if is_damaged || learnt > NAMES_BYTES_MAX {
            copy.forget_names();
        }
        self.pool().idle.push(copy);
        self.returned.notify_one();
    }
}

/// The approximate size of all copies of a schema, in bytes.
pub(super) fn compiled_bytes(text: &str, pattern_bytes: usize) -> usize {
    copies_max(text, pattern_bytes).saturating_mul(copy_bytes(text, pattern_bytes))
}

/// The number of copies of a schema: one for every thread, unless they are large.
fn copies_max(text: &str, pattern_bytes: usize) -> usize {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    (COPIES_BYTES_MAX / copy_bytes(text, pattern_bytes).max(1)).clamp(1, threads.min(COPIES_MAX))
}

/// The approximate size of a copy, in bytes: the built-in types, its own types, its patterns, and names of documents.
fn copy_bytes(text: &str, pattern_bytes: usize) -> usize {
    BUILTIN_BYTES.saturating_add(text.len().saturating_mul(32)).saturating_add(pattern_bytes) + NAMES_BYTES_MAX
}

/// The size of the compiled patterns of one copy, in bytes; or why that is too much.
pub(super) fn pattern_bytes(text: &str, origin: SchemaOrigin) -> Result<usize, String> {
    let mut budget = PatternBudget::of(origin);
    // A schema that cannot be parsed is refused by the compiler, which says why.
    let Ok(schema) = tree::SchemaElement::parse(text) else { return Ok(0) };
    let mut rest = vec![&schema];
    while let Some(element) = rest.pop() {
        if element.name == "pattern" {
            budget.spend(element.attribute("value").unwrap_or_default(), in_rust_syntax)?;
        }
        rest.extend(&element.children);
    }
    Ok(budget.compiled_bytes())
}

/// Converts a pattern as the library does before it compiles it.
fn in_rust_syntax(pattern: &str) -> Cow<'_, str> {
    // The library panics at some invalid expressions.
    let converted = catch_unwind(|| convert_xml_pattern(pattern, ConvertOptions::xsd_v1_0()));
    converted.map_or(Cow::Borrowed(pattern), Cow::Owned)
}

impl fmt::Debug for XsdSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XsdSchema").finish_non_exhaustive()
    }
}

impl CompiledCopy {
    fn compile(text: &str) -> Result<Self, String> {
        let compiled = catch_unwind(|| {
            let builder = SchemaSetBuilder::with_loader(Box::new(EmbeddedLoader::new()));
            builder.add_source(text, "schema.xsd")?.compile()
        });
        let compiled = match compiled {
            Ok(Ok(compiled)) => compiled,
            Ok(Err(error)) => return Err(messages::schema_fault(&error)),
            Err(_) => return Err(UNCOMPILED.to_owned()),
        };
        if !compiled.directive_failures().is_empty() {
            return Err("it includes or imports another schema, and nothing is fetched".to_owned());
        }
        let mut set = compiled.into_schema_set();
        // The specification permits these until they are used.
        let untyped = set.arenas.elements.values().any(|element| element.deferred_type_error.is_some())
            || set.arenas.simple_types.values().any(|list| list.deferred_item_type_error.is_some());
        if untyped {
            return Err("a name in it cannot be resolved".to_owned());
        }
        compile_content_patterns(&mut set)?;
        Ok(Self { names: set.name_table.len(), names_bytes: set.name_table.heap_bytes(), set })
    }

    /// Removes the names of documents. Names are numbered in order, so those of the schema keep their numbers.
    fn forget_names(&mut self) {
        let names = NameTable::new();
        for number in 0..self.names {
            let name = u32::try_from(number).ok().and_then(|it| self.set.name_table.try_resolve_ref(NameId(it)));
            names.add(name.unwrap_or_default());
        }
        self.set.name_table = names;
    }
}

/// Compiles the patterns on the simple content of complex types. The library compiles them when a value is checked, and
/// again for every value.
fn compile_content_patterns(set: &mut SchemaSet) -> Result<(), String> {
    let (version, compat) = (set.xsd_version, set.regex_compatibility);
    for complex_type in set.arenas.entries_mut().complex_types.values_mut() {
        if let ComplexContentResult::Simple(content) = &mut complex_type.content {
            let facets = &mut content.facets;
            let compiled = catch_unwind(AssertUnwindSafe(|| facets.compile_patterns(version, compat).is_ok()));
            if !compiled.unwrap_or_default() {
                return Err("a pattern in it is not what XML Schema 1.0 allows, or too large".to_owned());
            }
        }
    }
    Ok(())
}

const UNCOMPILED: &str = "it cannot be compiled";
/// The pointer to the document in an event.
const POINTER: &str = "/data/xml";
/// Most compiled copies of one schema.
const COPIES_MAX: usize = 4;
/// Most bytes of all copies of one schema, unless one alone takes more.
const COPIES_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The size of a schema without any declaration, in bytes.
const BUILTIN_BYTES: usize = 512 * 1024;
/// Most bytes of names that a copy interns from documents before it is reset.
const NAMES_BYTES_MAX: usize = 256 * 1024;

fn validate(set: &SchemaSet, document: &str) -> Vec<Violation> {
    let validator = SchemaValidator::new(set, ValidationFlags::default() & !ValidationFlags::BUILD_PSVI_TYPED_VALUES);
    let mut failures = ViolationSink(Vec::new());
    let mut runtime = validator.start_run(&mut failures);
    runtime.set_parse_limits(parse_limits());
    let driven = drive_quick_xml_with(document.as_bytes(), &mut runtime, set, &mut NoDoctypeHandler);
    let ended = runtime.end_validation().is_ok();
    drop(runtime);
    let ViolationSink(mut found) = failures;
    match driven {
        Err(error) => found.push(Violation::new(POINTER, messages::unreadable(&error))),
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

/// Collects the validator's failures, up to the limit.
struct ViolationSink(Vec<Violation>);

impl ValidationSink for &mut ViolationSink {
    fn on_error(&mut self, error: ValidationError) {
        if self.0.len() < limits::VIOLATIONS_MAX {
            self.0.push(Violation::new(POINTER, messages::failure(&error)));
        }
    }

    fn on_warning(&mut self, _: ValidationWarning) {}
}

/// A reader of documents without document types.
struct NoDoctypeHandler;

/// The document has a document type.
#[derive(Debug)]
struct DoctypeFound;

impl ValidationEventHandler for NoDoctypeHandler {
    type Error = DoctypeFound;

    fn on_doctype(&mut self, _: DoctypeView<'_>) -> Result<(), DoctypeFound> {
        Err(DoctypeFound)
    }
}
