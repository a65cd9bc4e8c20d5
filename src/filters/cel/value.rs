//! The values of expressions.
//!
//! - Values from the event or the expression are borrowed; created ones are reference-counted, so a copy is cheap
//!   either way.
//! - Numbers compare by value, whatever their type. An instant compares with an RFC 3339 text.

use super::json::{JsonMembers, JsonValue};
use contract::Timestamp;
use std::cmp::Ordering;
use std::ops::Deref;
use std::rc::Rc;

/// A value of the language.
#[derive(Debug, Clone)]
pub(super) enum CelValue<'t> {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    Text(CelText<'t>),
    Time(Timestamp),
    /// The name of a type.
    Type(&'static str),
    List(CelList<'t>),
    Map(CelMap<'t>),
}

/// A text, borrowed or created.
#[derive(Debug, Clone)]
pub(super) enum CelText<'t> {
    Event(&'t str),
    Made(Rc<str>),
}

/// A list, borrowed or created.
#[derive(Debug, Clone)]
pub(super) enum CelList<'t> {
    Event(&'t [JsonValue<'t>]),
    Made(Rc<[CelValue<'t>]>),
}

/// A map, borrowed (with texts as keys) or created.
#[derive(Debug, Clone)]
pub(super) enum CelMap<'t> {
    Event(&'t JsonMembers<'t>),
    Made(Rc<[(CelValue<'t>, CelValue<'t>)]>),
}

impl<'t> From<&'t JsonValue<'t>> for CelValue<'t> {
    fn from(json: &'t JsonValue<'t>) -> Self {
        match json {
            JsonValue::Null => CelValue::Null,
            JsonValue::Bool(bool) => CelValue::Bool(*bool),
            JsonValue::Int(int) => CelValue::Int(*int),
            JsonValue::UInt(uint) => CelValue::UInt(*uint),
            JsonValue::Double(double) => CelValue::Double(*double),
            JsonValue::Text(text) => CelValue::Text(CelText::Event(text)),
            JsonValue::List(items) => CelValue::List(CelList::Event(items)),
            JsonValue::Map(members) => CelValue::Map(CelMap::Event(members)),
        }
    }
}

impl From<String> for CelValue<'_> {
    fn from(text: String) -> Self {
        CelValue::Text(CelText::Made(text.into()))
    }
}

impl CelValue<'_> {
    /// The name of its type.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            CelValue::Null => "null_type",
            CelValue::Bool(_) => "bool",
            CelValue::Int(_) => "int",
            CelValue::UInt(_) => "uint",
            CelValue::Double(_) => "double",
            CelValue::Text(_) => "string",
            CelValue::Time(_) => "timestamp",
            CelValue::Type(_) => "type",
            CelValue::List(_) => "list",
            CelValue::Map(_) => "map",
        }
    }

    /// Whether it can be a key of a map.
    pub(super) fn is_key(&self) -> bool {
        matches!(
            self,
            CelValue::Bool(_) | CelValue::Int(_) | CelValue::UInt(_) | CelValue::Double(_) | CelValue::Text(_)
        )
    }

    /// The number as a double, if it is a number.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            CelValue::Int(int) => Some(*int as f64),
            CelValue::UInt(uint) => Some(*uint as f64),
            CelValue::Double(double) => Some(*double),
            _ => None,
        }
    }

    /// The order of two values; `None` if they have none.
    pub(super) fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (CelValue::Bool(a), CelValue::Bool(b)) => Some(a.cmp(b)),
            (CelValue::Int(a), CelValue::Int(b)) => Some(a.cmp(b)),
            (CelValue::UInt(a), CelValue::UInt(b)) => Some(a.cmp(b)),
            (CelValue::Int(a), CelValue::UInt(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (CelValue::UInt(a), CelValue::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (CelValue::Text(a), CelValue::Text(b)) => Some((**a).cmp(&**b)),
            (CelValue::Time(a), CelValue::Time(b)) => Some(a.cmp(b)),
            (CelValue::Time(a), CelValue::Text(b)) => Some(a.cmp(&b.parse().ok()?)),
            (CelValue::Text(a), CelValue::Time(b)) => Some(a.parse::<Timestamp>().ok()?.cmp(b)),
            _ => self.number()?.partial_cmp(&other.number()?),
        }
    }
}

impl Deref for CelText<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            CelText::Event(text) => text,
            CelText::Made(text) => text,
        }
    }
}

impl<'t> CelList<'t> {
    /// The number of items.
    pub(super) fn len(&self) -> usize {
        match self {
            CelList::Event(items) => items.len(),
            CelList::Made(items) => items.len(),
        }
    }

    /// The item at `index`.
    pub(super) fn get(&self, index: usize) -> Option<CelValue<'t>> {
        match self {
            CelList::Event(items) => items.get(index).map(CelValue::from),
            CelList::Made(items) => items.get(index).cloned(),
        }
    }

    /// The items in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = CelValue<'t>> + '_ {
        (0..self.len()).map_while(|index| self.get(index))
    }
}

impl<'t> CelMap<'t> {
    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        match self {
            CelMap::Event(members) => members.len(),
            CelMap::Made(entries) => entries.len(),
        }
    }

    /// The key and the value of the entry at `index`, in no particular order.
    pub(super) fn entry(&self, index: usize) -> Option<(CelValue<'t>, CelValue<'t>)> {
        match self {
            CelMap::Event(members) => {
                members.get(index).map(|(name, json)| (CelValue::Text(CelText::Event(name)), json.into()))
            }
            CelMap::Made(entries) => entries.get(index).cloned(),
        }
    }

    /// The value under `key`.
    pub(super) fn get(&self, key: &CelValue<'_>) -> Option<CelValue<'t>> {
        match (self, key) {
            (CelMap::Event(_), CelValue::Text(name)) => self.member(name),
            (CelMap::Event(_), _) => None,
            (CelMap::Made(entries), _) => entries
                .iter()
                .find(|(own, _)| own.order(key).is_some_and(Ordering::is_eq))
                .map(|(_, value)| value.clone()),
        }
    }

    /// The value under a text.
    pub(super) fn member(&self, name: &str) -> Option<CelValue<'t>> {
        match self {
            CelMap::Event(members) => members.iter().find(|(own, _)| own == name).map(|(_, json)| json.into()),
            CelMap::Made(_) => self.get(&CelValue::Text(CelText::Event(name))),
        }
    }
}
