//! What a minor version of a JSON Schema may change, row by row; and that everything accepted is compatible.

use super::super::JsonSchema;
use super::*;
use proptest::prelude::*;
use serde_json::json;
use std::time::{Duration, Instant};

/// Rows of old schema, new schema, and the lines of `pointer detail` that are reported; none if they are compatible.
#[track_caller]
fn check(rows: &[(Value, Value, &str)]) {
    for (old, new, expected) in rows {
        let reported = incompatibilities("/schema", old, new, Some(SchemaTarget::Data));
        let reported: Vec<_> = reported.iter().map(|it| format!("{} {}", it.pointer, it.detail)).collect();
        let expected: Vec<_> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(reported, expected, "\n{old}\n{new}");
    }
}

#[test]
fn members_come_and_go() {
    let object = |members: Value| json!({"type": "object", "properties": members});
    let with = |mut schema: Value, keyword: &str, value: Value| {
        schema[keyword] = value;
        schema
    };
    let a = || object(json!({"a": {"type": "string"}}));
    let ab = || object(json!({"a": {"type": "string"}, "b": {"type": "integer"}}));
    let closed = |schema: Value| with(schema, "additionalProperties", json!(false));
    check(&[
        (a(), ab(), ""),
        (ab(), a(), ""),
        (closed(a()), closed(ab()), ""),
        (closed(a()), a(), ""),
        (closed(ab()), closed(a()), "/schema/additionalProperties no longer allows the member 'b'"),
        (a(), closed(ab()), "/schema/additionalProperties limits members that were left open"),
        (a(), with(a(), "required", json!(["a"])), "/schema/required newly requires the member 'a'"),
        (a(), with(ab(), "required", json!(["b"])), "/schema/required newly requires the member 'b'"),
        (with(a(), "required", json!(["a"])), a(), ""),
        (
            json!({"required": ["a"]}),
            a(),
            "/schema/properties/a/type no longer allows the type: null, boolean, integer, number, array, object
             /schema/type no longer allows the type: null, boolean, integer, number, string, array",
        ),
        (
            object(json!({"in": object(json!({"x/y": {"type": "string"}}))})),
            object(json!({"in": object(json!({"x/y": {"type": "null"}}))})),
            "/schema/properties/in/properties/x~1y/type no longer allows the type: string",
        ),
        (
            with(a(), "additionalProperties", json!({"type": "integer"})),
            with(ab(), "additionalProperties", json!({"type": "number"})),
            "",
        ),
        (
            with(a(), "additionalProperties", json!({"type": "string"})),
            ab(),
            "/schema/properties/b/type no longer allows the type: string",
        ),
        (
            ab(),
            with(a(), "additionalProperties", json!({"type": "string"})),
            "/schema/additionalProperties/type no longer allows the type: integer
             /schema/additionalProperties limits members that were left open",
        ),
        (
            a(),
            with(a(), "patternProperties", json!({"^a": {"maxLength": 3}})),
            "/schema/patternProperties/^a/maxLength no longer allows some long texts",
        ),
        (a(), with(a(), "patternProperties", json!({"^b": {"maxLength": 3}})), ""),
        (
            with(a(), "patternProperties", json!({"^x": {"type": "string"}})),
            with(a(), "patternProperties", json!({"^x": {"type": "string", "minLength": 1}})),
            "/schema/patternProperties/^x/minLength no longer allows some short texts",
        ),
        (
            json!({"anyOf": [a(), ab()]}),
            object(json!({"b": {"type": "null"}})),
            "/schema/properties/b/type no longer allows the type: boolean, integer, number, string, array, object
             /schema/type no longer allows the type: null, boolean, integer, number, string, array",
        ),
        (
            a(),
            with(a(), "propertyNames", json!({"maxLength": 3})),
            "/schema/propertyNames/maxLength no longer allows some long texts",
        ),
    ]);
}

#[test]
fn values_are_limited_and_permitted() {
    check(&[
        (json!({"type": "integer"}), json!({"type": "number"}), ""),
        (json!({"type": "number"}), json!({"type": "integer"}), "/schema/type no longer allows the type: number"),
        (json!({"type": "string"}), json!({"type": ["string", "null"]}), ""),
        (
            json!({"type": ["string", "null"]}),
            json!({"type": "string"}),
            "/schema/type no longer allows the type: null",
        ),
        (json!({"enum": ["a", "b"]}), json!({"enum": ["b", "a", "c"]}), ""),
        (json!({"enum": ["a", "b"]}), json!({"enum": ["a"]}), "/schema/enum no longer allows a value that was allowed"),
        (json!({"type": "string"}), json!({"enum": ["a"]}), "/schema/enum newly limits which values are allowed"),
        (json!({"enum": ["a", "b"]}), json!({"type": "string"}), ""),
        (json!({"const": 1}), json!({"enum": [1, 2]}), ""),
        (json!({"const": 1}), json!({"const": 2}), "/schema/const no longer allows a value that was allowed"),
        (
            json!({"const": 1}),
            json!({"const": 1, "enum": [2]}),
            "/schema/enum no longer allows a value that was allowed",
        ),
        (json!({"minimum": 5}), json!({"minimum": 4}), ""),
        (json!({"minimum": 5}), json!({"minimum": 5.5}), "/schema/minimum allows fewer small numbers than before"),
        (json!({"minimum": 5}), json!({"exclusiveMinimum": 4}), ""),
        (
            json!({"minimum": 5}),
            json!({"exclusiveMinimum": 5}),
            "/schema/exclusiveMinimum allows fewer small numbers than before",
        ),
        (json!({"exclusiveMaximum": 5}), json!({"maximum": 5}), ""),
        (json!({}), json!({"maximum": 5}), "/schema/maximum allows fewer large numbers than before"),
        (json!({"type": "string"}), json!({"maximum": 5}), ""),
        (json!({"type": "string"}), json!({"minLength": 0}), ""),
        (json!({"type": "string"}), json!({"minLength": 1}), "/schema/minLength no longer allows some short texts"),
        (json!({"maxLength": 5}), json!({"maxLength": 6}), ""),
        (json!({"multipleOf": 6}), json!({"multipleOf": 3}), ""),
        (json!({"multipleOf": 3}), json!({"multipleOf": 6}), "/schema/multipleOf no longer allows some numbers"),
        (json!({"pattern": "^a$"}), json!({"pattern": "^a$"}), ""),
        (
            json!({"pattern": "^a$"}),
            json!({"pattern": "^b$"}),
            "/schema/pattern changed in a way that cannot be shown compatible",
        ),
        (json!({"type": "string"}), json!({"format": "date"}), "/schema/format newly asks for a format"),
        (
            json!({"format": "date"}),
            json!({"type": ["string", "null"]}),
            "/schema/type no longer allows the type: boolean, integer, number, array, object",
        ),
        (json!({"format": "date"}), json!({}), ""),
        (
            json!({"uniqueItems": true}),
            json!({"uniqueItems": true, "maxItems": 3}),
            "/schema/maxItems no longer allows some long lists",
        ),
        (json!(true), json!({"title": "x", "description": "y", "default": 1, "x-own": 1}), ""),
        (json!({}), json!(false), "/schema no longer allows anything here"),
        (json!(false), json!({"type": "string"}), ""),
    ]);
}

#[test]
fn lists_and_what_cannot_be_compared() {
    let list = |items: Value| json!({"type": "array", "items": items});
    let cannot = |place: &str| format!("/schema/{place} changed in a way that cannot be shown compatible");
    let any = |count: usize| json!({"anyOf": (0..count).map(|n| json!({"const": n})).collect::<Vec<_>>()});
    check(&[
        (list(json!({"type": "integer"})), list(json!({"type": "number"})), ""),
        (
            list(json!({})),
            list(json!({"type": "null"})),
            "/schema/items/type no longer allows the type: boolean, integer, number, string, array, object",
        ),
        (list(json!({})), list(json!(false)), "/schema/items no longer allows anything here"),
        (any(2), any(2), ""),
        (any(2), json!({}), ""),
        (any(2), any(3), &cannot("anyOf")),
        (json!({}), json!({"not": {"type": "null"}}), &cannot("not")),
        (
            json!({"if": {}, "then": {}}),
            json!({"if": {}, "then": {}, "else": {}}),
            &format!("{}\n{}\n{}", cannot("else"), cannot("if"), cannot("then")),
        ),
        (json!({"prefixItems": [{}]}), json!({"prefixItems": [{"type": "null"}]}), &cannot("prefixItems")),
        (
            json!({"contains": {}}),
            json!({"contains": {}, "minContains": 2}),
            &format!("{}\n{}", cannot("contains"), cannot("minContains")),
        ),
        (
            json!({"properties": {"a": {}}, "unevaluatedProperties": false}),
            json!({"properties": {"a": {}}, "unevaluatedProperties": false}),
            "",
        ),
        (
            json!({"properties": {"a": {}, "b": {}}, "unevaluatedProperties": false}),
            json!({"properties": {"a": {}}, "unevaluatedProperties": false}),
            &cannot("unevaluatedProperties"),
        ),
        (
            json!({"dependentRequired": {"a": ["b"]}}),
            json!({"dependentRequired": {"a": ["c"]}}),
            &cannot("dependentRequired"),
        ),
    ]);
}

#[test]
fn references_are_followed_within_the_schema() {
    let with = |definition: Value| json!({"properties": {"a": {"$ref": "#/$defs/d"}}, "$defs": {"d": definition}});
    let tree = |name: Value| json!({"properties": {"name": name, "left": {"$ref": "#"}, "right": {"$ref": "#"}}});
    let either = || json!({"anyOf": [{"$ref": "#/$defs/d"}]});
    let any = |definition: Value| json!({"anyOf": [{"$ref": "#/$defs/d"}], "$defs": {"d": definition}});
    check(&[
        (with(json!({"type": "string"})), with(json!({"type": ["string", "null"]})), ""),
        (
            with(json!({"type": "string"})),
            with(json!({"type": "null"})),
            "/schema/$defs/d/type no longer allows the type: string",
        ),
        (with(json!({"type": "string"})), json!({"properties": {"a": {"type": "string"}}}), ""),
        (tree(json!({"maxLength": 3})), tree(json!({"maxLength": 4})), ""),
        (
            tree(json!({"maxLength": 4})),
            tree(json!({"maxLength": 3})),
            "/schema/properties/name/maxLength no longer allows some long texts",
        ),
        (any(json!({"type": "string"})), any(json!({"type": "string"})), ""),
        (
            any(json!({"type": "string"})),
            any(json!({"type": "null"})),
            "/schema/anyOf changed in a way that cannot be shown compatible",
        ),
        (json!({"allOf": [{"type": "string"}, {"maxLength": 3}]}), json!({"type": "string", "maxLength": 4}), ""),
        (
            json!({"type": "string"}),
            json!({"allOf": [{"type": "string"}, {"maxLength": 4}]}),
            "/schema/allOf/1/maxLength no longer allows some long texts",
        ),
        // Both places are reported, although one definition changed.
        (
            json!({"properties": {"a": either(), "b": either()}, "$defs": {"d": {"type": "string"}}}),
            json!({"properties": {"a": either(), "b": either()}, "$defs": {"d": {"type": "null"}}}),
            "/schema/properties/a/anyOf changed in a way that cannot be shown compatible
             /schema/properties/b/anyOf changed in a way that cannot be shown compatible",
        ),
        (
            json!({"$anchor": "x"}),
            json!({"$anchor": "x", "type": "null"}),
            "/schema changed in a way that cannot be shown compatible",
        ),
        (
            json!({}),
            json!({"$schema": "http://json-schema.org/draft-07/schema#"}),
            "/schema/$schema must stay the same draft within a major version",
        ),
        // In draft-07, keywords beside a reference are ignored.
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"$ref": "#/definitions/d", "maxLength": 3}}, "definitions": {"d": {}}}),
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"maxLength": 3}}}),
            "/schema/properties/a/maxLength no longer allows some long texts",
        ),
    ]);
}

#[test]
fn what_a_schema_describes_stays() {
    let event = json!({"properties": {"data": {"type": "object"}}});
    let reported = incompatibilities("/schema", &event, &json!({"type": "object"}), None);
    assert_eq!(reported[0].pointer, "/schema");
    assert_eq!(incompatibilities("/schema", &event, &event, None), []);
    assert_eq!(
        incompatibilities(
            "/schema",
            &event,
            &json!({"type": ["object", "array", "null", "string", "number", "boolean"]}),
            Some(SchemaTarget::Data)
        ),
        []
    );
}

#[test]
fn hostile_schemas_are_compared_at_once() {
    let chain = |last: &str| {
        let next = |n: usize| json!({"properties": {"a": {"$ref": format!("#/$defs/d{}", n + 1)}, "b": {"$ref": format!("#/$defs/d{}", (n * 7 + 3) % 1000)}}});
        let mut definitions: Map<String, Value> = (0..1000).map(|n| (format!("d{n}"), next(n))).collect();
        definitions.insert("d1000".to_owned(), json!({"type": last}));
        json!({"$ref": "#/$defs/d0", "$defs": definitions})
    };
    let patterns = |count: usize| {
        let patterns: Map<String, Value> = (0..count).map(|n| (format!("^p{n}.*x"), json!({"maxLength": n}))).collect();
        let members: Map<String, Value> = (0..count).map(|n| (format!("p{n}x"), json!({"maxLength": n}))).collect();
        json!({"patternProperties": patterns, "properties": members, "additionalProperties": false})
    };
    let required = |count: usize| json!({"required": (0..count).map(|n| n.to_string()).collect::<Vec<_>>()});
    let listed = |count: usize| json!({"enum": (0..count).collect::<Vec<_>>()});
    for (name, old, new) in [
        ("chain", chain("string"), chain("null")),
        ("patterns", patterns(500), patterns(501)),
        ("required", required(10_000), required(10_001)),
        ("listed", listed(20_000), listed(20_001)),
    ] {
        let begun = Instant::now();
        let reported = incompatibilities("/schema", &old, &new, Some(SchemaTarget::Data));
        assert!(reported.len() <= limits::VIOLATIONS_MAX);
        // A hang would take for ever; a slow machine must not fail the test.
        assert!(begun.elapsed() < Duration::from_secs(120), "{name} {:?}", begun.elapsed());
    }
}

/// Schemas over few words, so that pairs meet.
fn parts() -> impl Strategy<Value = Value> {
    let types = prop::sample::subsequence(vec!["null", "integer", "number", "string", "array", "object"], 1..=6);
    let leaf = prop_oneof![
        types.prop_map(|types| json!({"type": types})),
        (0..4_i32).prop_map(|n| json!({"minimum": n})),
        (0..4_i32).prop_map(|n| json!({"exclusiveMaximum": n})),
        (0..3_usize).prop_map(|n| json!({"maxLength": n})),
        (0..3_usize).prop_map(|n| json!({"minItems": n})),
        (1..4_i32).prop_map(|n| json!({"multipleOf": n})),
        prop::sample::subsequence(vec![json!(0), json!(1.5), json!("a"), json!(null)], 1..=4)
            .prop_map(|v| json!({"enum": v})),
        Just(json!({})),
        Just(json!(true)),
        Just(json!(false)),
    ];
    leaf.prop_recursive(3, 24, 3, |inner| {
        let members = (inner.clone(), inner.clone()).prop_map(|(a, b)| json!({"properties": {"a": a, "b": b}}));
        prop_oneof![
            members.clone(),
            (members.clone(), prop::sample::subsequence(vec!["a", "b"], 1..=2)).prop_map(|(mut object, required)| {
                object["required"] = json!(required);
                object
            }),
            (members, inner.clone()).prop_map(|(mut object, rest)| {
                object["additionalProperties"] = rest;
                object
            }),
            inner.clone().prop_map(|a| json!({"properties": {"a": a, "b": {}}, "patternProperties": {"^[ab]$": {"type": ["integer", "string"]}}})),
            inner.clone().prop_map(|items| json!({"items": items})),
            (inner.clone(), inner.clone()).prop_map(|(one, two)| json!({"allOf": [one, two]})),
            (inner.clone(), inner.clone()).prop_map(|(one, two)| json!({"anyOf": [one, two]})),
            inner.clone().prop_map(|one| json!({"not": one})),
            (0..3_i32).prop_map(|n| json!({"$ref": "#/$defs/d", "maximum": n})),
            Just(json!({"$ref": "#/$defs/d"})),
        ]
    })
}

/// Whole schemas: with a definition that references lead to.
fn schemas() -> impl Strategy<Value = Value> {
    (parts(), parts()).prop_map(|(mut schema, definition)| {
        if let Value::Object(keywords) = &mut schema {
            keywords.insert("$defs".to_owned(), json!({"d": definition}));
        }
        schema
    })
}

fn instances() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        Just(json!(0)),
        Just(json!(1)),
        Just(json!(2)),
        Just(json!(6)),
        Just(json!(1.5)),
        Just(json!("")),
        Just(json!("a")),
        Just(json!("abc")),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(prop::sample::select(vec!["a".to_owned(), "b".to_owned()]), inner, 0..3)
                .prop_map(|members| members.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The guarantee itself, without the exception: if nothing is reported, the new schema accepts what the old one
    /// accepts.
    #[test]
    fn a_compatible_schema_accepts_what_was_accepted(old in schemas(), new in schemas(), changes in 0..3_u8, instances in prop::collection::vec(instances(), 12)) {
        // Half of the pairs are similar: compatible ones would be rare otherwise.
        let new = match changes {
            0 => json!({"allOf": [old.clone()], "title": "the same", "$defs": old.get("$defs").unwrap_or(&json!({}))}),
            1 => loosened(&old),
            _ => new,
        };
        let compile = |schema: &Value| JsonSchema::compile("", &schema.to_string(), Some(SchemaTarget::Data));
        let (Ok(old_schema), Ok(new_schema)) = (compile(&old), compile(&new)) else { return Ok(()) };
        if compare("", &old, &new, Some(SchemaTarget::Data), true).is_empty() {
            for mut instance in instances {
                if old_schema.check(None, None, &mut instance).is_ok() {
                    prop_assert!(new_schema.check(None, None, &mut instance).is_ok(), "{old}\n{new}\n{instance}");
                }
            }
        }
    }
}

/// A schema with some of its keywords removed.
fn loosened(schema: &Value) -> Value {
    match schema {
        Value::Object(keywords) => {
            let kept =
                keywords.iter().filter(|(keyword, _)| !matches!(keyword.as_str(), "required" | "minimum" | "enum"));
            kept.map(|(keyword, value)| (keyword.clone(), loosened(value))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}
