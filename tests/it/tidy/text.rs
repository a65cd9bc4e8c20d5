//! Reading the repository as text: files, code without comments, paths, functions, links.
//!
//! This is not a parser: it is sufficient for code that rustfmt has formatted, and for plain Markdown.

use std::fs;
use std::path::Path;

/// A text file of the repository.
pub(super) struct TextFile {
    /// The path from the repository's root, with `/`.
    pub(super) path: String,
    pub(super) text: String,
}

impl TextFile {
    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub(super) fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }

    /// Whether the file is part of a library or a program, including its unit tests.
    pub(super) fn is_source(&self) -> bool {
        self.is_rust()
            && ["src/", "log/src/", "log-postgres/src/", "contract/src/", "client/src/"]
                .iter()
                .any(|folder| self.path.starts_with(folder))
    }

    pub(super) fn is_test(&self) -> bool {
        let mut parts = self.path.split('/');
        parts.any(|part| {
            matches!(part, "test" | "tests" | "testing" | "tests.rs" | "test.rs" | "testing.rs")
                || part.starts_with("test_")
                || part.trim_end_matches(".rs").ends_with("_tests")
        })
    }

    /// Whether the limits of length apply: to everything except tests and tools.
    pub(super) fn is_measured(&self) -> bool {
        let apart = |part| matches!(part, "tests" | "benches" | "bench" | "fuzz" | "sim");
        self.is_rust() && !self.path.split('/').any(apart)
    }

    /// The file's module path in the root package.
    fn module(&self) -> Option<Vec<&str>> {
        let path = self.path.strip_prefix("src/")?.strip_suffix(".rs")?;
        Some(path.strip_suffix("/mod").unwrap_or(path).split('/').collect())
    }

    /// The top-level module of `src` that the file belongs to.
    pub(super) fn top_module(&self) -> Option<&str> {
        self.module()?.first().copied()
    }

    /// `path` relative to the root package's root; empty if it is outside.
    pub(super) fn resolve<'a>(&'a self, path: &'a str) -> Vec<&'a str> {
        let mut inside = self.module().unwrap_or_default();
        let mut named = path.split("::").peekable();
        match named.peek() {
            Some(&"crate") => inside.clear(),
            Some(&"self" | &"super") => {}
            _ => return Vec::new(),
        }
        for part in named {
            match part {
                "crate" | "self" => {}
                "super" => drop(inside.pop()),
                name => inside.push(name),
            }
        }
        inside
    }

    /// Those of `lines` that are `wrong`, with their places.
    pub(super) fn places<'a>(
        &self,
        lines: impl Iterator<Item = (usize, &'a str)>,
        wrong: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let place = |(number, line): (usize, &str)| {
            let begin: String = line.trim().chars().take(100).collect();
            format!("{}:{number}: {begin}", self.path)
        };
        lines.filter(|(_, line)| wrong(line)).map(place).collect()
    }
}

/// Every text file but lock files, sorted by path.
pub(super) fn repository() -> Vec<TextFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = entry.file_name().into_string().unwrap();
            let kept_out = matches!(name.as_str(), ".git" | "target" | "Cargo.lock") || path == root.join("data");
            if kept_out {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                files.push(TextFile { path: path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(), text });
            }
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

/// A source file without the module of unit tests at its end.
pub(super) fn without_unit_tests(text: &str) -> &str {
    text.split_once("\n#[cfg(test)]\nmod tests {").map_or(text, |(source, _)| source)
}

/// Lines with their numbers, from 1.
pub(super) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

/// Lines of Rust without their comments.
pub(super) fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    numbered(text).map(|(number, line)| {
        let in_text = |at: usize| line[..at].matches('"').count() % 2 == 1;
        let end = line.match_indices("//").map(|(at, _)| at).find(|at| !in_text(*at));
        (number, &line[..end.unwrap_or(line.len())])
    })
}

/// Whether `line` contains `needle` without a letter, digit or `_` before it.
pub(super) fn has_word(line: &str, needle: &str) -> bool {
    line.match_indices(needle).any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Every path of two or more names with its line; paths in braces are returned in full (`a::{b, c}` is `a::b` and
/// `a::c`).
pub(super) fn paths(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    // What precedes each open brace: the beginning of a path, or nothing.
    let mut braces: Vec<String> = Vec::new();
    let mut path = String::new();
    let mut path_line = 0;
    for (line, token) in tokens(text) {
        let goes_on = path.ends_with("::");
        let is_name = token.starts_with(|c: char| c.is_alphanumeric() || c == '_') || (goes_on && token == "*");
        if token == "::" || (is_name && goes_on) {
            path.push_str(token);
            path_line = line;
            continue;
        }
        let prefix = braces.last().map_or("", String::as_str);
        let whole = format!("{prefix}{path}");
        let is_path = !path.is_empty() && whole.trim_matches(':').contains("::");
        match token {
            "{" if goes_on => braces.push(whole),
            _ if is_path => found.push((path_line, whole.trim_matches(':').to_owned())),
            _ => {}
        }
        match token {
            "{" if !goes_on => braces.push(String::new()),
            "}" => drop(braces.pop()),
            _ => {}
        }
        path.clear();
        if is_name {
            path.push_str(token);
        }
        path_line = line;
    }
    found
}

/// Names, `::` and single punctuation characters, without comments and spaces.
fn tokens(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in code(text) {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let mark = if rest.starts_with("::") { 2 } else { first.len_utf8() };
            let (token, behind) = rest.split_at(if name > 0 { name } else { mark });
            found.push((number, token));
            rest = behind.trim_start();
        }
    }
    found
}

/// The names that a manifest depends on, except for tests, with their lines.
pub(super) fn dependencies(manifest: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut within = false;
    for (number, line) in numbered(manifest) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            within = section.ends_with("dependencies") && !section.ends_with("dev-dependencies");
            found.extend(section.split_once("dependencies.").map(|(_, name)| (number, name)));
        } else if within && line.contains('=') {
            found.extend(line.split(['.', ' ', '=']).next().map(|name| (number, name)));
        }
    }
    found
}

/// Every function that is not inside another one: its line, its number of lines, its beginning.
pub(super) fn functions(text: &str) -> Vec<(usize, usize, &str)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, usize, &str)> = None;
    for (number, line) in numbered(text) {
        let head = line.trim_start();
        let indent = line.len() - head.len();
        if open.is_none() && begins_function(head) {
            open = Some((number, indent, head));
        }
        let Some((start, start_indent, name)) = open else { continue };
        let on_one_line = number == start && head.ends_with(['}', ';']);
        let without_body = head.starts_with(')') && head.ends_with(';');
        if indent == start_indent && (on_one_line || without_body || head.starts_with('}')) {
            found.push((start, number - start + 1, name));
            open = None;
        }
    }
    found
}

fn begins_function(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.find(|word| !matches!(*word, "const" | "async" | "unsafe") && !word.starts_with("pub")) == Some("fn")
}

/// The text between each `open` and the next `close`.
pub(super) fn between<'a>(text: &'a str, open: &'a str, close: &'a str) -> impl Iterator<Item = &'a str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (inside, behind) = rest.split_once(open)?.1.split_once(close)?;
        rest = behind;
        Some(inside)
    })
}

/// Lines of Markdown outside code blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    numbered(text).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

pub(super) fn headings(text: &str) -> impl Iterator<Item = &str> {
    prose(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| line.trim_start_matches('#').trim())
}

/// A heading in the form that follows `#` in a link.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// The targets of links, `[text](target)` and `[name]: target`, with their lines.
pub(super) fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(number, line)| {
        let inline = line.split('`').step_by(2).flat_map(|outside_code| between(outside_code, "](", ")"));
        let reference = line.strip_prefix('[').and_then(|line| line.split_once("]: ")).map(|(_, target)| target);
        let targets = inline.chain(reference).filter_map(|target| target.split_whitespace().next());
        targets.map(move |target| (number, target)).collect::<Vec<_>>()
    })
}

/// Whether a link's target is in the repository, and so is the heading that it names.
pub(super) fn resolves(files: &[TextFile], from: &TextFile, target: &str) -> bool {
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let mut parts: Vec<&str> = from.path.split('/').collect();
    if !path.is_empty() {
        parts.pop();
    }
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        match part {
            ".." if parts.pop().is_none() => return false,
            ".." => {}
            name => parts.push(name),
        }
    }
    let path = parts.join("/");
    match files.iter().find(|file| file.path == path) {
        Some(file) if file.is_markdown() && !heading.is_empty() => {
            headings(&file.text).any(|name| anchor(name) == heading)
        }
        Some(_) => true,
        None => !path.is_empty() && Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_seen_in_groups_and_in_code_but_not_in_comments() {
        let text = "use a::{b, c::{d, self}}; // use no::no\nfn f() { let x = e::f(g::<h::I>()); \"no\" }";
        let seen: Vec<_> = paths(text).into_iter().map(|(line, path)| format!("{line} {path}")).collect();
        assert_eq!(seen, ["1 a::b", "1 a::c::d", "1 a::c::self", "2 e::f", "2 h::I"]);
    }

    #[test]
    fn a_path_is_resolved_from_where_its_file_stands() {
        let file = TextFile { path: "src/ledger/table/run.rs".to_owned(), text: String::new() };
        assert_eq!(file.resolve("crate::clock::Clock"), ["clock", "Clock"]);
        assert_eq!(file.resolve("super::super::super::topics"), ["topics"]);
        assert_eq!(file.resolve("self::x"), ["ledger", "table", "run", "x"]);
        assert!(file.resolve("std::fs").is_empty());
    }

    #[test]
    fn a_function_is_measured_from_its_name_to_its_closing_brace() {
        let text = "trait T {\n    fn a();\n    fn b(\n        x: u8,\n    ) -> u8;\n    fn c() {}\n}\npub(crate) async fn d() {\n    1\n}\n";
        let measured: Vec<_> = functions(text).into_iter().map(|(line, lines, _)| (line, lines)).collect();
        assert_eq!(measured, [(2, 1), (3, 3), (6, 1), (8, 3)]);
    }

    #[test]
    fn links_and_headings_are_seen_outside_code_only() {
        let text = "# A: `b` c!\n[x](one.md) `[y](no.md)`\n```\n# no\n[z](no.md)\n```\n[r]: two.md\n";
        assert_eq!(links(text).collect::<Vec<_>>(), [(2, "one.md"), (7, "two.md")]);
        assert_eq!(headings(text).map(anchor).collect::<Vec<_>>(), ["a-b-c"]);
    }
}
