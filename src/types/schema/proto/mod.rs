//! Protocol Buffers as schemas: `data` is the JSON form of one message.
//!
//! - A file is compiled here, without `protoc`. It may import only the well-known files.
//! - The library decides whether `data` is valid; if it is not, [`messages`] finds the places.
//! - A file is bounded before the compiler reads it: by length, by nesting, and by the number of its declarations
//!   ([`scan`]).
//! - `required` members of the old syntax are required; the library alone would not check them.
//!
//! The message of `data` is the one named, otherwise the only top-level message that no other message uses, otherwise
//! the last.

pub(super) mod compat;
mod messages;
mod scan;
#[cfg(test)]
mod tests;

use super::refused;
use contract::{Error, Result, Violation};
use prost_reflect::{DynamicMessage, FileDescriptor, Kind, MessageDescriptor};
use protox::Compiler;
use protox::file::{File, FileResolver, GoogleFileResolver};
use serde_json::Value;
use std::collections::BTreeSet;

/// A compiled proto file, and the message type of events.
#[derive(Debug)]
pub(crate) struct ProtoSchema {
    message: MessageDescriptor,
    /// Whether a message that can occur in it has required members.
    has_required: bool,
}

impl ProtoSchema {
    /// Compiles the file of a version at the pointer `at` of a request.
    pub(super) fn compile(at: &str, text: &str, message: Option<&str>) -> Result<Self> {
        let schema_at = format!("{at}/schema");
        scan::check(text).map_err(|detail| refused(&schema_at, detail))?;
        let mut compiler = Compiler::with_file_resolver(SingleFileResolver(text.to_owned()));
        compiler.open_file(NAME).map_err(|error| refused(&schema_at, &fault(&error)))?;
        let file = compiler.descriptor_pool().get_file_by_name(NAME);
        let file = file.ok_or_else(|| refused(&schema_at, "it does not compile"))?;
        let message = match message {
            Some(name) => named(&file, name)
                .ok_or_else(|| Error::invalid(format!("{at}/message"), "names no message of the proto file"))?,
            None => chosen(&file).ok_or_else(|| refused(&schema_at, "the proto file has no message"))?,
        };
        let has_required = reachable(&message).iter().any(|known| known.fields().any(|field| field.is_required()));
        Ok(Self { message, has_required })
    }

    /// Checks an event's `data` against the message type.
    pub(super) fn check(&self, data: &Value) -> Result<(), Vec<Violation>> {
        let fits = DynamicMessage::deserialize(self.message.clone(), data).is_ok();
        if fits && !self.has_required {
            return Ok(());
        }
        let found = messages::violations(&self.message, data);
        match (fits, found.is_empty()) {
            (true, true) => Ok(()),
            (false, true) => Err(vec![Violation::new("/data", "does not fit the message the schema describes")]),
            _ => Err(found),
        }
    }
}

/// The name of the file while it is compiled.
const NAME: &str = "schema.proto";

/// Resolves the one file, and the well-known ones.
struct SingleFileResolver(String);

impl FileResolver for SingleFileResolver {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        if name == NAME { File::from_source(NAME, &self.0) } else { GoogleFileResolver::new().open_file(name) }
    }
}

/// The error in a file, with its place.
fn fault(error: &protox::Error) -> String {
    let what = if error.is_parse() {
        "it is not a proto file"
    } else if error.is_file_not_found() {
        "it imports a file that is not one of the well-known ones"
    } else {
        "it defines a name twice, or uses an undefined one"
    };
    let text = format!("{error:?}");
    let mut place = text.strip_prefix(NAME).and_then(|rest| rest.strip_prefix(':')).unwrap_or_default().split(':');
    let mut number = || place.next().and_then(|number| number.parse::<u32>().ok());
    match (number(), number()) {
        (Some(line), Some(column)) => format!("{what} (line {line}, column {column})"),
        _ => what.to_owned(),
    }
}

/// Finds a message type by its name, with or without the package.
fn named(file: &FileDescriptor, name: &str) -> Option<MessageDescriptor> {
    let pool = file.parent_pool();
    let inside = |name: &str| pool.get_message_by_name(name).filter(|known| known.parent_file() == *file);
    let package = file.package_name();
    inside(name).or_else(|| inside(&format!("{package}.{name}"))).filter(|known| !known.is_map_entry())
}

fn chosen(file: &FileDescriptor) -> Option<MessageDescriptor> {
    let used: BTreeSet<String> = file.messages().flat_map(|message| used_by(&message)).collect();
    let mut free = file.messages().filter(|message| !used.contains(message.full_name()));
    match (free.next(), free.next()) {
        (Some(only), None) => Some(only),
        _ => file.messages().last(),
    }
}

/// The names of the other messages that a message and those inside it use.
fn used_by(message: &MessageDescriptor) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let mut rest = vec![message.clone()];
    while let Some(part) = rest.pop() {
        let kinds = part.fields().map(|field| field.kind());
        used.extend(kinds.filter_map(|kind| kind.as_message().map(|known| known.full_name().to_owned())));
        rest.extend(part.child_messages());
    }
    used.remove(message.full_name());
    used
}

/// The message type and all types that can occur inside it.
fn reachable(message: &MessageDescriptor) -> Vec<MessageDescriptor> {
    let mut seen = BTreeSet::from([message.full_name().to_owned()]);
    let mut found = vec![message.clone()];
    let mut next = 0;
    while let Some(known) = found.get(next).cloned() {
        next += 1;
        for field in known.fields() {
            if let Kind::Message(inner) = field.kind()
                && seen.insert(inner.full_name().to_owned())
            {
                found.push(inner);
            }
        }
    }
    found
}
