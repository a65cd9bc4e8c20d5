//! The input of subcommands: files, standard input, and the JSON in them.
//!
//! - `-` is standard input, everywhere.
//! - One JSON value, an array of values, or several values in a row (NDJSON) are accepted, and kept as they are spelt.
//! - Values are read one by one: a file need not fit in memory.

use super::error::{CliError, CliResult};
use serde_json::value::RawValue;
use serde_json::{Deserializer, Value};
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::Path;

/// JSON values in their order.
pub(super) type JsonValues = Box<dyn Iterator<Item = CliResult<Box<RawValue>>> + Send>;

/// A file or standard input.
pub(super) struct InputSource {
    /// Its name in messages.
    pub(super) name: String,
    /// Its length, if known.
    pub(super) bytes: Option<u64>,
    pub(super) reader: Box<dyn BufRead + Send>,
}

/// Opens a file, or standard input. `None` is standard input too, unless it is a terminal.
pub(super) fn open(path: Option<&Path>) -> CliResult<InputSource> {
    let standard = || InputSource {
        name: "standard input".to_owned(),
        bytes: None,
        reader: Box::new(BufReader::new(io::stdin())),
    };
    match path {
        None if io::stdin().is_terminal() => {
            Err(CliError::Misused("nothing to read: name a file, or - for standard input".to_owned()))
        }
        None => Ok(standard()),
        Some(path) if path.as_os_str() == "-" => Ok(standard()),
        Some(path) => {
            let name = path.display().to_string();
            let file = File::open(path).map_err(|cause| CliError::caused_by(&name, cause))?;
            let metadata = file.metadata().map_err(|cause| CliError::caused_by(&name, cause))?;
            let bytes = metadata.is_file().then_some(metadata.len());
            Ok(InputSource { bytes, reader: Box::new(BufReader::with_capacity(64 * 1024, file)), name })
        }
    }
}

/// The JSON values of a source; an array is read as its items.
pub(super) fn values(source: InputSource) -> JsonValues {
    let InputSource { name, reader, .. } = source;
    let values = Deserializer::from_reader(reader).into_iter::<Box<RawValue>>();
    Box::new(values.flat_map(move |value| {
        let items = value.and_then(items);
        let items = items.map_err(|error| CliError::caused_by(format_args!("{name} is not JSON"), error));
        match items {
            Ok(items) => items.into_iter().map(Ok).collect::<Vec<_>>(),
            Err(failure) => vec![Err(failure)],
        }
    }))
}

fn items(value: Box<RawValue>) -> serde_json::Result<Vec<Box<RawValue>>> {
    match value.get().starts_with('[') {
        true => serde_json::from_str(value.get()),
        false => Ok(vec![value]),
    }
}

/// The only JSON value of a source.
pub(super) fn one_value(mut source: InputSource) -> CliResult<Value> {
    let mut text = String::new();
    source.reader.read_to_string(&mut text).map_err(|cause| CliError::caused_by(&source.name, cause))?;
    serde_json::from_str(&text).map_err(|error| CliError::caused_by(format_args!("{} is not JSON", source.name), error))
}

/// A topic's or event type's definition. One that a broker has printed is taken too: what it added is left aside.
pub(super) fn definition(text: &str) -> CliResult<Value> {
    let mut thing: Value =
        serde_json::from_str(text).map_err(|error| CliError::caused_by("the definition is not JSON", error))?;
    let Some(members) = thing.as_object_mut() else { return Ok(thing) };
    if members.remove("createdAt").is_none() {
        return Ok(thing);
    }
    members.remove("archived");
    if let Some(Value::Array(versions)) = members.get_mut("versions") {
        // A version that is not finalised would become CURRENT at once.
        versions.retain(|version| version.get("status").is_none_or(|status| status != "FINALISING"));
        for version in versions.iter_mut().filter_map(Value::as_object_mut) {
            version
                .retain(|name, _| ["version", "schemaType", "schema", "mimeType", "message"].contains(&name.as_str()));
        }
        if !versions.is_empty() {
            members.remove("dataSchema");
        }
    }
    Ok(thing)
}

/// `KEY=VALUE`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    match key {
        "" => Err("must be KEY=VALUE".to_owned()),
        key => Ok((key.to_owned(), value.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &'static str, expected: &[&str]) {
        let source = InputSource { name: "test".to_owned(), bytes: None, reader: Box::new(text.as_bytes()) };
        let found: Vec<_> = values(source).map(|value| value.unwrap().get().to_owned()).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn one_value_an_array_and_lines_are_all_taken_as_they_are_spelt() {
        check("{ \"a\" : 1.0 }", &["{ \"a\" : 1.0 }"]);
        check("[{\"a\":1}, {\"a\":2}]", &["{\"a\":1}", "{\"a\":2}"]);
        check("{\"a\":1}\n\n{\"a\":2}\n", &["{\"a\":1}", "{\"a\":2}"]);
        check("", &[]);
        check("[]", &[]);
    }

    #[test]
    fn a_printed_definition_can_be_handed_in_again() {
        let printed = r#"{"id":"a","createdAt":"2026","archived":true,"dataSchema":{},"versions":[
            {"version":"1.0","schemaType":"JSON_SCHEMA","schema":{},"status":"CURRENT","createdAt":"2026"},
            {"version":"1.1","schemaType":"JSON_SCHEMA","schema":{},"status":"FINALISING"}]}"#;
        let expected = r#"{"id":"a","versions":[{"schema":{},"schemaType":"JSON_SCHEMA","version":"1.0"}]}"#;
        assert_eq!(definition(printed).unwrap().to_string(), expected);
        assert_eq!(definition(r#"{"id":"a","archived":1}"#).unwrap().to_string(), r#"{"archived":1,"id":"a"}"#);
    }

    #[test]
    fn what_is_not_json_is_told_with_its_place() {
        let source = InputSource { name: "test".to_owned(), bytes: None, reader: Box::new(&b"{\"a\":1}\n{\"a\""[..]) };
        let found: Vec<_> = values(source).collect();
        let last = found.last().unwrap().as_ref().unwrap_err().to_string();
        assert!(found.len() == 2 && last.starts_with("test is not JSON: ") && last.contains("line 2"), "{last}");
    }
}
