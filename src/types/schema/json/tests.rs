//! JSON Schemas, by what they report about events; and those that are refused.

use super::*;
use contract::Kind;
use serde_json::json;
use std::time::{Duration, Instant};

const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";

/// The `data` of an event, and what a schema for `data` reports: lines of `pointer detail`, in any order.
#[track_caller]
fn check(schema: &Value, rows: &[(Value, &str)]) {
    let compiled = JsonSchema::compile("/dataSchema", &schema.to_string(), Some(SchemaTarget::Data)).unwrap();
    for (data, expected) in rows {
        assert_eq!(reported(&compiled, None, None, data), lines(expected), "{schema} {data}");
    }
}

fn reported(schema: &JsonSchema, subject: Option<&str>, subject_type: Option<&str>, data: &Value) -> Vec<String> {
    let mut checked = data.clone();
    let outcome = schema.check(subject, subject_type, &mut checked);
    assert_eq!(&checked, data, "data comes back as it was");
    let reported =
        outcome.err().unwrap_or_default().into_iter().map(|v| format!("{} {}", v.pointer, v.detail)).collect();
    sorted(reported)
}

fn lines(table: &str) -> Vec<String> {
    sorted(table.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect())
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[test]
fn the_schema_of_the_seed_describes_the_event() {
    let schema = json!({
        "type": "object",
        "properties": {
            "subject": {"type": "string", "format": "uuid"},
            "data": {
                "type": "object",
                "properties": {"userId": {"type": "string"}, "email": {"type": "string", "format": "email"}},
                "required": ["userId", "email"],
            },
        },
        "required": ["subject", "data"],
    });
    let uuid = "1053828c-57b1-4c2b-97dc-ccff6225651e";
    for draft in [None, Some(DRAFT_7)] {
        let mut schema = schema.clone();
        if let Some(draft) = draft {
            schema["$schema"] = json!(draft);
        }
        let schema = JsonSchema::compile("/dataSchema", &schema.to_string(), None).unwrap();
        assert_eq!(schema.target, SchemaTarget::Event);
        for (subject, data, expected) in [
            (Some(uuid), json!({"userId": "u", "email": "a@b.example"}), ""),
            (Some("nope"), json!({"userId": "u", "email": "a@b.example"}), "/subject must have the format 'uuid'"),
            (None, json!({"userId": "u", "email": "a@b.example"}), " is missing the required member 'subject'"),
            (
                Some(uuid),
                json!({"userId": 5}),
                "/data is missing the required member 'email'\n/data/userId must be of type string",
            ),
            (Some(uuid), json!({"userId": "u", "email": "secret"}), "/data/email must have the format 'email'"),
        ] {
            let expected = sorted(expected.lines().map(str::to_owned).collect());
            assert_eq!(reported(&schema, subject, None, &data), expected, "{data}");
        }
    }
}

#[test]
fn a_schema_says_what_it_describes_by_declaring_data_or_outright() {
    for (schema, target, expected) in [
        (json!({"properties": {"data": {}}}), None, SchemaTarget::Event),
        (json!({"properties": {"userId": {}}}), None, SchemaTarget::Data),
        (json!({"properties": {"userId": {}, "data": {}}}), Some(SchemaTarget::Data), SchemaTarget::Data),
        (json!({"properties": {"userId": {}}}), Some(SchemaTarget::Event), SchemaTarget::Event),
        (json!({"required": ["data"]}), None, SchemaTarget::Data),
        (json!({}), None, SchemaTarget::Data),
        (json!(true), None, SchemaTarget::Data),
    ] {
        assert_eq!(
            JsonSchema::compile("/dataSchema", &schema.to_string(), target).unwrap().target,
            expected,
            "{schema}"
        );
    }
}

#[test]
fn a_schema_of_the_event_sees_subject_and_subject_type() {
    let schema = json!({
        "properties": {"subjectType": {"const": "gts.a.b.v1"}, "data": {"type": "object"}},
        "additionalProperties": false,
        "required": ["subjectType"],
    });
    let schema = JsonSchema::compile("/dataSchema", &schema.to_string(), None).unwrap();
    for (subject, subject_type, expected) in [
        (None, Some("gts.a.b.v1"), ""),
        (None, Some("gts.a.c.v1"), "/subjectType must be the one value the schema allows"),
        (Some("s"), Some("gts.a.b.v1"), "/subject is not a member the schema knows"),
    ] {
        assert_eq!(reported(&schema, subject, subject_type, &json!({})), lines(expected), "{subject_type:?}");
    }
}

#[test]
fn formats_are_asserted_under_both_drafts() {
    for draft in [DRAFT_7, "https://json-schema.org/draft/2020-12/schema"] {
        for (format, good, bad) in [
            ("uuid", "1053828c-57b1-4c2b-97dc-ccff6225651e", "1053828c57b14c2b97dcccff6225651e"),
            ("gts-identifier", "gts.vendor.tenants.tenant.v1~", "vendor.tenants"),
            ("iso8601duration", "PT30D", "30 days"),
            ("duration", "PT30S", "30s"),
            ("email", "a@b.example", "a"),
            ("date-time", "2025-12-03T12:01:59Z", "2025-12-03"),
            ("date", "2025-12-03", "3.12.2025"),
            ("time", "12:01:59Z", "12"),
            ("uri", "https://a.example/b", "a b"),
            ("hostname", "a.example", "-a-"),
            ("ipv4", "127.0.0.1", "127.0.0"),
            ("ipv6", "::1", ":::"),
            ("regex", "a+", "("),
            ("json-pointer", "/a", "a"),
            ("idn-email", "실례@실례.테스트", "2962"),
            ("idn-hostname", "실례.테스트", "〮실례.테스트"),
        ] {
            let schema = json!({"$schema": draft, "type": "string", "format": format});
            let refusal = format!("/data must have the format '{format}'");
            check(&schema, &[(json!(good), ""), (json!(bad), &refusal)]);
        }
    }
}

#[test]
fn an_unknown_draft_is_refused_within_a_schema_too() {
    let within =
        json!({"properties": {"x": {"$id": "urn:a", "$schema": "http://localhost:1234/nothing.json", "minimum": 10}}});
    let error = JsonSchema::compile("/dataSchema", &within.to_string(), None).unwrap_err();
    assert_eq!(error.violations()[0].pointer, "/dataSchema/properties/x/$schema");
    for taken in [
        json!({"properties": {"x": {"$id": "urn:a", "$schema": DRAFT_7, "minimum": 10}}}),
        json!({"properties": {"$schema": {"type": "string"}, "$id": {"type": "string"}}}),
        json!({"const": {"$id": "urn:a", "$schema": "urn:mine"}}),
    ] {
        assert!(JsonSchema::compile("/dataSchema", &taken.to_string(), None).is_ok(), "{taken}");
    }
}

#[test]
fn every_failure_has_a_pointer_and_a_text() {
    let schema = json!({
        "properties": {
            "type": {"type": ["string", "null"]}, "enum": {"enum": ["a", "b"]}, "const": {"const": 1},
            "minimum": {"minimum": 3}, "maximum": {"maximum": 3}, "more": {"exclusiveMinimum": 3},
            "less": {"exclusiveMaximum": 3}, "multiple": {"multipleOf": 5}, "short": {"minLength": 3},
            "long": {"maxLength": 3}, "pattern": {"pattern": "^a+$"}, "few": {"minItems": 2}, "many": {"maxItems": 1},
            "unique": {"uniqueItems": true}, "contains": {"contains": {"const": 1}}, "any": {"anyOf": [{"const": 1}, {"const": 2}]},
            "one": {"oneOf": [{"minimum": 1}, {"minimum": 2}]}, "none": {"oneOf": [{"const": 1}]}, "not": {"not": {"const": 5}},
            "never": false, "names": {"propertyNames": {"maxLength": 2}}, "least": {"minProperties": 1},
            "most": {"maxProperties": 0}, "closed": {"additionalProperties": false, "properties": {"a": {}}}, "bare": {"additionalProperties": false},
            "tuple": {"prefixItems": [{}], "unevaluatedItems": false}, "rest": {"unevaluatedProperties": false},
            "list": {"items": {"required": ["x"]}}, "a/b~c": {"type": "string"},
        },
    });
    let data = json!({
        "type": 5, "enum": "secret", "const": "secret", "minimum": 2, "maximum": 4, "more": 3, "less": 3, "multiple": 3,
        "short": "s3", "long": "secret", "pattern": "secret", "few": [1], "many": [1, 2], "unique": [1, 1],
        "contains": [5], "any": "secret", "one": 5, "none": 5, "not": 5, "never": "secret", "names": {"secret": 1},
        "least": {}, "most": {"x": 1}, "closed": {"a": 1, "b/c": 1, "d~e": 1}, "tuple": [1, 2], "rest": {"x": 1},
        "list": [{"x": 1}, {}, {"y": 1}], "a/b~c": 5, "bare": {"x": 1},
    });
    check(
        &schema,
        &[(
            data,
            "
        /data/a~1b~0c must be of type string
        /data/any fits none of the schema's alternatives
        /data/bare must have no members
        /data/closed/b~1c is not a member the schema knows
        /data/closed/d~0e is not a member the schema knows
        /data/const must be the one value the schema allows
        /data/contains has no item, too few or too many of the kind the schema asks for
        /data/enum must be one of \"a\", \"b\"
        /data/few must have at least 2 items
        /data/least must have at least 1 members
        /data/less must be less than 3
        /data/list/1 is missing the required member 'x'
        /data/list/2 is missing the required member 'x'
        /data/long must have at most 3 characters
        /data/many must have at most 1 items
        /data/maximum must be at most 3
        /data/minimum must be at least 3
        /data/more must be more than 3
        /data/most must have at most 0 members
        /data/multiple must be a multiple of 5
        /data/names has a member whose name the schema does not allow
        /data/never must be absent
        /data/none fits none of the schema's alternatives
        /data/not fits what the schema excludes
        /data/one fits more than one of the schema's alternatives
        /data/pattern does not match the schema's pattern
        /data/rest/x is not a member the schema knows
        /data/short must have at least 3 characters
        /data/tuple has items the schema does not know
        /data/type must be of type null or string
        /data/unique has an item twice
        ",
        )],
    );
}

#[test]
fn a_schema_that_cannot_be_used_is_refused_with_its_place() {
    for (schema, pointer, detail) in [
        ("", "/dataSchema", "is not JSON"),
        ("{", "/dataSchema", "is not JSON"),
        (r#"{"type": "string", "type": "number"}"#, "/dataSchema/type", "twice"),
        (
            r#"{"$schema": "http://json-schema.org/draft-04/schema#"}"#,
            "/dataSchema/$schema",
            "draft-07 or draft 2020-12",
        ),
        (r#"{"$schema": "https://json-schema.org/draft/2019-09/schema"}"#, "/dataSchema/$schema", "draft-07"),
        (r#"{"$schema": 7}"#, "/dataSchema/$schema", "draft-07"),
        (r#"{"type": "strng"}"#, "/dataSchema/type", "not what its draft"),
        (r#"{"properties": {"a": {"minLength": -1}}}"#, "/dataSchema/properties/a/minLength", "not what its draft"),
        (r#""string""#, "/dataSchema", "not what its draft"),
        (r#"{"pattern": "("}"#, "/dataSchema/pattern", "linear time"),
        (r#"{"pattern": "^(?=secret)"}"#, "/dataSchema/pattern", "linear time"),
        (r#"{"pattern": "(a)\\1"}"#, "/dataSchema/pattern", "linear time"),
        (r#"{"pattern": "((a{1,100}){1,100}){1,100}"}"#, "/dataSchema/pattern", "linear time"),
        (r#"{"patternProperties": {"(": {}}}"#, "/dataSchema/patternProperties/(", "linear time"),
        (r#"{"$ref": "http://127.0.0.1:1/secret"}"#, "/dataSchema", "out of the schema"),
        (r#"{"$ref": "file:///etc/passwd"}"#, "/dataSchema", "out of the schema"),
        (r#"{"properties": {"a": {"$ref": "other.json"}}}"#, "/dataSchema", "out of the schema"),
        (r##"{"$ref": "#/$defs/nobody"}"##, "/dataSchema", "cannot be resolved"),
        (r#"{"$id": "http://["}"#, "/dataSchema", ""),
    ] {
        let error = JsonSchema::compile("/dataSchema", schema, None).unwrap_err();
        let violation = &error.violations()[0];
        assert_eq!((error.kind(), violation.pointer.as_str()), (Kind::Validation, pointer), "{schema} {error}");
        assert!(violation.detail.contains(detail), "{schema} {error}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}

#[test]
fn a_hostile_schema_is_refused_at_once() {
    let definitions = |count: usize, of: &dyn Fn(usize) -> Value| -> Value {
        let definitions: Map<String, Value> = (0..count).map(|n| (format!("d{n}"), of(n))).collect();
        json!({"$ref": "#/$defs/d0", "$defs": definitions})
    };
    let to = |n: usize| json!({"$ref": format!("#/$defs/d{n}")});
    let mut nested = json!({"type": "string"});
    (0..40).for_each(|_| nested = json!({"not": nested}));
    for (name, schema) in [
        ("long", format!(r#"{{"description": "{}"}}"#, "a".repeat(300 * 1024))),
        ("deep", format!("{}{}{}", r#"{"not":"#.repeat(5000), "{}", "}".repeat(5000))),
        ("nested", nested.to_string()),
        (
            "doubling",
            definitions(30, &|n| if n == 29 { json!({}) } else { json!({"anyOf": [to(n + 1), to(n + 1)]}) })
                .to_string(),
        ),
        ("chain", definitions(5000, &|n| if n == 4999 { json!({}) } else { to(n + 1) }).to_string()),
        (
            "hidden chain",
            json!({"properties": {"x": {"$ref": "#/z/d00"}}, "z": (0..40).map(|n| {
            (format!("d{n:02}"), json!({"$ref": format!("#/z/d{:02}", n + 1)}))
        }).chain([("d40".to_owned(), json!({}))]).collect::<Map<_, _>>()})
            .to_string(),
        ),
        ("wide", json!({"anyOf": vec![json!({"type": "string"}); 11_000]}).to_string()),
    ] {
        let begun = Instant::now();
        let error = JsonSchema::compile("/dataSchema", &schema, None).unwrap_err();
        assert_eq!(error.kind(), Kind::Validation, "{name}");
        // A hang would take for ever; a slow machine must not fail the test.
        assert!(begun.elapsed() < Duration::from_secs(120), "{name} {:?}", begun.elapsed());
    }
}

#[test]
fn a_schema_may_speak_of_itself() {
    let tree = json!({"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}});
    check(
        &tree,
        &[
            (json!({"left": {"right": {}}}), ""),
            (json!({"left": {"right": 5}}), "/data/left/right must be of type object"),
        ],
    );
    for circle in [json!({"$ref": "#"}), json!({"allOf": [{"$ref": "#"}]})] {
        check(&circle, &[(json!({}), "")]);
    }
}

#[test]
fn a_hostile_event_costs_little_and_its_report_is_short() {
    let alternatives: Vec<Value> = (0..50).map(|n| json!({"type": "string", "minLength": n})).collect();
    let open = json!({"additionalProperties": false, "properties": {"x": {}}});
    for (schema, data, reported_at_most) in [
        (json!({"items": {"type": "string"}}), json!(vec![1; 300]), 100),
        (json!({"items": {"type": "string"}}), json!(vec![1; 200_000]), 1),
        (json!({"items": {"anyOf": alternatives}}), json!(vec![1; 200_000]), 1),
        (open.clone(), (0..50_000).map(|n| (n.to_string(), json!(1))).collect::<Map<_, _>>().into(), 100),
        (open, [("a".repeat(100_000), json!(1))].into_iter().collect::<Map<_, _>>().into(), 1),
    ] {
        let schema = JsonSchema::compile("/dataSchema", &schema.to_string(), Some(SchemaTarget::Data)).unwrap();
        let begun = Instant::now();
        let reported = reported(&schema, None, None, &data);
        assert_eq!(reported.len(), reported_at_most, "{:?}", reported.first());
        assert!(reported.iter().all(|line| line.len() < 400));
        // A hang would take for ever; a slow machine must not fail the test.
        assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", begun.elapsed());
    }
}

#[test]
fn a_schema_is_shared_between_tasks() {
    fn shared<T: Send + Sync>() {}
    shared::<JsonSchema>();
}
