//! What the strict parser takes and refuses, and that equal JSON has equal digests.

use super::*;
use proptest::prelude::*;

const DEPTH: usize = 64;

fn refused(text: &str) -> (Kind, String, String) {
    let error = parse_strict(text, DEPTH).expect_err(text);
    let pointer = error.violations().first().map(|violation| violation.pointer.clone()).unwrap_or_default();
    (error.kind(), pointer, error.detail().to_owned())
}

fn digest(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    digest_form(&parse_strict(text, DEPTH).unwrap_or_else(|error| panic!("{text}: {error}")), &mut out);
    out
}

#[test]
fn what_is_json_is_read_as_serde_json_reads_it() {
    for text in [
        "null",
        " [true, false, null, 0, -1, 18446744073709551615, 1.5, -0.0, 1e300] ",
        r#"{"a": {"b": [{"c": "\ud83d\ude00 ü \n"}]}, "": {}, "d": []}"#,
    ] {
        assert_eq!(parse_strict(text, DEPTH).unwrap(), serde_json::from_str::<Value>(text).unwrap(), "{text}");
    }
}

#[test]
fn what_breaks_a_rule_is_told_by_its_place() {
    for (text, pointer, detail) in [
        (r#"{"a": 1, "a": 1}"#, "/a", "A member name stands twice in one object."),
        (r#"{"a": 1, "\u0061": 2}"#, "/a", "A member name stands twice in one object."),
        (r#"[0, {"x": {"": 1, "": 2}}]"#, "/1/x/", "A member name stands twice in one object."),
        (r#"{"a/b~c": [{"k": 1, "k": 2}]}"#, "/a~1b~0c/0/k", "A member name stands twice in one object."),
        (r#""\u0000""#, "", "Text must not contain NUL."),
        (r#"{"a": ["ok", "no\u0000pe"]}"#, "/a/1", "Text must not contain NUL."),
        (r#"{"a": {"b\u0000": 1}}"#, "/a", "Text must not contain NUL."),
        ("1e400", "", NUMBER_TOO_LARGE),
        ("[0, -1e400]", "/1", NUMBER_TOO_LARGE),
        (r#"{"a": 1e308, "b/c": [{"d": 1e309}]}"#, "/b~1c/0/d", NUMBER_TOO_LARGE),
    ] {
        assert_eq!(refused(text), (Kind::Validation, pointer.to_owned(), detail.to_owned()), "{text}");
    }
}

#[test]
fn what_is_not_json_is_told_by_line_and_column_and_not_quoted() {
    for (text, place) in [
        ("", "line 1 column 0"),
        ("\u{feff}null", "line 1 column 1"),
        ("secret", "line 1 column 1"),
        ("{\"a\": 1,\n secret}", "line 2 column 2"),
        ("[1, 2", "line 1 column 5"),
        ("[1] secret", "line 1 column 5"),
        ("{\"a\": 1,}", "line 1 column 9"),
        ("01", "line 1 column 2"),
        ("NaN", "line 1 column 1"),
        (r#""secret \ud800""#, "line 1 column 15"),
        (r#""secret \udc00 ""#, "line 1 column 14"),
        ("\"secret\u{0}\"", "line 1 column 8"),
        (r#"{"a\ud800": 1}"#, "line 1 column 10"),
        ("'secret'", "line 1 column 1"),
    ] {
        let (kind, _, detail) = refused(text);
        assert_eq!(kind, Kind::Malformed, "{text}");
        assert!(detail.contains(place) && !detail.contains("secret"), "{text}: {detail}");
    }
}

#[test]
fn nesting_stops_at_the_limit() {
    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    for (levels, depth_max, taken) in
        [(1, 1, true), (2, 1, false), (64, 64, true), (65, 64, false), (127, usize::MAX, true), (128, 500, false)]
    {
        assert_eq!(parse_strict(&nested(levels), depth_max).is_ok(), taken, "{levels} of {depth_max}");
    }
    assert!(parse_strict("7", 0).is_ok() && parse_strict("{}", 0).is_err());
    let (kind, pointer, detail) = refused(&r#"{"a":[0,"#.repeat(100_000));
    assert_eq!((kind, pointer, detail.as_str()), (Kind::Validation, "/a/1".repeat(32), "Nested too deeply."));
}

#[test]
fn a_pointer_too_long_stops_at_the_last_whole_step() {
    let name = "n".repeat(200);
    let (_, pointer, _) = refused(&format!(r#"{{"{name}": {{"{name}": {{"a": "\u0000"}}}}}}"#));
    assert_eq!(pointer, format!("/{name}"));
}

#[test]
fn a_strict_value_can_be_part_of_another_document() {
    let read = |text: &str| StrictJson::new(2).deserialize(&mut serde_json::Deserializer::from_str(text));
    assert_eq!(read(r#"{"a": [1]}"#).unwrap(), serde_json::json!({"a": [1]}));
    let error = read(r#"{"a": [[]]}"#).unwrap_err().to_string();
    assert!(error.starts_with(r#"Nested too deeply. Place: "/a/0""#), "{error}");
}

#[test]
fn equal_as_json_is_one_digest_form() {
    for (one, other) in [
        ("1", "1.0"),
        ("1", "1e0"),
        ("100", "1E+2"),
        ("0", "-0"),
        ("0", "-0.0"),
        ("1.5", "15e-1"),
        ("10000000000000000000", "1e19"),
        ("-9223372036854775808", "-9223372036854775808.0"),
        ("1e300", "10e299"),
        (r#"{"a":1,"b":2}"#, r#" { "b" : 2 , "a" : 1 } "#),
        (r#""a""#, r#""\u0061""#),
    ] {
        assert_eq!(digest(one), digest(other), "{one} {other}");
    }
}

#[test]
fn unequal_as_json_is_another_digest_form() {
    let all = [
        "null",
        "false",
        "true",
        "0",
        "1",
        "-1",
        "1.5",
        "-1.5",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775808",
        "9223372036854775808",
        "1e300",
        "-1e300",
        "4607182418800017408",
        "5e-324",
        r#""""#,
        r#""0""#,
        r#""1""#,
        r#""null""#,
        "[]",
        "{}",
        "[[]]",
        "[[],[]]",
        "[[[]]]",
        "[{}]",
        "[1,2]",
        "[2,1]",
        "[12]",
        r#"["a","b"]"#,
        r#"["ab"]"#,
        r#"["ab",""]"#,
        r#"["a]"]"#,
        r#"{"a":"b"}"#,
        r#"{"b":"a"}"#,
        r#"{"a":"b","c":"d"}"#,
        r#"{"a":{"b":1}}"#,
        r#"{"a":{},"b":1}"#,
        r#"{"a":null}"#,
        r#"{"a":[]}"#,
    ];
    let forms: std::collections::HashSet<_> = all.iter().map(|text| digest(text)).collect();
    assert_eq!(forms.len(), all.len());
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i16>().prop_map(|number| Value::from(f64::from(number) / 4.0)),
        "[\\x01-\\x7fäß😀]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[a-c\"/~]{0,3}", inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Prints a value in another way than `serde_json` would: blanks, members backwards, escapes, points.
fn print(value: &Value, out: &mut String) {
    match value {
        Value::Number(number) if number.as_i64().is_some_and(|number| number.abs() < 1 << 50) => {
            out.push_str(&format!("{number}0.0e-1"));
        }
        Value::String(text) => {
            let units: Vec<_> = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
            out.push_str(&format!("\"{}\"", units.concat()));
        }
        Value::Array(items) => {
            out.push_str("[ ");
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "\n,\t" });
                print(item, out);
            }
            out.push_str(" ]");
        }
        Value::Object(members) => {
            out.push_str("{\r\n");
            for (at, (name, value)) in members.iter().rev().enumerate() {
                out.push_str(if at == 0 { "" } else { " , " });
                print(&Value::from(name.as_str()), out);
                out.push_str(" : ");
                print(value, out);
            }
            out.push_str(" }");
        }
        _ => out.push_str(&value.to_string()),
    }
}

/// Every value that differs in exactly one leaf.
fn changed(value: &Value) -> Vec<Value> {
    match value {
        Value::Null => vec![false.into(), 0.into(), "".into()],
        Value::Bool(bit) => vec![(!bit).into(), Value::Null],
        Value::Number(number) => vec![number.to_string().into(), changed_number(number)],
        Value::String(text) => vec![format!("{text} ").into(), Value::from(vec![text.as_str()])],
        Value::Array(items) => (0..items.len())
            .flat_map(|at| changed(&items[at]).into_iter().map(move |item| (at, item)))
            .map(|(at, item)| {
                let mut items = items.clone();
                items[at] = item;
                items.into()
            })
            .chain([[items.clone(), vec![Value::Null]].concat().into()])
            .collect(),
        Value::Object(members) => members
            .iter()
            .flat_map(|(name, value)| changed(value).into_iter().map(move |value| (name.clone(), value)))
            .chain([("new".to_owned(), Value::Null)])
            .map(|(name, value)| {
                let mut members = members.clone();
                members.insert(name, value);
                members.into()
            })
            .collect(),
    }
}

fn changed_number(number: &Number) -> Value {
    match (number.as_i64(), number.as_u64()) {
        (Some(number), _) => number.wrapping_add(1).into(),
        (None, Some(number)) => number.wrapping_sub(1).into(),
        (None, None) => (number.as_f64().unwrap() + 0.125).into(),
    }
}

proptest! {
    #[test]
    fn however_it_is_printed_the_digest_form_stays(value in json()) {
        let mut printed = String::new();
        print(&value, &mut printed);
        prop_assert_eq!(digest(&value.to_string()), digest(&printed), "{}", printed);
    }

    #[test]
    fn whichever_leaf_is_changed_the_digest_form_changes(value in json()) {
        let form = digest(&value.to_string());
        for other in changed(&value) {
            prop_assert_ne!(&form, &digest(&other.to_string()), "{} {}", value, other);
        }
    }

    #[test]
    fn what_is_taken_is_what_serde_json_takes(text in "[\\[\\]{}:,\"a0-9.e\\\\u \\-]{0,24}") {
        if let Ok(value) = parse_strict(&text, DEPTH) {
            prop_assert_eq!(value, serde_json::from_str::<Value>(&text).unwrap());
        }
    }
}
