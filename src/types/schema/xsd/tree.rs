//! An XML Schema as a tree of its elements, without anything that has no meaning: white space, comments, annotations,
//! ids.

use super::{DoctypeView, ValidationEventHandler, parse_limits};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use xsd_schema::SchemaSet;
use xsd_schema::validation::{
    AttributeView, CollectingValidationSink, ElementStartView, EndElementInfo, SchemaValidator, TextKind,
    ValidationFlags, ValidationRoot, drive_quick_xml_with,
};

/// One element of a schema.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SchemaElement {
    /// Its name; with `{namespace}` in front where that is not XML Schema's.
    pub(super) name: String,
    /// Its attributes and namespace declarations.
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) children: Vec<SchemaElement>,
}

impl SchemaElement {
    /// Parses a schema's text; `Err` says why it cannot be parsed.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let read = catch_unwind(AssertUnwindSafe(|| {
            // No schema is checked: only the events of the parser matter.
            let nothing = SchemaSet::new();
            let validator = SchemaValidator::new(&nothing, ValidationFlags::default());
            let (mut errors, mut warnings) = (Vec::new(), Vec::new());
            let sink = CollectingValidationSink { errors: &mut errors, warnings: &mut warnings };
            let mut runtime = validator.start_run(sink);
            runtime.set_validation_root(ValidationRoot::Lax);
            runtime.set_parse_limits(parse_limits());
            let mut reader = TreeBuilder::default();
            drive_quick_xml_with(text.as_bytes(), &mut runtime, &nothing, &mut reader).ok()?;
            reader.root
        }));
        let root = read.ok().flatten().ok_or("it is not well-formed XML, is nested too deeply, or is too large")?;
        if root.name == "schema" { Ok(root) } else { Err("it is not an XML Schema") }
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }
}

const XSD_NAMESPACE: &str = "http://www.w3.org/2001/XMLSchema";

#[derive(Default)]
struct TreeBuilder {
    open: Vec<SchemaElement>,
    root: Option<SchemaElement>,
}

impl ValidationEventHandler for TreeBuilder {
    type Error = ();

    fn before_element(&mut self, view: ElementStartView<'_>) -> Result<(), ()> {
        let local = view.local_name;
        let name = if view.namespace_uri == XSD_NAMESPACE {
            local.to_owned()
        } else {
            format!("{{{}}}{local}", view.namespace_uri)
        };
        let spaces = view.namespace_decls.iter().map(|(prefix, uri)| (format!("xmlns:{prefix}"), (*uri).to_owned()));
        self.open.push(SchemaElement { name, attributes: spaces.collect(), children: Vec::new() });
        Ok(())
    }

    fn before_attribute(&mut self, view: AttributeView<'_>) -> Result<(), ()> {
        let Some(element) = self.open.last_mut() else { return Err(()) };
        let name = match view.namespace_uri {
            "" => view.local_name.to_owned(),
            uri => format!("{{{uri}}}{}", view.local_name),
        };
        if name != "id" {
            element.attributes.insert(name, view.value.to_owned());
        }
        Ok(())
    }

    fn on_text(&mut self, kind: TextKind, _: &str) -> Result<(), ()> {
        let in_annotation = self.open.iter().any(|element| element.name == "annotation");
        if matches!(kind, TextKind::Whitespace) || in_annotation { Ok(()) } else { Err(()) }
    }

    fn after_end_element(&mut self, _: &EndElementInfo, _: usize) -> Result<(), ()> {
        let Some(element) = self.open.pop() else { return Err(()) };
        match self.open.last_mut() {
            Some(_) if element.name == "annotation" => (),
            Some(parent) => parent.children.push(element),
            None => self.root = Some(element),
        }
        Ok(())
    }

    fn on_doctype(&mut self, _: DoctypeView<'_>) -> Result<(), ()> {
        Err(())
    }
}
