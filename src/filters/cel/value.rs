//! What an expression computes with.
//!
//! - What comes from the event or the expression is borrowed; what is made is counted, so a copy is cheap either way.
//! - Numbers compare by value, whatever their type. An instant compares with a text that is one in RFC 3339.

use super::json::{Json, Members};
use contract::Timestamp;
use std::cmp::Ordering;
use std::ops::Deref;
use std::rc::Rc;

/// A value of the language.
#[derive(Debug, Clone)]
pub(super) enum Value<'t> {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    Text(Text<'t>),
    Time(Timestamp),
    /// The name of a type.
    Type(&'static str),
    List(List<'t>),
    Map(Map<'t>),
}

/// A text, borrowed or made.
#[derive(Debug, Clone)]
pub(super) enum Text<'t> {
    Event(&'t str),
    Made(Rc<str>),
}

/// A list, borrowed or made.
#[derive(Debug, Clone)]
pub(super) enum List<'t> {
    Event(&'t [Json<'t>]),
    Made(Rc<[Value<'t>]>),
}

/// A map, borrowed (its keys are texts) or made.
#[derive(Debug, Clone)]
pub(super) enum Map<'t> {
    Event(&'t Members<'t>),
    Made(Rc<[(Value<'t>, Value<'t>)]>),
}

impl<'t> From<&'t Json<'t>> for Value<'t> {
    fn from(json: &'t Json<'t>) -> Self {
        match json {
            Json::Null => Value::Null,
            Json::Bool(bool) => Value::Bool(*bool),
            Json::Int(int) => Value::Int(*int),
            Json::UInt(uint) => Value::UInt(*uint),
            Json::Double(double) => Value::Double(*double),
            Json::Text(text) => Value::Text(Text::Event(text)),
            Json::List(items) => Value::List(List::Event(items)),
            Json::Map(members) => Value::Map(Map::Event(members)),
        }
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::Text(Text::Made(text.into()))
    }
}

impl Value<'_> {
    /// The name of its type.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::UInt(_) => "uint",
            Value::Double(_) => "double",
            Value::Text(_) => "string",
            Value::Time(_) => "timestamp",
            Value::Type(_) => "type",
            Value::List(_) => "list",
            Value::Map(_) => "map",
        }
    }

    /// Whether a map can be asked for it.
    pub(super) fn is_key(&self) -> bool {
        matches!(self, Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Double(_) | Value::Text(_))
    }

    /// The number as a double, where it is one.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Value::Int(int) => Some(*int as f64),
            Value::UInt(uint) => Some(*uint as f64),
            Value::Double(double) => Some(*double),
            _ => None,
        }
    }

    /// Which comes first; `None` where the two have no order.
    pub(super) fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
            (Value::UInt(a), Value::UInt(b)) => Some(a.cmp(b)),
            (Value::Int(a), Value::UInt(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Value::UInt(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Value::Text(a), Value::Text(b)) => Some((**a).cmp(&**b)),
            (Value::Time(a), Value::Time(b)) => Some(a.cmp(b)),
            (Value::Time(a), Value::Text(b)) => Some(a.cmp(&b.parse().ok()?)),
            (Value::Text(a), Value::Time(b)) => Some(a.parse::<Timestamp>().ok()?.cmp(b)),
            _ => self.number()?.partial_cmp(&other.number()?),
        }
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Event(text) => text,
            Text::Made(text) => text,
        }
    }
}

impl<'t> List<'t> {
    /// How many items.
    pub(super) fn len(&self) -> usize {
        match self {
            List::Event(items) => items.len(),
            List::Made(items) => items.len(),
        }
    }

    /// The item at `index`.
    pub(super) fn get(&self, index: usize) -> Option<Value<'t>> {
        match self {
            List::Event(items) => items.get(index).map(Value::from),
            List::Made(items) => items.get(index).cloned(),
        }
    }

    /// The items in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Value<'t>> + '_ {
        (0..self.len()).map_while(|index| self.get(index))
    }
}

impl<'t> Map<'t> {
    /// How many entries.
    pub(super) fn len(&self) -> usize {
        match self {
            Map::Event(members) => members.len(),
            Map::Made(entries) => entries.len(),
        }
    }

    /// The key and the value of the entry at `index`, in no particular order.
    pub(super) fn entry(&self, index: usize) -> Option<(Value<'t>, Value<'t>)> {
        match self {
            Map::Event(members) => members.get(index).map(|(name, json)| (Value::Text(Text::Event(name)), json.into())),
            Map::Made(entries) => entries.get(index).cloned(),
        }
    }

    /// The value under `key`.
    pub(super) fn get(&self, key: &Value<'_>) -> Option<Value<'t>> {
        match (self, key) {
            (Map::Event(_), Value::Text(name)) => self.member(name),
            (Map::Event(_), _) => None,
            (Map::Made(entries), _) => entries
                .iter()
                .find(|(own, _)| own.order(key).is_some_and(Ordering::is_eq))
                .map(|(_, value)| value.clone()),
        }
    }

    /// The value under a text.
    pub(super) fn member(&self, name: &str) -> Option<Value<'t>> {
        match self {
            Map::Event(members) => members.iter().find(|(own, _)| own == name).map(|(_, json)| json.into()),
            Map::Made(_) => self.get(&Value::Text(Text::Event(name))),
        }
    }
}
