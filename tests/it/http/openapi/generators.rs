//! Constructs that OpenAPI 3.1 allows but client generators fail on (openapi-generator, oapi-codegen).

use super::ApiDocument;
use crate::http::Server;
use serde_json::Value;

/// Calls `look` with every schema below a value, and its place.
fn each_schema(value: &Value, place: &str, look: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(members) => {
            look(place, value);
            for (name, member) in members.iter().filter(|(name, _)| !is_data(name)) {
                each_schema(member, &format!("{place}/{name}"), look);
            }
        }
        Value::Array(items) => {
            let numbered = items.iter().enumerate();
            numbered.for_each(|(index, item)| each_schema(item, &format!("{place}/{index}"), look));
        }
        _ => (),
    }
}

/// Whether a member holds JSON that is not a schema.
fn is_data(name: &str) -> bool {
    ["example", "examples", "value", "default", "enum"].contains(&name)
}

#[tokio::test]
async fn a_type_is_one_type_or_one_type_and_null() {
    let document = ApiDocument::of(&Server::start(&[])).await;
    let mut odd = Vec::new();
    each_schema(&document.0, "", &mut |place, schema| {
        let Some(types) = schema["type"].as_array() else { return };
        if types.len() != 2 || types[1] != "null" {
            odd.push(format!("{place}: {types:?}"));
        }
    });
    assert!(odd.is_empty(), "{odd:#?}");
}

#[tokio::test]
async fn no_member_has_null_for_its_only_type() {
    let document = ApiDocument::of(&Server::start(&[])).await;
    let mut odd = Vec::new();
    each_schema(&document.0, "", &mut |place, schema| {
        for (name, member) in schema["properties"].as_object().into_iter().flatten() {
            if member["type"] == "null" {
                odd.push(format!("{place}/{name}"));
            }
        }
    });
    assert!(odd.is_empty(), "{odd:#?}");
}

#[tokio::test]
async fn words_have_letters_to_make_a_name_of() {
    let document = ApiDocument::of(&Server::start(&[])).await;
    let mut odd = Vec::new();
    each_schema(&document.0, "", &mut |place, schema| {
        let words = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
        odd.extend(words.filter(|word| !word.contains(char::is_alphanumeric)).map(|word| format!("{place}: {word}")));
    });
    assert!(odd.is_empty(), "{odd:#?}");
}

/// openapi-generator reads the alternatives as the whole schema, and loses the members beside them.
#[tokio::test]
async fn no_alternatives_stand_beside_members() {
    let document = ApiDocument::of(&Server::start(&[])).await;
    let mut odd = Vec::new();
    each_schema(&document.0, "", &mut |place, schema| {
        let has = |word: &str| schema.get(word).is_some();
        if has("properties") && (has("anyOf") || has("oneOf") || has("allOf")) {
            odd.push(place.to_owned());
        }
    });
    assert!(odd.is_empty(), "{odd:#?}");
}

/// openapi-generator's Go has a function `NewEvent` for every type `Event`.
#[tokio::test]
async fn no_schema_is_named_like_the_constructor_of_another() {
    let document = ApiDocument::of(&Server::start(&[])).await;
    let names = document.0["components"]["schemas"].as_object().unwrap();
    let odd: Vec<_> = names.keys().filter(|name| names.contains_key(&format!("New{name}"))).collect();
    assert!(odd.is_empty(), "{odd:?}");
}

/// Without a name, oapi-codegen leaves the types of a shared parameter undefined, and openapi-generator's Go rejects a
/// default.
#[tokio::test]
async fn the_alternatives_of_a_parameter_have_a_name() {
    let document = ApiDocument::of(&Server::start(&[])).await;
    let mut odd = Vec::new();
    each_schema(&document.0, "", &mut |place, value| {
        if value.get("in").is_some() && value["schema"].get("anyOf").is_some() {
            odd.push(place.to_owned());
        }
    });
    assert!(odd.is_empty(), "{odd:#?}");
}

/// A generator reads a whole number without a format as a 32-bit integer.
#[tokio::test]
async fn large_numbers_are_said_to_have_64_bits() {
    let document = ApiDocument::of(&Server::start(&[])).await;
    let mut odd = Vec::new();
    each_schema(&document.0, "", &mut |place, schema| {
        let is_large = schema["maximum"].as_u64().is_some_and(|most| most > i32::MAX as u64);
        if is_large && schema["format"] != "int64" {
            odd.push(place.to_owned());
        }
    });
    assert!(odd.is_empty(), "{odd:#?}");
}

#[tokio::test]
async fn shared_parameters_are_not_named_like_schemas() {
    let document = ApiDocument::of(&Server::start(&[])).await;
    let names = |kind: &str| {
        let all = document.0["components"][kind].as_object().unwrap().keys();
        // The type name that a generator derives from it.
        all.map(|name| name.to_lowercase().replace(['-', '_', '.'], "")).collect::<Vec<_>>()
    };
    let (schemas, parameters) = (names("schemas"), names("parameters"));
    let both: Vec<_> = parameters.iter().filter(|name| schemas.contains(name)).collect();
    assert!(both.is_empty(), "{both:?}");
}
