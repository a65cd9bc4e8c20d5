//! Compares with the crate `cel` on random expressions, in the language that both accept.

use super::*;
use cel::{Context, Env, Value};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

fn theirs(source: &str) -> Option<bool> {
    let env = Arc::new(Env::stdlib());
    let program = env.compile(source).unwrap();
    let mut context = Context::with_env(Arc::clone(&env));
    let event: serde_json::Value = serde_json::from_str(EVENT).unwrap();
    for (name, value) in event.as_object().unwrap() {
        context.add_variable_from_value(name.as_str(), convert(value));
    }
    match program.execute(&context) {
        Ok(Value::Bool(truth)) => Some(truth),
        _ => None,
    }
}

fn convert(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(bool) => (*bool).into(),
        serde_json::Value::Number(number) => number
            .as_i64()
            .map(Value::Int)
            .or_else(|| number.as_u64().map(Value::UInt))
            .unwrap_or_else(|| Value::Float(number.as_f64().unwrap())),
        serde_json::Value::String(text) => text.as_str().into(),
        serde_json::Value::Array(items) => Value::List(Arc::new(items.iter().map(convert).collect())),
        serde_json::Value::Object(members) => {
            let members: HashMap<String, Value> =
                members.iter().map(|(name, value)| (name.clone(), convert(value))).collect();
            members.into()
        }
    }
}

fn number() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "1",
        "2",
        "3",
        "-1",
        "0",
        "data.count",
        "sequence",
        "data.numbers[0]",
        "data.numbers[2]",
        "size(data.tags)",
        "data.lines[1].n",
        "data.missing",
        "size(data.userId)",
        "int('7')",
        "data.userId",
        "null",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(2, 8, 2, |inner| {
        (inner.clone(), prop::sample::select(vec!["+", "-", "*", "/", "%"]), inner)
            .prop_map(|(a, operator, b)| format!("({a} {operator} {b})"))
    })
}

fn text() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "'a'",
        "'user-12345'",
        "data.userId",
        "data.tags[0]",
        "data.escaped",
        "context.appId",
        "data.email",
        "''",
        "string(data.count)",
        "data.missing",
        "data.count",
        "('x' + data.userId)",
        "type(data.count)",
    ])
    .prop_map(str::to_owned)
}

fn list() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "data.tags",
        "data.numbers",
        "data.mixed",
        "data.empty",
        "data.lines",
        "[1, 2, 3]",
        "['a', data.userId]",
        "data.nested",
        "data.numbers.map(n, n + 1)",
        "data.numbers.filter(n, n > 1)",
        "data.pairs",
        "data.missing",
    ])
    .prop_map(str::to_owned)
}

/// The operands of `in`. Not a map: whether a value that cannot be a key is in one is `false` here and in cel-go, an
/// error in the crate.
fn searched() -> impl Strategy<Value = String> {
    list().prop_filter("a map", |source| source != "data.nested")
}

fn truth() -> impl Strategy<Value = String> {
    let relation = prop::sample::select(vec!["==", "!=", "<", "<=", ">", ">="]);
    let leaf = prop_oneof![
        prop::sample::select(vec![
            "true",
            "false",
            "data.flag",
            "data.missing",
            "has(data.missing)",
            "has(data.flag)",
            "has(data.count.x)",
            "data.count"
        ])
        .prop_map(str::to_owned),
        (number(), relation.clone(), number()).prop_map(|(a, r, b)| format!("{a} {r} {b}")),
        (text(), relation, text()).prop_map(|(a, r, b)| format!("{a} {r} {b}")),
        (number(), searched()).prop_map(|(a, b)| format!("{a} in {b}")),
        (text(), searched()).prop_map(|(a, b)| format!("{a} in {b}")),
        (list(), prop::sample::select(vec!["==", "!="]), list()).prop_map(|(a, r, b)| format!("{a} {r} {b}")),
        (text(), prop::sample::select(vec!["contains", "startsWith", "endsWith"]), text())
            .prop_map(|(a, f, b)| format!("{a}.{f}({b})")),
        (
            list(),
            prop::sample::select(vec!["all", "exists", "exists_one"]),
            prop::sample::select(vec!["x == 2", "x > 1", "x == 'a'", "x.n > 2", "has(x.n)", "x in [1, 'a']", "true"])
        )
            .prop_map(|(a, l, b)| format!("{a}.{l}(x, {b})")),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            (inner.clone(), prop::sample::select(vec!["&&", "||"]), inner.clone())
                .prop_map(|(a, o, b)| format!("({a}) {o} ({b})")),
            inner.clone().prop_map(|a| format!("!({a})")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("({a}) ? ({b}) : ({c})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_about_every_expression_both_know(source in truth()) {
        let ours = CelProgram::compile(&source).unwrap().matches(EVENT.as_bytes(), &mut 0);
        prop_assert_eq!(ours, theirs(&source), "{}", source);
    }
}
