//! The constants of the source, by path, and their values: the part of Rust's syntax that limits are written in.

use super::text::TextFile;
use std::collections::BTreeMap;

/// The file of the shared limits; on the page they have no path.
const LIMITS: &str = "contract/src/limits.rs";

/// A constant as it is written.
pub(super) struct Constant<'a> {
    pub(super) kind: &'a str,
    expression: &'a str,
    module: String,
}

pub(super) struct Constants<'a>(pub(super) BTreeMap<String, Constant<'a>>);

/// The value of a constant, and the unit in its expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) number: u64,
    pub(super) unit: Option<&'static str>,
}

impl<'a> Constants<'a> {
    /// Constants of all sources except tests.
    pub(super) fn of(files: &'a [TextFile]) -> Self {
        let mut found = BTreeMap::new();
        for file in files.iter().filter(|file| file.is_source() && !file.is_test()) {
            let module = module(&file.path);
            let text = file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            for (at, _) in text.match_indices("const ") {
                let Some((head, rest)) = text[at + "const ".len()..].split_once(" =") else { continue };
                let Some((name, kind)) = head.split_once(": ") else { continue };
                let is_name = name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
                if !is_name || text[..at].rsplit('\n').next().is_some_and(|before| before.contains("//")) {
                    continue;
                }
                let path = if file.path == LIMITS { name.to_owned() } else { format!("{module}::{name}") };
                let expression = rest.split_once(';').map_or(rest, |(expression, _)| expression).trim();
                found.insert(path, Constant { kind, expression, module: module.clone() });
            }
        }
        Self(found)
    }

    /// The value of the constant at this path; `None` if it is not a number, or cannot be computed.
    pub(super) fn amount(&self, path: &str) -> Option<Amount> {
        let constant = self.0.get(path)?;
        let mut expression = constant.expression;
        // The limit of a body: the last alternative is the usual one.
        if constant.kind == "BodyLimitFn" {
            expression = expression.rsplit_once("bytes: ")?.1.split_once(", too_large")?.0;
            return Some(Amount { number: self.sum(expression, constant)?, unit: Some("bytes") });
        }
        for (function, unit) in [("from_secs", "seconds"), ("from_millis", "milliseconds")] {
            if let Some(inner) = expression.strip_prefix("Duration::").and_then(|it| it.strip_prefix(function)) {
                let number = self.sum(inner.strip_prefix('(')?.strip_suffix(')')?, constant)?;
                return Some(Amount { number, unit: Some(unit) });
            }
        }
        // A range: its last value.
        let last = expression.split_once("..=").map_or(expression, |(_, last)| last);
        Some(Amount { number: self.sum(last, constant)?, unit: None })
    }

    fn sum(&self, expression: &str, within: &Constant<'_>) -> Option<u64> {
        expression.split(" + ").map(|part| self.product(part, within)).sum()
    }

    fn product(&self, expression: &str, within: &Constant<'_>) -> Option<u64> {
        if let Some((number, by)) = expression.split_once(" << ") {
            return Some(self.value(number, within)? << self.value(by, within)?);
        }
        if let Some((number, by)) = expression.split_once(" / ") {
            return Some(self.product(number, within)? / self.value(by, within)?);
        }
        expression.split(" * ").map(|part| self.value(part, within)).product()
    }

    fn value(&self, word: &str, within: &Constant<'_>) -> Option<u64> {
        let word = word.trim();
        if word == "i64::MAX as u64" {
            return Some(i64::MAX.unsigned_abs());
        }
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return word.replace('_', "").parse().ok();
        }
        let name = word.rsplit("::").next()?;
        let is_limit = word.contains("limits::") || !self.0.contains_key(&format!("{}::{name}", within.module));
        let path = if is_limit { name.to_owned() } else { format!("{}::{name}", within.module) };
        Some(self.amount(&path)?.number)
    }
}

/// The path of a file's module: for the broker from its crate's root, for other crates with the crate's name.
fn module(path: &str) -> String {
    let inside = path.trim_end_matches(".rs").trim_end_matches("/mod").trim_end_matches("/lib");
    let (of_crate, inside) = match inside.split_once("src/") {
        Some(("", inside)) => ("", inside),
        Some((of_crate, inside)) => (of_crate, inside),
        None => (inside.trim_end_matches("/src"), ""),
    };
    let of_crate = of_crate.trim_end_matches('/').replace('-', "_");
    let parts = [of_crate, inside.replace('/', "::")];
    parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join("::")
}

#[test]
fn amounts_are_what_the_compiler_makes_of_them() {
    let text = "//! .\nconst A_MAX: usize = 2 * KIB + 1;\nconst KIB: usize = 1024;\n/// const NOT: u8 = 1;\n\
        const B: Duration = Duration::from_secs(2 * 30);\npub const C: u64 = 8 << 20;\nconst D: u64 = i64::MAX as u64;\n\
        const E: BodyLimitFn = |_, _| BodyLimit { bytes: 2 * limits::F_MAX, too_large: Kind::X };\nconst G: u64 = other();\n";
    let limits = "//! .\n/// F.\npub const F_MAX: usize = 10_000 / 2;\n";
    let files = [("src/rest/mod.rs", text), (LIMITS, limits)];
    let files = files.map(|(path, text)| TextFile { path: path.to_owned(), text: text.to_owned() });
    let constants = Constants::of(&files);
    let amount = |path: &str| constants.amount(path).map(|amount| (amount.number, amount.unit));
    for (path, expected) in [
        ("rest::A_MAX", Some((2049, None))),
        ("rest::NOT", None),
        ("rest::B", Some((60, Some("seconds")))),
        ("rest::C", Some((8 * 1024 * 1024, None))),
        ("rest::D", Some((i64::MAX.unsigned_abs(), None))),
        ("rest::E", Some((10_000, Some("bytes")))),
        ("rest::G", None),
        ("F_MAX", Some((5000, None))),
    ] {
        assert_eq!(amount(path), expected, "{path}");
    }
    assert_eq!(module("log-postgres/src/read.rs"), "log_postgres::read");
    assert_eq!(module("log/src/file/mod.rs"), "log::file");
}
