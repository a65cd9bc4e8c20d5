//! Whether an XML Schema accepts every document that its predecessor accepts: a conservative subset of what could be
//! shown.
//!
//! - Both are compared as trees, part by part. White space, comments, annotations and ids do not matter.
//! - What may change: a minimum may fall, a maximum may rise; an attribute may become optional; a `sequence` or `all`
//!   may gain optional elements, a `choice` alternatives, an enumeration values, a type optional attributes; and there
//!   may be new declarations.
//! - Wildcards (`any`, `anyAttribute`, `anyType`) and a new declaration together are refused: content that was not
//!   checked before would be checked now.
//! - Any other change is reported as one that cannot be shown to be compatible.

use super::tree::SchemaElement;
use crate::types::schema::changed;
use contract::{Violation, limits};

/// The places where `new`, at the pointer `at` of a request, might refuse a document that `old` accepts.
pub(in crate::types::schema) fn incompatibilities(at: &str, old: &str, new: &str) -> Vec<Violation> {
    let (Ok(old), Ok(new)) = (SchemaElement::parse(old), SchemaElement::parse(new)) else {
        return vec![changed(at, "cannot be compared with the version before it")];
    };
    let is_open = has_room(&old) || has_room(&new);
    let mut walk = XsdComparison { at, is_open, found: Vec::new() };
    walk.element(&old, &new, "");
    walk.found
}

struct XsdComparison<'a> {
    at: &'a str,
    /// Whether a document may have content that the schema does not describe.
    is_open: bool,
    found: Vec<Violation>,
}

impl XsdComparison<'_> {
    fn element(&mut self, old: &SchemaElement, new: &SchemaElement, place: &str) {
        let place = format!("{place}/{}", label(new));
        let names =
            old.attributes.keys().chain(new.attributes.keys().filter(|name| !old.attributes.contains_key(*name)));
        for name in names {
            let (before, after) = (old.attribute(name), new.attribute(name));
            if before != after && !may_change(old, name, before, after) {
                self.report(
                    &place,
                    &format!("the attribute '{name}' changed in a way that cannot be shown compatible"),
                );
            }
        }
        if old.name == "sequence" { self.in_order(old, new, &place) } else { self.in_any_order(old, new, &place) }
    }

    fn in_order(&mut self, old: &SchemaElement, new: &SchemaElement, place: &str) {
        let mut added = new.children.iter();
        for child in &old.children {
            loop {
                match added.next() {
                    Some(next) if key(next) == key(child) => break self.element(child, next, place),
                    Some(next) => self.added(old, new, next, place),
                    None => return self.report(place, &format!("{} was removed or moved", label(child))),
                }
            }
        }
        added.for_each(|next| self.added(old, new, next, place));
    }

    fn in_any_order(&mut self, old: &SchemaElement, new: &SchemaElement, place: &str) {
        let mut left: Vec<&SchemaElement> = new.children.iter().collect();
        for child in &old.children {
            match left.iter().position(|next| key(next) == key(child)) {
                Some(at) => self.element(child, left.remove(at), place),
                None => self.report(place, &format!("{} was removed", label(child))),
            }
        }
        left.into_iter().for_each(|next| self.added(old, new, next, place));
    }

    fn added(&mut self, old: &SchemaElement, new: &SchemaElement, child: &SchemaElement, place: &str) {
        let is_optional = child.attribute("minOccurs") == Some("0");
        let is_welcome = match (new.name.as_str(), child.name.as_str()) {
            ("sequence" | "all", "element" | "sequence" | "choice") => is_optional,
            ("choice", "element" | "sequence" | "choice") => true,
            ("restriction", "enumeration") => old.children.iter().any(|known| known.name == "enumeration"),
            ("complexType" | "extension" | "attributeGroup", "attribute") => {
                !self.is_open && child.attribute("use").unwrap_or("optional") == "optional"
            }
            ("schema", "element" | "simpleType" | "complexType" | "group" | "attributeGroup") => !self.is_open,
            _ => false,
        };
        if !is_welcome {
            self.report(place, &format!("{} was added, which cannot be shown compatible", label(child)));
        }
    }

    fn report(&mut self, place: &str, detail: &str) {
        if self.found.len() < limits::VIOLATIONS_MAX {
            let place: String = place.chars().take(200).collect();
            self.found.push(changed(self.at, format!("{detail} (in {place})")));
        }
    }
}

/// Whether an attribute of a schema's element may change from one value to another, absent ones included.
fn may_change(element: &SchemaElement, name: &str, before: Option<&str>, after: Option<&str>) -> bool {
    let number = |text: Option<&str>| match text {
        None => Some(1),
        Some("unbounded") => Some(u64::MAX),
        Some(text) => text.parse().ok(),
    };
    let is_particle = ["element", "sequence", "choice", "group", "any"].contains(&element.name.as_str());
    match name {
        "minOccurs" if is_particle => number(after) <= number(before) && number(after).is_some(),
        "maxOccurs" if is_particle => number(after) >= number(before) && number(before).is_some(),
        "version" => element.name == "schema",
        "use" if element.name == "attribute" => {
            before == Some("required") && after.unwrap_or("optional") == "optional"
                || before.unwrap_or("optional") == "optional" && after.unwrap_or("optional") == "optional"
        }
        _ => false,
    }
}

/// Whether a schema accepts content that it does not describe.
fn has_room(schema: &SchemaElement) -> bool {
    let mut rest = vec![schema];
    while let Some(element) = rest.pop() {
        let is_wildcard = element.name == "any" || element.name == "anyAttribute";
        let named_so = |name| element.attribute(name).is_some_and(|value| value.rsplit(':').next() == Some("anyType"));
        let untyped = element.name == "element"
            && ["type", "ref", "substitutionGroup"].iter().all(|name| element.attribute(name).is_none())
            && !element.children.iter().any(|child| child.name == "simpleType" || child.name == "complexType");
        if is_wildcard || untyped || named_so("type") || named_so("base") {
            return true;
        }
        rest.extend(&element.children);
    }
    false
}

/// What identifies a child among those of one element.
fn key(element: &SchemaElement) -> (&str, Option<&str>) {
    let names = ["name", "ref", "value", "namespace"];
    (element.name.as_str(), names.into_iter().find_map(|name| element.attribute(name)))
}

fn label(element: &SchemaElement) -> String {
    match element.attribute("name").or_else(|| element.attribute("ref")) {
        Some(name) => format!("{} '{name}'", element.name),
        None => element.name.clone(),
    }
}
