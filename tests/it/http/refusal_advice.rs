//! Refusals say what to do: the allowed values, the nearest name, the difference, the value to write.

use super::{CREATED, Server, TENANT, TOPIC, expect_problem};
use serde_json::{Value, json};

/// The text of the only violation of a refused request, after its pointer.
async fn told(server: &Server, path: &str, body: &Value) -> String {
    let (status, problem) = server.post(path, body).await;
    assert_eq!(status, 422, "{problem}");
    let errors = problem["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1, "{problem}");
    format!("{} {}", errors[0]["pointer"].as_str().unwrap(), errors[0]["detail"].as_str().unwrap())
}

#[tokio::test]
async fn a_refusal_names_the_values_the_nearest_name_and_what_to_write() {
    let server = Server::start(&[]);
    let schema = json!({"properties": {"size": {"enum": ["S", "M", "L"]}}});
    let (status, made) = server.post("/v1/event-types", &json!({"id": CREATED, "dataSchema": schema})).await;
    assert_eq!(status, 201, "{made}");
    let event = |event_type: &str, data: Value| json!({"type": event_type, "source": "t", "subject": "s", "tenant": TENANT, "data": data});
    let wrong = told(&server, "/v1/events", &event(CREATED, json!({"size": "secret"}))).await;
    assert_eq!(wrong, r#"/data/size must be one of "S", "M", "L""#);
    let slip = CREATED.replace("created", "craeted");
    let wrong = told(&server, "/v1/events", &event(&slip, json!({}))).await;
    assert!(wrong.starts_with("/type ") && wrong.ends_with(&format!("Did you mean `{CREATED}`?")), "{wrong}");
    let wrong = told(&server, "/v1/events", &event("another.name", json!({}))).await;
    assert!(wrong.ends_with("(POST /v1/event-types)."), "{wrong}");
    let wrong = told(&server, "/v1/topics", &json!({"id": "shop.orders"})).await;
    assert_eq!(wrong, "/streaming is missing; write `true` to keep the topic in the broker's default log");
    let wrong = told(&server, "/v1/topics", &json!({"id": "shop.orders", "streaming": "yes"})).await;
    assert_eq!(wrong, "/streaming must be `true`, or an object of `type`, `location` and `retention`");
    let subscription = json!({"code": "mail", "topic": TOPIC, "target": "https://example.com/"});
    assert_eq!(server.post("/v1/subscriptions", &subscription).await.0, 201);
    let wrong = told(&server, "/v1/subscriptions/mail:replay", &json!({"from": "yesterday"})).await;
    assert!(wrong.starts_with("/from must be a sequence (a whole number) or a time"), "{wrong}");
    let wrong =
        told(&server, "/v1/subscriptions", &json!({"code": "x", "topic": TOPIC, "target": "http://127.0.0.1/"})).await;
    assert!(wrong.contains("`dispatch.allow_private_targets: true`"), "{wrong}");
}

#[tokio::test]
async fn another_definition_of_a_known_name_is_refused_with_what_differs() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    let other = json!({"id": CREATED, "description": "other", "dataSchema": {"type": "object"}});
    let refused = expect_problem(server.post("/v1/event-types", &other).await, 409, "EVENT_BROKER_ALREADY_EXISTS");
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("another `dataSchema`, `description`.") && detail.contains("/versions"), "{detail}");
    let topic = |retention: &str| json!({"id": "shop.orders", "streaming": true, "retention": retention});
    assert_eq!(server.post("/v1/topics", &topic("P1D")).await.0, 201);
    let refused = expect_problem(server.post("/v1/topics", &topic("P2D")).await, 409, "EVENT_BROKER_ALREADY_EXISTS");
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("another `retention`.") && detail.contains("PATCH /v1/topics/{id}"), "{detail}");
}

#[tokio::test]
async fn a_body_that_is_not_json_is_told_by_its_column_and_by_its_line_where_it_has_several() {
    let server = Server::start(&[]);
    for (body, place) in [("{\"a\" 1}", "look at column 6."), ("{\n \"a\" 1}", "look at line 2, column 6.")] {
        let request = server.request(reqwest::Method::POST, "/v1/topics").header("content-type", "application/json");
        let refused = expect_problem(super::answer(request.body(body)).await, 400, "EVENT_BROKER_MALFORMED");
        assert!(refused["detail"].as_str().unwrap().ends_with(place), "{refused}");
    }
}

/// A number beyond 64 bits is stored as it was sent, and can be read, filtered and validated; one beyond the largest
/// double is refused with its pointer, at any place.
#[tokio::test]
async fn numbers_are_stored_as_sent_or_refused_by_their_place() {
    let server = Server::start(&[]);
    let schema = json!({"properties": {"n": {"type": "number", "minimum": 5}, "i": {"type": "integer"}}});
    let (status, made) = server.post("/v1/event-types", &json!({"id": CREATED, "dataSchema": schema})).await;
    assert_eq!(status, 201, "{made}");
    let send = async |path: &str, body: String| {
        let request = server.request(reqwest::Method::POST, path).header("content-type", "application/json");
        let response = request.body(body).send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    };
    let event =
        |data: &str| format!(r#"{{"type":"{CREATED}","source":"t","subject":"s","tenant":"{TENANT}","data":{data}}}"#);
    let exact = r#"{"n":123456789012345678901234567890.5,"i":123456789012345678901234567890,"f":1.10,"e":1E+2}"#;
    let (status, stored) = send("/v1/events", event(exact)).await;
    assert!(status == 201 && stored.contains(exact), "{stored}");
    for filter in ["data.n%20%3E%201e20", "data.i%20%3E%201e20", "data.f%20%3D%3D%201.1"] {
        let path = format!("/v1/events?topic={TOPIC}&offset=0&filter={filter}");
        let response = server.request(reqwest::Method::GET, &path).send().await.unwrap();
        let page = response.text().await.unwrap();
        assert!(page.contains(exact), "{filter}: {page}");
    }
    for (path, body, pointer) in [
        ("/v1/events", event(r#"{"a":[1,{"b/c":-1e400}]}"#), "/data/a/1/b~1c"),
        ("/v1/event-types", r#"{"id":"a.b","dataSchema":{"maximum":1e400}}"#.to_owned(), "/dataSchema/maximum"),
        ("/v1/events", event("{\"n\":1}"), "/data/n"),
    ] {
        let (status, problem) = send(path, body).await;
        let problem: Value = serde_json::from_str(&problem).unwrap();
        assert_eq!((status.as_u16(), &problem["errors"][0]["pointer"]), (422, &json!(pointer)), "{problem}");
    }
}

#[tokio::test]
async fn work_that_is_given_up_is_a_line_of_the_log() {
    let server = Server::start(&[]);
    server.register(CREATED).await;
    assert_eq!(server.post("/v1/events", &super::event(CREATED, "a")).await.0, 201);
    let claim = json!({"handler": "billing", "topic": TOPIC, "sequence": 1});
    let (_, taken) = server.post("/v1/claims", &claim).await;
    let (id, token) = (taken["claim"]["id"].as_str().unwrap(), &taken["claim"]["token"]);
    let failure = json!({"token": token, "error": {"class": "Poison", "message": "canary"}, "retryable": false});
    for _ in 0..2 {
        let (status, failed) = server.post(&format!("/v1/claims/{id}:fail"), &failure).await;
        assert_eq!(status, 200, "{failed}");
    }
    let logged = server.logged();
    let lines: Vec<_> =
        logged.lines().filter(|line| line.contains("a claim was given up and is a dead letter")).collect();
    assert_eq!(lines.len(), 1, "{logged}");
    assert!(["INFO", "billing", "Poison"].iter().all(|word| lines[0].contains(word)), "{logged}");
    assert!(!logged.contains("canary"), "{logged}");
}
