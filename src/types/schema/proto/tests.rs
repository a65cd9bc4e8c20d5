//! Proto files, by what they report about events; those that are refused; and what a minor version may change.

use super::*;
use contract::{NewVersion, SchemaType, SchemaVersion};
use serde_json::json;
use std::time::{Duration, Instant};

const ORDER: &str = r#"
    syntax = "proto3";
    package shop;
    import "google/protobuf/timestamp.proto";
    enum Status { UNKNOWN = 0; PAID = 1; }
    message Line { string sku = 1; uint32 count = 2; }
    message Order {
        string order_id = 1; double total = 2; repeated Line lines = 3; Status status = 4;
        google.protobuf.Timestamp paid_at = 5; map<string, int64> points = 6; bytes proof = 7;
        oneof way { string card = 8; string cash = 9; }
        bool gift = 10; optional sint32 change = 11;
    }
"#;

/// Rows of `data`, and the lines of `pointer detail` that are reported.
#[track_caller]
fn check(file: &str, rows: &[(Value, &str)]) {
    let schema = ProtoSchema::compile("", file, None).unwrap();
    for (data, expected) in rows {
        let reported = schema.check(data).err().unwrap_or_default();
        let reported: Vec<_> = reported.into_iter().map(|it| format!("{} {}", it.pointer, it.detail)).collect();
        let expected: Vec<_> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(reported, expected, "{data}");
    }
}

#[test]
fn every_failure_of_a_message_has_a_pointer_and_a_text() {
    check(
        ORDER,
        &[
            (json!({}), ""),
            (json!({"orderId": "a", "total": 1.5, "lines": [{"sku": "x", "count": 2}], "status": "PAID"}), ""),
            (json!({"order_id": "a", "status": 1, "points": {"a": "5"}, "proof": "aGk=", "card": "1"}), ""),
            (json!({"paidAt": "2026-01-01T00:00:00Z", "total": "NaN", "gift": null}), ""),
            (json!({"secret": 5}), "/data/secret is not a member the schema knows"),
            (json!({"orderId": 5}), "/data/orderId must be a text"),
            (json!({"total": "secret"}), "/data/total must be a number within the range of its type"),
            (json!({"lines": {}}), "/data/lines must be a list"),
            (
                json!({"lines": [{"count": 1}, {"count": -1}, 5, {"secret": 1}]}),
                "/data/lines/1/count must be a whole number of 32 bits, not negative
                 /data/lines/2 must be an object
                 /data/lines/3/secret is not a member the schema knows",
            ),
            (json!({"status": "secret"}), "/data/status must be one of the values of its enum"),
            (json!({"paidAt": "secret"}), "/data/paidAt must be a google.protobuf.Timestamp in its JSON form"),
            (json!({"points": {"a/b": "secret"}}), "/data/points/a~1b must be a whole number of 64 bits"),
            (json!({"points": []}), "/data/points must be an object"),
            (json!({"proof": "!"}), "/data/proof must be a text in base64"),
            (json!({"gift": "true"}), "/data/gift must be a boolean"),
            (json!({"change": 3_000_000_000_u32}), "/data/change must be a whole number of 32 bits"),
            (
                json!({"card": "1", "cash": "2"}),
                "/data does not fit the message as a whole: of a `oneof`, only one member may be there",
            ),
        ],
    );
}

#[test]
fn required_members_of_the_old_syntax_are_required() {
    let file = "
        message Inner { required string id = 1; }
        message Outer { required string name = 1; optional Inner inner = 2; repeated Inner many = 3; }
    ";
    check(
        file,
        &[
            (json!({"name": "a", "inner": {"id": "b"}}), ""),
            (json!({}), "/data is missing the required member 'name'"),
            (json!({"name": null}), "/data is missing the required member 'name'"),
            (json!({"name": "a", "inner": {}}), "/data/inner is missing the required member 'id'"),
            (json!({"name": "a", "many": [{"id": "1"}, {}]}), "/data/many/1 is missing the required member 'id'"),
        ],
    );
}

#[test]
fn the_message_is_the_named_one_or_the_one_that_no_other_uses_or_the_last() {
    let file = |body: &str| format!("syntax = \"proto3\"; package p; {body}");
    for (body, named, expected) in [
        ("message A { B b = 1; } message B {}", None, Ok("p.A")),
        ("message B {} message A { B b = 1; A a = 2; }", None, Ok("p.A")),
        ("message A {} message B {}", None, Ok("p.B")),
        ("message A { B b = 1; } message B { A a = 1; }", None, Ok("p.B")),
        ("message A { message B {} map<string, B> b = 1; }", None, Ok("p.A")),
        ("message A {} message B {}", Some("A"), Ok("p.A")),
        ("message A { message C {} }", Some("A.C"), Ok("p.A.C")),
        ("message A {}", Some("p.A"), Ok("p.A")),
        ("message A {}", Some("B"), Err("/message")),
        ("message A { map<string, string> m = 1; }", Some("A.MEntry"), Err("/message")),
        ("import \"google/protobuf/empty.proto\"; message A {}", Some("google.protobuf.Empty"), Err("/message")),
        ("enum E { X = 0; }", None, Err("/schema")),
    ] {
        let schema = ProtoSchema::compile("", &file(body), named);
        match expected {
            Ok(name) => assert_eq!(schema.unwrap().message.full_name(), name, "{body}"),
            Err(pointer) => assert_eq!(schema.unwrap_err().violations()[0].pointer, pointer, "{body}"),
        }
    }
}

#[test]
fn a_file_that_cannot_be_used_is_refused_with_its_place() {
    for (file, detail) in [
        ("nonsense", "is not a proto file (line 1, column 1)"),
        ("syntax = \"proto3\";\nmessage A { string a = 0; }", "(line 2, column"),
        ("syntax = \"proto3\"; message A { Nobody a = 1; }", "defines a name twice, or uses an undefined one"),
        ("syntax = \"proto3\"; message A {} message A {}", "defines a name twice"),
        ("syntax = \"proto3\"; import \"other.proto\"; message A {}", "not one of the well-known"),
        ("syntax = \"proto3\"; import \"/etc/passwd\"; message A {}", "is not a proto file"),
        ("syntax = \"proto3\"; import \"schema.proto\"; message A {}", "defines a name twice"),
        ("", "has no message"),
    ] {
        let error = ProtoSchema::compile("", file, None).unwrap_err();
        assert_eq!(error.violations()[0].pointer, "/schema", "{file}");
        assert!(error.detail().contains(detail), "{file}: {}", error.detail());
    }
}

#[test]
fn a_hostile_file_is_refused_or_used_at_once() {
    let many = |count: usize| (0..count).map(|n| format!("message M{n} {{ string a = 1; }}\n")).collect::<String>();
    let chain: String = (0..4000).map(|n| format!("message M{n} {{ M{} m = 1; }}\n", (n + 1) % 4000)).collect();
    let fields: String = (1..9000).map(|n| format!("string f{n} = {n};\n")).collect();
    let nested = format!("{}{}", "message A { ".repeat(5000), "}".repeat(5000));
    let option = format!("option (x) = {}{};", "{ a ".repeat(5000), "}".repeat(5000));
    let brackets = format!("option (x) = {{ a: {}{} }};", "[".repeat(5000), "]".repeat(5000));
    let value = format!("message A {{ int32 a = 1 [default = {}1]; }}", "-".repeat(100_000));
    let header = "syntax = \"proto3\";\n";
    for (name, file, may_be_used) in [
        ("many", many(3000), true),
        ("too many", many(20_000), false),
        ("recursive", chain, true),
        ("wide", format!("message A {{ {fields} }}"), true),
        ("nested", nested, false),
        ("options", option, false),
        ("brackets", brackets, false),
        ("signs", value, false),
        ("open comment", format!("message A {{}} /* {}", "/*".repeat(50_000)), false),
        ("open text", format!("message A {{}} option x = \"{}", "\\\"".repeat(50_000)), false),
        ("empty statements", ";".repeat(200_000), false),
        ("names", format!("message A {{ {}B b = 1; }}", "A.".repeat(50_000)), false),
    ] {
        let begun = Instant::now();
        let schema = ProtoSchema::compile("", &format!("{header}{file}"), None);
        assert_eq!(schema.is_ok(), may_be_used, "{name} {:?}", schema.err());
        if ["nested", "options", "brackets"].contains(&name) {
            let error = schema.unwrap_err();
            assert!(error.detail().contains("nested too deeply"), "{name}: {error}");
        }
        // A hang would take for ever; a slow machine must not fail the test.
        assert!(begun.elapsed() < Duration::from_secs(120), "{name} {:?}", begun.elapsed());
    }
}

#[test]
fn a_hostile_event_costs_little() {
    let tree = "syntax = \"proto3\"; import \"google/protobuf/struct.proto\";
        message Tree { repeated Tree trees = 1; string name = 2; google.protobuf.Value value = 3; }";
    let schema = ProtoSchema::compile("", tree, None).unwrap();
    let mut deep = json!({"name": 5});
    (0..31).for_each(|_| deep = json!({"trees": [deep]}));
    let mut any = json!(1);
    (0..60).for_each(|_| any = json!([any]));
    let wide: Vec<_> = (0..100_000).map(|_| json!({"name": 5})).collect();
    for (data, reported_at_most) in [
        (deep, 1),
        (json!({"value": any}), 1),
        (json!({"trees": wide}), 100),
        (json!({"trees": vec![5; 100_000]}), 100),
    ] {
        let begun = Instant::now();
        let reported = schema.check(&data).err().unwrap_or_default();
        assert!(reported.len() <= reported_at_most, "{}", reported.len());
        // A hang would take for ever; a slow machine must not fail the test.
        assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", begun.elapsed());
    }
}

#[test]
fn what_a_minor_version_may_change() {
    let old = "enum E { A = 0; B = 1; } message Part { string p = 1; }
        message Root { string a = 1; int32 n = 2; repeated Part parts = 3; E e = 4; string b = 5; string c = 6;
            oneof one { string x = 7; string y = 8; } map<string, Part> m = 9; string long_name = 10; }";
    let replaced = |from: &str, to: &str| {
        assert!(old.contains(from), "{from}");
        old.replace(from, to)
    };
    for (new, expected) in [
        (old.to_owned(), ""),
        (replaced("string a = 1;", "string a = 1; string extra = 99;"), ""),
        (replaced("int32 n", "int64 n"), ""),
        (replaced("B = 1;", "B = 1; C = 2;"), ""),
        (replaced("Root", "Renamed"), ""),
        (replaced("string a = 1;", ""), "the member 'a' of Root was removed"),
        (replaced("string a = 1;", "reserved 1; string a = 11;"), "the member 'a' of Root has another number"),
        (replaced("string a = 1;", "string z = 1;"), "was renamed, or its number is used"),
        (replaced("string a = 1;", "int32 a = 1;"), "the member 'a' of Root has another type"),
        (replaced("int32 n", "sint64 n"), "the member 'n' of Root has another type"),
        (replaced("string a = 1;", "repeated string a = 1;"), "changed its cardinality"),
        (replaced("B = 1;", ""), "no longer has the enum value 'B'"),
        (replaced("B = 1;", "B = 2;"), "no longer has the enum value 'B'"),
        (replaced("string p = 1;", "int32 p = 1;"), "the member 'p' of Part has another type"),
        (replaced("string b = 5; string c = 6;", "oneof two { string b = 5; string c = 6; }"), "joined a `oneof`"),
        (replaced("string c = 6;\n", "").replace("string y = 8;", "string y = 8; string c = 6;"), "joined a `oneof`"),
        (replaced("map<string, Part> m", "map<int32, Part> m"), "the member 'm' of Root has another type"),
        (replaced("string long_name = 10;", "string long_name = 10 [json_name = \"other\"];"), "was renamed"),
    ] {
        let version = |body: &str| NewVersion {
            schema_type: SchemaType::Proto,
            schema: format!("syntax = \"proto3\"; {body}").into(),
            ..NewVersion::json_schema(SchemaVersion::FIRST, Value::Null)
        };
        let reported = super::super::incompatibilities("", &version(old), &version(&new), None);
        match expected {
            "" => assert_eq!(reported, [], "{new}"),
            _ => {
                assert!(
                    reported.iter().any(|it| it.pointer == "/schema" && it.detail.contains(expected)),
                    "{new} {reported:?}"
                );
            }
        }
    }
}

#[test]
fn what_is_newly_required_breaks() {
    let version = |body: &str| NewVersion {
        schema_type: SchemaType::Proto,
        schema: format!("syntax = \"proto2\"; message A {{ {body} }}").into(),
        ..NewVersion::json_schema(SchemaVersion::FIRST, Value::Null)
    };
    for (old, new, count) in [
        ("optional int32 a = 1;", "required int32 a = 1;", 1),
        ("optional int32 a = 1;", "optional int32 a = 1; required int32 b = 2;", 1),
        ("required int32 a = 1;", "optional int32 a = 1; optional int32 b = 2;", 0),
        ("extensions 5 to 9;", "extensions 5 to 8;", 0),
        ("extensions 5 to 9; extend A { optional int32 x = 5; }", "extensions 5 to 9;", 1),
    ] {
        assert_eq!(super::super::incompatibilities("", &version(old), &version(new), None).len(), count, "{old} {new}");
    }
}
