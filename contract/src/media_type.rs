//! Media types, by the grammar of RFC 9110 8.3.1.

/// A media type taken apart: `type/subtype`, then parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaType {
    essence: String,
    charset: Option<String>,
}

impl MediaType {
    /// Parses a media type; `None` if the text is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (essence, mut rest) = text.split_once(';').map_or((text, ""), |(essence, rest)| (essence, rest));
        let essence = essence.trim_matches(BLANKS);
        let (main, sub) = essence.split_once('/')?;
        if !is_token(main) || !is_token(sub) {
            return None;
        }
        let mut charset = None;
        while !rest.trim_matches(BLANKS).is_empty() {
            let (name, value, behind) = parameter(rest)?;
            if name.eq_ignore_ascii_case("charset") && charset.is_none() {
                charset = Some(value.to_ascii_lowercase());
            }
            rest = behind;
        }
        Some(Self { essence: essence.to_ascii_lowercase(), charset })
    }

    /// `type/subtype` in lower case.
    #[must_use]
    pub fn essence(&self) -> &str {
        &self.essence
    }

    /// Whether it is JSON: the subtype is `json`, or has the suffix `+json` (RFC 6839).
    #[must_use]
    pub fn is_json(&self) -> bool {
        let subtype = self.essence.split_once('/').map_or("", |(_, subtype)| subtype);
        subtype == "json" || subtype.strip_suffix("+json").is_some_and(|name| !name.is_empty())
    }

    /// Whether its text can be read as UTF-8.
    #[must_use]
    pub fn is_utf8(&self) -> bool {
        matches!(self.charset.as_deref(), None | Some("utf-8" | "us-ascii"))
    }
}

const BLANKS: [char; 2] = [' ', '\t'];

/// The first parameter of what follows a semicolon: its name, its value, and what is after it.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let text = text.trim_start_matches(BLANKS);
    let (name, rest) = text.split_once('=')?;
    if !is_token(name) {
        return None;
    }
    let (value, rest) = match rest.strip_prefix('"') {
        Some(quoted) => unquoted(quoted)?,
        None => {
            let end = rest.find(';').unwrap_or(rest.len());
            let (value, rest) = rest.split_at(end);
            let value = value.trim_end_matches(BLANKS);
            (is_token(value).then(|| value.to_owned())?, rest)
        }
    };
    let rest = rest.trim_start_matches(BLANKS);
    match rest.strip_prefix(';') {
        Some(behind) => Some((name, value, behind)),
        None => rest.is_empty().then_some((name, value, "")),
    }
}

/// A quoted string after its first quote (RFC 9110 5.6.4): its value, and what is after it.
pub(crate) fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, text.get(at + 1..).unwrap_or_default())),
            '\\' => value.push(characters.next().map(|(_, escaped)| escaped).filter(|c| is_text(*c))?),
            character if is_text(character) => value.push(character),
            _ => return None,
        }
    }
    None
}

/// The value of a header that is one quoted string; `None` if it is not one.
#[must_use]
pub fn unquote(value: &str) -> Option<String> {
    let (value, rest) = unquoted(value.strip_prefix('"')?)?;
    rest.is_empty().then_some(value)
}

/// ASCII only: such a text is sent in headers again.
fn is_text(character: char) -> bool {
    character == '\t' || matches!(character, ' '..='~')
}

fn is_token(text: &str) -> bool {
    let is_special = |byte| b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || is_special(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_told_by_the_subtype() {
        for text in [
            "application/json",
            "Application/JSON",
            "text/json",
            "application/vnd.acme+json",
            "a/b+json ; charset=UTF-8",
        ] {
            assert!(MediaType::parse(text).unwrap().is_json(), "{text}");
        }
        for text in ["text/x-json-but-not", "application/+json", "application/xml", "application/json5"] {
            assert!(!MediaType::parse(text).unwrap().is_json(), "{text}");
        }
    }

    #[test]
    fn what_is_no_media_type_is_none() {
        for text in [
            "",
            "json",
            "notjson",
            "a/",
            "/b",
            "a/b/c",
            "a b/json",
            "a/json; charset",
            "a/json; =x",
            "a/json; c=\"x",
            "a/json; c=\"x\"y",
            "a/json; c=a b",
            "é/json",
            "a/json; c=\"é\"",
            "a/json;c=\r\n",
        ] {
            assert_eq!(MediaType::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn parameters_are_read_as_the_grammar_has_them() {
        for (text, is_utf8) in [
            ("a/json", true),
            ("a/json;", true),
            ("a/json; charset=utf-8", true),
            ("a/json;Charset=\"UTF-8\"", true),
            ("a/json; charset=us-ascii", true),
            ("a/json; x=\"a; charset=b\"; charset=iso-8859-1", false),
            ("a/json; charset=\"utf\\-16\"", false),
        ] {
            assert_eq!(MediaType::parse(text).unwrap().is_utf8(), is_utf8, "{text}");
        }
    }

    #[test]
    fn a_quoted_string_is_unescaped_only_as_a_whole() {
        for (text, value) in [
            (r#""a \"b\"""#, Some(r#"a "b""#)),
            (r#""""#, Some("")),
            (r#""a\\b""#, Some(r"a\b")),
            (r#""a" "b""#, None),
            (r#""a"#, None),
            (r#""a\""#, None),
            ("a", None),
        ] {
            assert_eq!(unquote(text).as_deref(), value, "{text}");
        }
    }
}
