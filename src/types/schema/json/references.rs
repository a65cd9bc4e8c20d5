//! The targets of the references in a JSON Schema.
//!
//! - Pointers are followed, percent-encoded or not, anchors of all kinds, and the `$id`s of subschemas, against which
//!   the references inside them are resolved.
//! - If the target of a reference depends on the path by which a subschema is reached, all candidates count.
//! - A reference into data (`const`, `enum`, `default`, `examples`) is refused: nothing else reads that as a schema.

use super::positions::PartPosition;
use jsonschema::{Uri, uri};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Everything that references of a schema can point to.
pub(super) struct ReferenceIndex<'s> {
    /// Subschemas with an identifier of their own; the first is the schema itself.
    resources: Vec<SchemaResource<'s>>,
    by_uri: HashMap<String, Vec<usize>>,
    anchors: HashMap<&'s str, Vec<SchemaAnchor<'s>>>,
    /// The resource that contains each object, by the object's address. Objects that are data are not included.
    resource_of: HashMap<*const Value, usize>,
}

struct SchemaResource<'s> {
    uri: Uri<String>,
    root: &'s Value,
    /// The enclosing resource.
    parent: Option<usize>,
}

struct SchemaAnchor<'s> {
    part: &'s Value,
    resource: usize,
    is_dynamic: bool,
}

/// The target of a reference.
pub(super) enum ReferenceTarget<'s> {
    /// Parts of this schema.
    Parts(Vec<&'s Value>),
    /// A meta-schema, which the validator contains.
    MetaSchema,
    /// A value that is not a schema.
    Data,
    /// Not found.
    Nowhere,
}

impl<'s> ReferenceIndex<'s> {
    pub(super) fn new(schema: &'s Value) -> Option<Self> {
        let base = uri::from_str(BASE).ok()?;
        let mut index = Self {
            resources: vec![SchemaResource { uri: base, root: schema, parent: None }],
            by_uri: HashMap::from([(BASE.to_owned(), vec![0])]),
            anchors: HashMap::new(),
            resource_of: HashMap::new(),
        };
        let mut rest = vec![(schema, PartPosition::Schema, 0)];
        while let Some((part, position, resource)) = rest.pop() {
            match part {
                Value::Array(items) => rest.extend(items.iter().map(|item| (item, position, resource))),
                Value::Object(members) => {
                    let resource = match position {
                        PartPosition::NamedSchemas => resource,
                        _ => index.enter(part, members, resource),
                    };
                    index.resource_of.insert(part, resource);
                    for (name, member) in members {
                        rest.extend(position.of_member(name).map(|position| (member, position, resource)));
                    }
                }
                _ => (),
            }
        }
        Some(index)
    }

    /// How many subschemas have an identifier of their own.
    pub(super) fn embedded_resources(&self) -> usize {
        self.resources.len().saturating_sub(1)
    }

    /// The resource that contains an object; the schema itself is the first.
    pub(super) fn resource(&self, part: &'s Value) -> Option<usize> {
        self.resource_of.get(&std::ptr::from_ref(part)).copied()
    }

    /// The target of a reference in a subschema.
    pub(super) fn target(&self, part: &'s Value, reference: &str) -> ReferenceTarget<'s> {
        let (address, fragment) = reference.rsplit_once('#').unwrap_or((reference, ""));
        let (mut found, mut is_known) = (Vec::new(), false);
        let mut next = self.resource(part);
        // Whether an `$id` counts depends on the draft, so the enclosing resources are tried as well.
        while let Some(base) = next.and_then(|index| self.resources.get(index)) {
            next = base.parent;
            let resolved = match address {
                "" => base.uri.as_str().to_owned(),
                _ => match uri::resolve_against(&base.uri.borrow(), address) {
                    Ok(resolved) => resolved.as_str().trim_end_matches('#').to_owned(),
                    Err(_) => continue,
                },
            };
            let candidates = self.by_uri.get(&resolved).map_or(&[][..], Vec::as_slice);
            is_known |= candidates.is_empty() && is_meta_schema(&resolved);
            for resource in candidates {
                found.extend(self.within(*resource, fragment));
            }
        }
        let is_data = |part: &&Value| part.is_object() && !self.resource_of.contains_key(&std::ptr::from_ref(*part));
        if found.iter().any(is_data) {
            ReferenceTarget::Data
        } else if !found.is_empty() {
            found.sort_unstable_by_key(|part| std::ptr::from_ref(*part));
            found.dedup_by_key(|part| std::ptr::from_ref(*part));
            ReferenceTarget::Parts(found)
        } else if is_known {
            ReferenceTarget::MetaSchema
        } else {
            ReferenceTarget::Nowhere
        }
    }

    /// Records the identifiers of a subschema; returns the resource that contains it.
    fn enter(&mut self, part: &'s Value, members: &'s Map<String, Value>, around: usize) -> usize {
        let text = |keyword| members.get(keyword).and_then(Value::as_str);
        let mut resource = around;
        let mut names: Vec<(&'s str, bool)> = Vec::new();
        if let Some(id) = text("$id") {
            let (address, fragment) = id.split_once('#').unwrap_or((id, ""));
            // In draft-07, an anchor is an `$id` that consists of a fragment.
            names.extend((!fragment.is_empty()).then_some((fragment, false)));
            let base = self.resources.get(around).map(|base| base.uri.borrow());
            if let Some(Ok(uri)) = base.filter(|_| !address.is_empty()).map(|base| uri::resolve_against(&base, address))
            {
                resource = self.resources.len();
                self.by_uri.entry(uri.as_str().to_owned()).or_default().push(resource);
                self.resources.push(SchemaResource { uri, root: part, parent: Some(around) });
            }
        }
        names.extend(text("$anchor").map(|name| (name, false)));
        names.extend(text("$dynamicAnchor").map(|name| (name, true)));
        for (name, is_dynamic) in names {
            self.anchors.entry(name).or_default().push(SchemaAnchor { part, resource, is_dynamic });
        }
        resource
    }

    fn within(&self, resource: usize, fragment: &str) -> Vec<&'s Value> {
        let Some(root) = self.resources.get(resource).map(|resource| resource.root) else { return Vec::new() };
        if fragment.is_empty() {
            return vec![root];
        }
        if fragment.starts_with('/') {
            return percent_decoded(fragment).and_then(|pointer| root.pointer(&pointer)).into_iter().collect();
        }
        let named = self.anchors.get(fragment).map_or(&[][..], Vec::as_slice).iter();
        // A dynamic anchor of another resource may replace this one's.
        named
            .filter(|anchor| anchor.is_dynamic || self.is_within(anchor.resource, resource))
            .map(|it| it.part)
            .collect()
    }

    fn is_within(&self, inner: usize, outer: usize) -> bool {
        let around = |index: &usize| self.resources.get(*index).and_then(|resource| resource.parent);
        std::iter::successors(Some(inner), around).any(|index| index == outer)
    }
}

/// The base address of a schema without an `$id`.
const BASE: &str = "json-schema:///";

fn is_meta_schema(uri: &str) -> bool {
    ["http://json-schema.org/draft", "https://json-schema.org/draft"].iter().any(|known| uri.starts_with(known))
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let encoded = behind.get(..2).filter(|_| byte == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match encoded.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(decoded) => {
                bytes.push(decoded);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(byte);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).ok()
}
