//! A YAML document as a tree in which every node has its line.
//!
//! - `yes`, `on` and similar words are text: only `true` and `false` are booleans.
//! - Nesting, size and the expansion of aliases are bounded; a duplicate name is refused.

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Number;
use serde_saphyr::{Error, Location, Options, Spanned};
use std::fmt;

/// Deepest nesting: the deepest schema that the broker accepts, and the keys above it.
const DEPTH_MAX: usize = contract::limits::DATA_DEPTH_MAX + 8;
/// The parser recurses, and a level takes about 40 KiB of stack in a debug build; the caller's stack may be smaller.
const STACK_BYTES: usize = 16 * 1024 * 1024;
/// Most parser events that aliases may expand to.
const ALIAS_EVENTS_MAX: usize = 100_000;

/// A value and its line.
#[derive(Debug, Clone)]
pub(super) struct YamlNode {
    /// The line where it is used, from 1.
    pub(super) line: u64,
    pub(super) value: YamlValue,
}

/// A YAML value.
#[derive(Debug, Clone)]
pub(super) enum YamlValue {
    Nothing,
    Flag(bool),
    Number(Number),
    Text(String),
    List(Vec<YamlNode>),
    Map(Vec<YamlMember>),
}

/// A member of a map.
#[derive(Debug, Clone)]
pub(super) struct YamlMember {
    /// The line of its name.
    pub(super) line: u64,
    pub(super) name: String,
    pub(super) node: YamlNode,
}

/// Why a text is not a document, with the line if it is known.
#[derive(Debug)]
pub(super) struct YamlError {
    pub(super) line: Option<u64>,
    pub(super) reason: String,
}

/// Parses one document, on a separate stack.
pub(super) fn parse(text: &str) -> Result<YamlNode, YamlError> {
    let failed = |reason: String| YamlError { line: None, reason };
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || read(text));
        let reader = reader.map_err(|error| failed(error.to_string()))?;
        reader.join().unwrap_or_else(|_| Err(failed("the parser failed".to_owned())))
    })
}

fn read(text: &str) -> Result<YamlNode, YamlError> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        let line = error.location().filter(|place| *place != Location::UNKNOWN).map(|place| place.line());
        let reason = match error.without_snippet() {
            Error::DuplicateMappingKey { key: Some(key), .. } => format!("`{key}` is there a second time"),
            Error::MultipleDocuments { .. } => "a second document begins here; a configuration is one".to_owned(),
            other => one_line(&other.to_string()),
        };
        YamlError { line, reason }
    })
}

impl YamlNode {
    /// A text that does not come from a document.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self { line: 0, value: YamlValue::Text(text.into()) }
    }

    /// The member with this name, if this is a map that has one.
    pub(super) fn member(&self, name: &str) -> Option<&YamlMember> {
        match &self.value {
            YamlValue::Map(members) => members.iter().find(|member| member.name == name),
            _ => None,
        }
    }

    /// The line of the deepest existing node on this path, if there is one.
    pub(super) fn line_at<'a>(&self, mut way: impl Iterator<Item = &'a str>) -> Option<u64> {
        let step = way.next()?;
        let (line, node) = match &self.value {
            YamlValue::Map(_) => self.member(step).map(|member| (member.line, &member.node))?,
            YamlValue::List(items) => items.get(step.parse::<usize>().ok()?).map(|item| (item.line, item))?,
            _ => return None,
        };
        Some(node.line_at(way).unwrap_or(line))
    }

    /// The same value as JSON.
    pub(super) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            YamlValue::Nothing => serde_json::Value::Null,
            YamlValue::Flag(flag) => (*flag).into(),
            YamlValue::Number(number) => number.clone().into(),
            YamlValue::Text(text) => text.clone().into(),
            YamlValue::List(items) => items.iter().map(Self::to_json).collect(),
            YamlValue::Map(members) => members.iter().map(|it| (it.name.clone(), it.node.to_json())).collect(),
        }
    }
}

impl YamlValue {
    /// Its type, for messages.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Flag(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
        budget: serde_saphyr::budget! { max_depth: DEPTH_MAX },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: ALIAS_EVENTS_MAX },
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<YamlValue>::deserialize(deserializer)?;
        Ok(Self { line: spanned.referenced.line(), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlVisitor)
    }
}

struct YamlVisitor;

impl<'de> Visitor<'de> for YamlVisitor {
    type Value = YamlValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Nothing)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<YamlValue, E> {
        Ok(YamlValue::Flag(flag))
    }

    fn visit_u64<E>(self, number: u64) -> Result<YamlValue, E> {
        Ok(YamlValue::Number(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<YamlValue, E> {
        Ok(YamlValue::Number(number.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<YamlValue, E> {
        Number::from_f64(number).map(YamlValue::Number).ok_or_else(|| E::custom("the number is not finite"))
    }

    fn visit_str<E>(self, text: &str) -> Result<YamlValue, E> {
        Ok(YamlValue::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<YamlValue, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(YamlValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<YamlValue, A::Error> {
        let mut map: Vec<YamlMember> = Vec::new();
        while let Some((name, node)) = members.next_entry::<Spanned<String>, YamlNode>()? {
            map.push(YamlMember { line: name.referenced.line(), name: name.value, node });
        }
        Ok(YamlValue::Map(map))
    }
}
