//! The OpenAPI document: complete, and in step with the routes that it describes.
//!
//! [`contract_types`] and [`answers`] compare it with the contract and with the server's responses.

mod answers;
mod contract_types;
mod generators;
mod pages;
mod strict;

use super::Server;
use jsonschema::Validator;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The document of a running server.
pub(super) struct ApiDocument(pub(super) Value);

/// One operation of the document.
#[derive(Clone)]
pub(super) struct ApiOperation {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) id: String,
    pub(super) spec: Value,
}

impl ApiDocument {
    pub(super) async fn of(server: &Server) -> Self {
        let (status, document) = server.get("/v1/openapi.json").await;
        assert_eq!(status, 200);
        Self(document)
    }

    pub(super) fn operations(&self) -> Vec<ApiOperation> {
        let mut operations = Vec::new();
        for (path, methods) in self.0["paths"].as_object().unwrap() {
            for (method, spec) in methods.as_object().unwrap() {
                operations.push(ApiOperation {
                    method: method.to_uppercase().parse().unwrap(),
                    path: path.clone(),
                    id: spec["operationId"].as_str().unwrap().to_owned(),
                    spec: spec.clone(),
                });
            }
        }
        operations
    }

    /// The value that a reference points to.
    pub(super) fn at<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(reference) => {
                let found = self.0.pointer(reference.strip_prefix('#').unwrap());
                self.at(found.unwrap_or_else(|| panic!("{reference} is not defined")))
            }
            None => value,
        }
    }

    pub(super) fn schema(&self, name: &str) -> &Value {
        let schema = &self.0["components"]["schemas"][name];
        assert!(schema.is_object(), "there is no schema {name}");
        schema
    }

    /// The validator for a schema of this document.
    pub(super) fn validator(&self, schema: &Value) -> Validator {
        validator(schema, &self.0["components"])
    }

    /// The same, but it refuses members that the schema does not name.
    pub(super) fn strict_validator(&self, schema: &Value) -> Validator {
        let (mut schema, mut components) = (schema.clone(), json!({"schemas": self.0["components"]["schemas"]}));
        close(&mut schema);
        close(&mut components);
        validator(&schema, &components)
    }

    /// The parameters of an operation, with their references resolved.
    pub(super) fn parameters<'a>(&'a self, operation: &'a ApiOperation) -> Vec<&'a Value> {
        operation.spec["parameters"].as_array().into_iter().flatten().map(|parameter| self.at(parameter)).collect()
    }
}

fn validator(schema: &Value, components: &Value) -> Validator {
    // Loading all the components is slow; a schema without references does not need them.
    let alone = !schema.to_string().contains("$ref");
    let schemas = if alone { Value::Null } else { components["schemas"].clone() };
    let whole = json!({"allOf": [schema], "components": {"schemas": schemas}});
    let options = jsonschema::options().with_draft(jsonschema::Draft::Draft202012).should_validate_formats(true);
    options.build(&whole).unwrap_or_else(|error| panic!("{error}: {schema}"))
}

fn close(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if members.contains_key("properties") && !members.contains_key("additionalProperties") {
                members.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
            members.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => (),
    }
}

/// Fails with a list of everything that does not match.
pub(super) fn expect_valid(validator: &Validator, value: &Value, what: &str) {
    let errors: Vec<_> =
        validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{what}\n  {}\n{value:#}", errors.join("\n  "));
}

// The document is complete.

#[tokio::test]
async fn every_reference_leads_somewhere_and_every_operation_has_its_own_id() {
    let document = ApiDocument::of(&Server::start(&[])).await;
    assert_eq!(document.0["openapi"], "3.1.0");
    let mut used = BTreeSet::new();
    walk(&document.0, "", &mut |_, value| {
        if let Some(reference) = value["$ref"].as_str() {
            document.at(value);
            used.insert(reference.to_owned());
        }
    });
    for kind in ["schemas", "responses", "parameters", "headers"] {
        for name in document.0["components"][kind].as_object().unwrap().keys() {
            assert!(used.contains(&format!("#/components/{kind}/{name}")), "nothing refers to {kind}/{name}");
        }
    }
    let mut ids: Vec<_> = document.operations().into_iter().map(|operation| operation.id).collect();
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

#[tokio::test]
async fn everything_has_a_description_and_an_example() {
    let document = ApiDocument::of(&Server::start(&[])).await;
    let mut bare = Vec::new();
    let mut expect = |place: String, value: &Value, example: bool| {
        let said = value["description"].as_str().is_some_and(|text| text.len() > 3);
        let shown = !example || ["example", "examples"].iter().any(|name| value.get(name).is_some());
        if !said || !shown {
            bare.push(place);
        }
    };
    for operation in document.operations() {
        let ApiOperation { method, path, spec, .. } = &operation;
        expect(format!("{method} {path}"), spec, false);
        assert!(spec["summary"].is_string() && spec["tags"][0].is_string(), "{method} {path}");
        for parameter in document.parameters(&operation) {
            expect(format!("{method} {path}: {}", parameter["name"]), parameter, true);
        }
        for (status, response) in spec["responses"].as_object().unwrap() {
            expect(format!("{method} {path}: {status}"), document.at(response), false);
        }
    }
    for (name, header) in document.0["components"]["headers"].as_object().unwrap() {
        expect(format!("header {name}"), header, true);
    }
    walk(&document.0, "", &mut |place, value| {
        if let Some(bodies) = value.get("content") {
            for (media, content) in bodies.as_object().unwrap() {
                assert!(content.get("example").or(content.get("examples")).is_some(), "{place}: {media}");
            }
        }
        if is_schema(value) {
            expect(place.to_owned(), value, true);
        }
    });
    assert!(bare.is_empty(), "no description or no example:\n  {}", bare.join("\n  "));
}

#[tokio::test]
async fn every_example_fits_its_schema() {
    let document = ApiDocument::of(&Server::start(&[])).await;
    let mut count = 0;
    walk(&document.0, "", &mut |place, value| {
        let schema = if is_schema(value) { value } else { &value["schema"] };
        if !schema.is_object() {
            return;
        }
        let mut examples: Vec<&Value> = value.get("example").into_iter().collect();
        match &value["examples"] {
            Value::Array(several) => examples.extend(several),
            Value::Object(named) => examples.extend(named.values().map(|example| &example["value"])),
            _ => (),
        }
        examples.extend(value.get("default"));
        let validator = document.strict_validator(schema);
        for example in examples {
            expect_valid(&validator, example, place);
            count += 1;
        }
    });
    assert!(count > 300, "only {count} examples were found");
}

/// Whether a value of the document is a schema with its own type.
fn is_schema(value: &Value) -> bool {
    (value.get("type").is_some_and(|kind| kind.is_string() || kind.is_array()) && value.get("in").is_none())
        || value.get("anyOf").is_some()
}

/// Visits every object of the document, except inside examples.
fn walk(value: &Value, place: &str, visit: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(members) => {
            visit(place, value);
            for (name, member) in members {
                let is_map = place.ends_with("/properties") || place.ends_with("/schemas");
                if is_map || !matches!(name.as_str(), "example" | "examples" | "default" | "enum") {
                    walk(member, &format!("{place}/{name}"), visit);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, &format!("{place}/{index}"), visit);
            }
        }
        _ => (),
    }
}

// The document is in step with the routes.

/// The files that declare routes, with their text.
fn sources() -> Vec<(PathBuf, String)> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rest")];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => sources.push((path.clone(), std::fs::read_to_string(path).unwrap())),
            }
        }
    }
    sources
}

/// The methods and paths of every `.route("…", …)` in a text.
fn routes(text: &str) -> Vec<(Method, String)> {
    let mut routes = Vec::new();
    for piece in text.split(".route(").skip(1) {
        let (path, rest) = piece.trim_start().trim_start_matches('"').split_once('"').unwrap();
        let mut depth = 1;
        let end = rest.find(|c: char| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        let handlers = &rest[..end.unwrap()];
        for method in ["get", "post", "put", "patch", "delete"] {
            let called = |at: usize| !handlers[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            if handlers.match_indices(&format!("{method}(")).any(|(at, _)| called(at)) {
                routes.push((method.to_uppercase().parse().unwrap(), path.to_owned()));
            }
        }
    }
    routes
}

/// The verbs after a colon that a text handles: `Some("commit")` or `Some("finalise" | "deprecate")` after a split, and
/// the lists of `custom_methods.rs` that it names.
fn verbs(text: &str) -> BTreeSet<String> {
    let mut verbs = BTreeSet::new();
    let lists =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rest/custom_methods.rs")).unwrap();
    for list in lists.split("pub(crate) const OF_").skip(1) {
        let (name, rest) = list.split_once(':').unwrap();
        if text.contains(&format!("custom_methods::OF_{name}")) {
            let words = rest.split_once("&[\"").unwrap().1.split_once("\"]").unwrap().0;
            verbs.extend(words.split("\", \"").map(str::to_owned));
        }
    }
    for function in text.split("custom_methods::split(").skip(1).map(|rest| rest.split("\n}\n").next().unwrap()) {
        let arms = function.split("Some(\"").skip(1).filter_map(|rest| rest.split_once("\")").map(|(words, _)| words));
        verbs.extend(arms.flat_map(|words| words.split("\" | \"")).map(str::to_owned));
    }
    verbs
}

#[tokio::test]
async fn the_document_and_the_routes_name_the_same_operations() {
    let document = ApiDocument::of(&Server::start(&[])).await;
    let documented: BTreeSet<_> =
        document.operations().into_iter().map(|it| (it.method.to_string(), it.path)).collect();
    let mut routed = BTreeSet::new();
    for (file, text) in sources() {
        let known = verbs(&text);
        let mut met = BTreeSet::new();
        for (method, path) in routes(&text) {
            let behind_a_colon: Vec<_> = known.iter().map(|verb| format!("{path}:{verb}")).collect();
            let keys = behind_a_colon.iter().map(|path| (method.to_string(), path.clone()));
            let keys: Vec<_> = keys.filter(|key| documented.contains(key)).collect();
            met.extend(keys.iter().map(|(_, path)| path.rsplit_once(':').unwrap().1.to_owned()));
            // A POST route to one resource only dispatches to its verbs, if the file has verbs.
            let is_door = method == Method::POST
                && path.ends_with('}')
                && (text.contains("custom_methods::split") || text.contains("custom_methods::OF_"));
            let key = (method.to_string(), path);
            assert!(is_door || documented.contains(&key), "{}: {key:?} is not in the document", file.display());
            routed.extend(keys);
            routed.insert(key);
        }
        assert_eq!(known, met, "{}: verbs, and those of them in the document", file.display());
    }
    for key in &documented {
        assert!(routed.contains(key), "{key:?} is in the document and nowhere else");
    }
}

#[tokio::test]
async fn parameters_that_are_taken_are_in_the_document() {
    let document = ApiDocument::of(&Server::start(&[])).await;
    let operations = document.operations();
    let queries = operations.iter().flat_map(|operation| document.parameters(operation));
    let documented: BTreeSet<_> =
        queries.filter(|it| it["in"] == "query").map(|it| it["name"].as_str().unwrap().to_owned()).collect();
    let mut taken = BTreeSet::new();
    for (_, text) in sources() {
        for call in text.split("request.allow_").skip(1) {
            let list = call.split_once("(&[").unwrap().1.split(']').next().unwrap();
            taken.extend(list.split('"').skip(1).step_by(2).map(str::to_owned));
        }
    }
    assert!(taken.len() > 10, "{taken:?}");
    let missing: Vec<_> = taken.difference(&documented).collect();
    assert!(missing.is_empty(), "accepted, but not in the document: {missing:?}");
}

// How the document is served.

#[tokio::test]
async fn the_document_is_sent_once_and_known_by_its_tag_then() {
    let server = Server::start(&[]);
    let first = server.request(Method::GET, "/v1/openapi.json").send().await.unwrap();
    let tag = first.headers()["etag"].clone();
    assert_eq!(first.headers()["content-type"], "application/json");
    for known in [tag.to_str().unwrap().to_owned(), format!("\"other\", W/{}", tag.to_str().unwrap()), "*".to_owned()] {
        let again = server.request(Method::GET, "/v1/openapi.json").header("if-none-match", &known);
        let again = again.send().await.unwrap();
        assert_eq!((again.status().as_u16(), &again.headers()["etag"]), (304, &tag), "{known}");
    }
    let other = server.request(Method::GET, "/v1/openapi.json").header("if-none-match", "\"other\"");
    assert_eq!(other.send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn limits_in_the_document_are_those_in_force() {
    let folder = tempfile::TempDir::new().unwrap();
    let config = folder.path().join("config.yaml");
    let text = "modules:\n  event_broker:\n    consumer: {default_limit: 25, max_limit: 200}\n    polling: \
        {default_timeout_secs: 5, max_timeout_secs: 10}\n    batch: {max_size: 7}\n";
    std::fs::write(&config, text).unwrap();
    let server = Server::start(&["--config", config.to_str().unwrap()]);
    let document = ApiDocument::of(&server).await;
    let limit = &document.0["components"]["parameters"]["limit"]["schema"];
    assert_eq!((&limit["maximum"], &limit["default"]), (&json!(200), &json!(25)));
    let poll = &document.0["paths"]["/v1/events:poll"]["get"]["parameters"];
    let timeout = poll.as_array().unwrap().iter().find(|it| it["name"] == "timeout").unwrap();
    assert_eq!((&timeout["schema"]["maximum"], &timeout["schema"]["default"]), (&json!(10), &json!(5)));
    assert_eq!(document.schema("BatchInput")["properties"]["events"]["maxItems"], 7);
}

#[tokio::test]
async fn the_page_for_people_needs_nothing_from_elsewhere() {
    let server = Server::start(&[]);
    let page = server.request(Method::GET, "/docs").send().await.unwrap();
    assert_eq!((page.status().as_u16(), page.url().path()), (200, "/docs/"));
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'; script-src 'self';") && policy.contains("connect-src 'self'"));
    let html = page.text().await.unwrap();
    let fetched = html.split(['"']).filter(|text| text.ends_with(".js") || text.ends_with(".css")).collect::<Vec<_>>();
    assert!(fetched.len() >= 4 && !html.contains("://"), "{html}");
    for name in fetched {
        let file = server.request(Method::GET, &format!("/docs/{}", name.trim_start_matches("./")));
        let file = file.send().await.unwrap();
        assert_eq!(
            (file.status().as_u16(), file.headers()["content-security-policy"].to_str().unwrap()),
            (200, &*policy)
        );
    }
    let (_, script) = server.get("/docs/swagger-initializer.js").await;
    assert!(script.as_str().unwrap().contains("\"url\": \"/v1/openapi.json\""), "{script}");
    super::expect_problem(server.get("/docs/nothing.js").await, 404, "EVENT_BROKER_NOT_FOUND");
    let root = server.request(Method::GET, "/").send().await.unwrap();
    assert_eq!((root.status().as_u16(), root.url().path()), (200, "/docs/"));
}
