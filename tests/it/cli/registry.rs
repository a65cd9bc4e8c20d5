//! `topics`, `types` and `consumers`: every verb, with output for people and for programs.

use super::{ask, feed, lines, pretend, response, run, server};
use crate::http::{CREATED, TOPIC};
use serde_json::{Value, json};
use tempfile::TempDir;

const ORDERS: &str = "gts.hx.core.events.topic.v1~vendor.orders.v1";

#[test]
fn a_topic_is_made_shown_listed_and_changed() {
    let server = server();
    let create =
        ["topics", "create", ORDERS, "--retention", "P30D", "--description", "Orders", "--on-payload-mismatch", "flag"];
    let made = ask(&server, &[&create[..], &["--json"]].concat()).expect(0).json();
    assert_eq!((&made[0]["id"], &made[0]["retention"]), (&json!(ORDERS), &json!("P30D")));
    assert_eq!(ask(&server, &[&create[..], &["--json"]].concat()).expect(0).json(), made, "the same again");
    let refused = ask(&server, &["topics", "create", ORDERS, "--retention", "P1D"]).expect(1);
    assert!(refused.err.contains("409 EVENT_BROKER_ALREADY_EXISTS"), "{}", refused.err);
    let refused = ask(&server, &["topics", "change", ORDERS, "--retention", "soon"]).expect(1);
    assert!(refused.err.contains("/retention"), "{}", refused.err);
    let changed = ask(&server, &["topics", "change", ORDERS, "--retention", "P90D", "--json"]).expect(0).json();
    assert_eq!((&changed[0]["retention"], &changed[0]["description"]), (&json!("P90D"), &json!("Orders")));
    let shown = ask(&server, &["topics", "show", ORDERS]).expect(0).out;
    assert!(shown.lines().any(|line| line.split_whitespace().eq(["retention", "P90D"])), "{shown}");
    assert_eq!(ask(&server, &["topics", "show", ORDERS, "--json"]).expect(0).json(), changed);
    let remove = ["topics", "change", ORDERS, "--remove", "description", "--json"];
    let removed = ask(&server, &remove).expect(0).json();
    assert_eq!((&removed[0]["retention"], &removed[0]["description"]), (&json!("P90D"), &Value::Null));
    let both = ["topics", "change", ORDERS, "--description", "Orders", "--remove", "description"];
    assert!(ask(&server, &both).expect(2).err.contains("description"));
    ask(&server, &both[..5]).expect(0);
    let table = ask(&server, &["topics", "list"]).expect(0).out;
    let rows: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["TOPIC", "KEPT", "STORED", "CREATED", "DESCRIPTION"]);
    assert_eq!((rows[1][0], rows[2][0], rows[2][1], rows[2][5]), (TOPIC, ORDERS, "P90D", "Orders"), "{table}");
    let matching = ask(&server, &["topics", "list", "gts.hx.core.events.topic.v1~vendor.*", "--json"]).expect(0).json();
    assert_eq!(matching, changed);
}

#[test]
fn a_topic_is_published_again_compacted_and_trimmed() {
    let server = server();
    ask(&server, &["topics", "create", ORDERS, "--cleanup", "compact"]).expect(0);
    for subject in ["a", "b", "a"] {
        let event = crate::http::event(CREATED, subject).to_string();
        feed(&server, &["publish", "--file", "-"], &event).expect(0);
    }
    let count =
        |arguments: &[&str]| ask(&server, &[arguments, &["--json"]].concat()).expect(0).json()[0]["count"].clone();
    assert_eq!(count(&["topics", "republish", TOPIC, "--from", "1", "--to", "2", "--dry-run"]), 2);
    assert_eq!(count(&["topics", "republish", TOPIC, "--from", "1", "--to", "2"]), 2);
    let refused = ask(&server, &["topics", "republish", TOPIC, "--from", "1", "--to", "2", "--group", "g"]).expect(1);
    assert!(refused.err.contains("/name"), "{}", refused.err);
    assert_eq!(count(&["topics", "compact", ORDERS]), 0);
    assert_eq!(count(&["topics", "trim", TOPIC, "--before", "2020-01-01T00:00:00Z"]), 0);
    assert_eq!(count(&["topics", "trim", TOPIC, "--through", "4"]), 4);
}

/// A name may contain colons, and end like a verb of its route.
#[test]
fn codes_are_taken_printed_and_never_taken_for_verbs() {
    let server = server();
    let topic = "shop:orders:trim";
    ask(&server, &["topics", "create", topic, "--deduplicate-by", "id"]).expect(0);
    ask(&server, &["topics", "create", "shop:orders"]).expect(0);
    let shown = ask(&server, &["topics", "show", topic, "--json"]).expect(0).json();
    assert_eq!((&shown[0]["id"], &shown[0]["deduplicateBy"]), (&json!(topic), &json!("id")));
    ask(&server, &["topics", "change", topic, "--description", "Orders"]).expect(0);
    let event_type = json!({"id": "shop:order:archive", "topic": topic}).to_string();
    feed(&server, &["types", "register"], &event_type).expect(0);
    let shown = ask(&server, &["types", "show", "shop:order:archive", "--json"]).expect(0).json();
    assert_eq!((&shown[0]["id"], &shown[0]["topic"]), (&json!("shop:order:archive"), &json!(topic)));
    let event = crate::http::event("shop:order:archive", "o-1").to_string();
    feed(&server, &["publish", "--file", "-"], &event).expect(0);
    let printed = ask(&server, &["tail", topic, "--no-follow"]).expect(0).out;
    assert!(printed.contains(" shop:order:archive "), "{printed}");
    let trimmed = ask(&server, &["topics", "trim", topic, "--through", "1", "--json"]).expect(0).json();
    assert_eq!(trimmed[0]["count"], 1);
    let rows = ask(&server, &["topics", "list", "shop:orders:*"]).expect(0).out;
    assert!(rows.contains(topic) && !rows.contains(TOPIC), "{rows}");
    ask(&server, &["types", "delete", "shop:order:archive"]).expect(1);
    ask(&server, &["types", "archive", "shop:order:archive"]).expect(0);
    let said = ask(&server, &["types", "delete", "shop:order:archive"]).expect(0).out;
    assert_eq!(said, "deleted shop:order:archive\n");
    ask(&server, &["types", "delete", "shop:order:archive"]).expect(1);
    let planned = ask(&server, &["topics", "delete", topic, "--dry-run", "--json"]).expect(0).json();
    assert_eq!(planned[0]["count"], 0, "{planned:?}");
    let said = ask(&server, &["topics", "delete", topic, "--force", "--json"]).expect(0).json();
    assert_eq!(said[0]["deleted"], topic);
    ask(&server, &["topics", "show", topic]).expect(1);
}

#[test]
fn topics_come_from_a_file_too_as_they_were_printed() {
    let (first, second) = (server(), server());
    ask(&first, &["topics", "create", ORDERS, "--cleanup", "delete"]).expect(0);
    ask(&first, &["topics", "create", "gts.hx.core.events.topic.v1~vendor.m.v1", "--storage", "memory"]).expect(0);
    ask(&first, &["topics", "create", "gts.hx.core.events.topic.v1~vendor.n.v1", "--location", "a/b"]).expect(0);
    let printed = ask(&first, &["topics", "list", "--json"]).expect(0);
    feed(&second, &["topics", "create", "--file", "-"], &printed.out).expect(0);
    let without_times = |rows: Vec<Value>| -> Vec<Value> {
        let strip = |mut row: Value| {
            row.as_object_mut().unwrap().remove("createdAt").unwrap();
            row
        };
        rows.into_iter().map(strip).collect()
    };
    let copied = ask(&second, &["topics", "list", "--json"]).expect(0);
    assert_eq!(without_times(copied.json()), without_times(printed.json()));
    assert!(copied.json().len() == 4 && copied.out.contains(r#""streaming":{"location":"a/b"}"#), "{}", copied.out);
    assert!(ask(&second, &["topics", "list"]).expect(0).out.contains("  memory  "));
}

#[test]
fn lists_are_read_to_their_end() {
    let server = server();
    for number in 0..120 {
        let id = format!("gts.hx.core.events.topic.v1~vendor.t{number}.v1");
        ask(&server, &["topics", "create", &id]).expect(0);
    }
    assert_eq!(ask(&server, &["topics", "list", "--json"]).expect(0).json().len(), 121);
}

#[test]
fn segments_are_listed() {
    let server = server();
    feed(&server, &["publish", "-"], &lines(10)).expect(0);
    let segments = ask(&server, &["topics", "segments", TOPIC, "--json"]).expect(0).json();
    assert_eq!((&segments[0]["startSequence"], &segments[0]["endSequence"]), (&json!(1), &json!(10)));
    assert_eq!(ask(&server, &["topics", "segments", TOPIC, "--descending", "--json"]).expect(0).json(), segments);
    let table = ask(&server, &["topics", "segments", TOPIC]).expect(0).out;
    assert!(table.lines().nth(1).unwrap().split_whitespace().take(3).eq(["1", "10", "10"]), "{table}");
}

#[test]
fn types_are_registered_from_one_an_array_or_lines() {
    let server = server();
    let id = |name: &str| format!("gts.hyperspot.core.events.type.v1~vendor.shop.{name}.v1");
    let one = |name: &str| json!({"id": id(name), "topic": TOPIC, "dataSchema": {"type": "object"}}).to_string();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("type.json");
    std::fs::write(&file, one("a")).unwrap();
    let run = ask(&server, &["types", "register", file.to_str().unwrap()]).expect(0);
    assert_eq!(run.out, format!("registered {}\n", id("a")));
    feed(&server, &["types", "register", "-"], &format!("[{},{}]", one("b"), one("c"))).expect(0);
    let made = feed(&server, &["types", "register", "--json"], &format!("{}\n{}", one("d"), one("a"))).expect(0).json();
    assert_eq!(made.iter().map(|it| &it["id"]).collect::<Vec<_>>(), [&json!(id("d")), &json!(id("a"))]);
    let bad = json!({"id": id("e"), "dataSchema": {"type": "nonsense"}});
    let run = feed(&server, &["types", "register"], &format!("{bad}\n{}", one("f"))).expect(1);
    assert!(run.err.contains(&format!("{} was refused: ", id("e"))), "{}", run.err);
    assert!(run.err.contains("1 of 2 event types were refused") && run.out.contains(&id("f")), "{}", run.err);
    let listed =
        ask(&server, &["types", "list", "gts.hyperspot.core.events.type.v1~vendor.shop.*", "--json"]).expect(0);
    assert_eq!(listed.json().len(), 5);
    let table = ask(&server, &["types", "list"]).expect(0).out;
    assert!(table.contains(CREATED) && table.starts_with(" TYPE "), "{table}");
    let shown: Value = serde_json::from_str(&ask(&server, &["types", "show", &id("a")]).expect(0).out).unwrap();
    assert_eq!(shown["dataSchema"], json!({"type": "object"}));
    // The printed definition can be registered on another broker.
    let other = super::server();
    let printed = ask(&server, &["types", "list", "--json"]).expect(0);
    feed(&other, &["types", "register", "-"], &printed.out).expect(0);
    assert_eq!(ask(&other, &["types", "list", "--json"]).expect(0).json().len(), printed.json().len());
}

#[test]
fn each_verb_asks_what_the_api_has_for_it() {
    let folder = TempDir::new().unwrap();
    let (schema, proto) = (folder.path().join("schema.json"), folder.path().join("schema.proto"));
    std::fs::write(&schema, r#"{"type":"object"}"#).unwrap();
    std::fs::write(&proto, "syntax = \"proto3\";").unwrap();
    let (schema, proto) = (schema.to_str().unwrap(), proto.to_str().unwrap());
    let add = json!({"version": "1.1", "schemaType": "JSON_SCHEMA", "schema": {"type": "object"}});
    let add_proto =
        json!({"version": "2.0", "schemaType": "PROTO", "schema": "syntax = \"proto3\";", "mimeType": "a/b"});
    let create = json!({"consumerGroup": "g", "topic": "gts.t", "types": ["gts.a*", "gts.b"], "subjectTypes": ["gts.s"],
        "CEL": "true", "sessionTimeout": "PT5M", "distribution": "shared"});
    for (arguments, line, body) in [
        (&["types", "add-version", "gts.a~b", "1.1", schema][..], "POST /v1/event-types/gts.a~b/versions", add),
        (
            &["types", "add-version", "gts.a", "2.0", proto, "--schema-type", "PROTO", "--mime-type", "a/b"],
            "POST /v1/event-types/gts.a/versions",
            add_proto,
        ),
        (&["types", "finalise", "gts.a", "1.1"], "POST /v1/event-types/gts.a/versions/1.1:finalise", json!({})),
        (&["types", "deprecate", "gts.a", "1.1"], "POST /v1/event-types/gts.a/versions/1.1:deprecate", json!({})),
        (&["types", "archive", "gts.a"], "POST /v1/event-types/gts.a:archive", json!({})),
        (&["types", "list", "gts.a*", "--topic", "gts.t"], "GET /v1/event-types?type=gts.a*&topic=gts.t", Value::Null),
        (
            &[
                "consumers",
                "create",
                "--group",
                "g",
                "--topic",
                "gts.t",
                "--type",
                "gts.a*",
                "--type",
                "gts.b",
                "--subject-type",
                "gts.s",
                "--filter",
                "true",
                "--session-timeout",
                "PT5M",
                "--distribution",
                "shared",
            ],
            "POST /v1/consumers",
            create,
        ),
        (&["consumers", "commit", "id", "7"], "POST /v1/consumers/id:commit", json!({"offset": 7})),
        (&["consumers", "list", "--group", "a b"], "GET /v1/consumers?consumerGroup=a+b", Value::Null),
        (&["consumers", "group", "a/b c"], "GET /v1/consumer-groups/a%2Fb%20c", Value::Null),
        (&["claims", "handler", "a/b c"], "GET /v1/handlers/a%2Fb%20c", Value::Null),
        (&["claims", "list", "a b"], "GET /v1/claims?handler=a+b", Value::Null),
        (
            &["dead-letters", "list", "--name", "b", "--topic", "gts.t", "--resolved"],
            "GET /v1/dead-letters?name=b&topic=gts.t&status=all",
            Value::Null,
        ),
        (&["dead-letters", "show", "id"], "GET /v1/dead-letters/id", Value::Null),
        (&["dead-letters", "redrive", "id"], "POST /v1/dead-letters/id:redrive", json!({})),
        (
            &["dead-letters", "redrive", "id", "--data", "{\"n\":2}", "--dry-run", "--reason", "r"],
            "POST /v1/dead-letters/id:redrive",
            json!({"override": {"data": {"n": 2}}, "dryRun": true, "reason": "r"}),
        ),
        (
            &["dead-letters", "redrive", "id", "--new-event-id"],
            "POST /v1/dead-letters/id:redrive",
            json!({"override": {"newEventId": true}}),
        ),
        (
            &["dead-letters", "redrive", "--all", "--name", "b", "--dry-run"],
            "POST /v1/dead-letters:redrive",
            json!({"name": "b", "dryRun": true}),
        ),
        (
            &["dead-letters", "discard", "id", "--reason", "r"],
            "POST /v1/dead-letters/id:discard",
            json!({"reason": "r"}),
        ),
        (
            &["dead-letters", "discard", "--all", "--source", "handler", "--reason", "r"],
            "POST /v1/dead-letters:discard",
            json!({"source": "handler", "reason": "r"}),
        ),
        (&["projections", "get", "a/b c"], "GET /v1/projections/a%2Fb%20c", Value::Null),
        (&["projections", "reset", "p"], "POST /v1/projections/p:reset", json!({"offset": 0})),
        (&["projections", "reset", "p", "--to", "7"], "POST /v1/projections/p:reset", json!({"offset": 7})),
        (
            &["consumers", "reset", "g", "--topic", "gts.t", "--to", "earliest"],
            "POST /v1/consumer-groups/g:reset",
            json!({"topic": "gts.t", "offset": "earliest"}),
        ),
        (
            &["consumers", "reset", "g", "--topic", "gts.t", "--to", "12"],
            "POST /v1/consumer-groups/g:reset",
            json!({"topic": "gts.t", "offset": 12}),
        ),
        (
            &["consumers", "reset", "g", "--topic", "gts.t", "--time", "2026-01-01T00:00:00Z"],
            "POST /v1/consumer-groups/g:reset",
            json!({"topic": "gts.t", "time": "2026-01-01T00:00:00Z"}),
        ),
    ] {
        let (url, requests) = pretend(|_, _| response("200 OK", "", r#"{"items":[],"done":"yes"}"#));
        let run = run(&[arguments, &["--url", &url, "--json"]].concat()).expect(0);
        let request = requests.recv().unwrap();
        assert!(request.starts_with(&format!("{line} HTTP/1.1\r\n")), "{line}: {request}");
        let sent = request.split_once("\r\n\r\n").unwrap().1;
        let sent: Value = if sent.is_empty() { Value::Null } else { serde_json::from_str(sent).unwrap() };
        assert_eq!(sent, body, "{line}");
        if line.starts_with("POST") {
            assert_eq!(run.json()[0]["done"], "yes", "{line}");
        }
    }
}

#[test]
fn a_consumer_lives_commits_and_goes() {
    let server = server();
    feed(&server, &["publish", "-"], &lines(10)).expect(0);
    let create = ["consumers", "create", "--group", "billing", "--topic", TOPIC, "--session-timeout", "PT1H", "--json"];
    let consumer = ask(&server, &create).expect(0).json().remove(0);
    let id = consumer["id"].as_str().unwrap();
    assert_eq!(ask(&server, &["consumers", "show", id, "--json"]).expect(0).json()[0]["topic"], TOPIC);
    assert!(ask(&server, &["consumers", "show", id]).expect(0).out.contains("PT1H"));
    assert!(ask(&server, &["consumers", "list", "--group", "billing"]).expect(0).out.contains(id));
    assert_eq!(ask(&server, &["consumers", "list", "--group", "others", "--json"]).expect(0).out, "");
    let committed = ask(&server, &["consumers", "commit", id, "4", "--json"]).expect(0).json();
    assert_eq!((&committed[0]["committedOffset"], &committed[0]["lag"]), (&json!(4), &json!(6)));
    let row = ["billing", TOPIC, "4", "10", "6", "1"];
    let groups = ask(&server, &["consumers", "groups"]).expect(0).out;
    assert!(groups.lines().nth(1).unwrap().split_whitespace().eq(row), "{groups}");
    let group = ask(&server, &["consumers", "group", "billing"]).expect(0).out;
    assert!(group.contains(id) && group.contains("IN FLIGHT"), "{group}");
    let reset = ["consumers", "reset", "billing", "--topic", TOPIC];
    for (to, offset) in [(&["--to", "latest"], 10), (&["--to", "earliest"], 0), (&["--to", "3"], 3)] {
        let moved = ask(&server, &[&reset[..], to, &["--json"]].concat()).expect(0).json();
        assert_eq!(moved[0]["topics"][0]["committedOffset"], offset, "{to:?}");
    }
    let refused = ask(&server, &[&reset[..], &["--to", "sideways"]].concat()).expect(1);
    assert!(refused.err.contains("EVENT_BROKER_INVALID_OFFSET"), "{}", refused.err);
    assert_eq!(ask(&server, &["consumers", "delete", id]).expect(0).out, format!("deleted {id}\n"));
    ask(&server, &["consumers", "delete", id]).expect(1);
    let left = ask(&server, &["consumers", "groups", "--json"]).expect(0).json();
    assert_eq!((&left[0]["consumerGroup"], &left[0]["topics"][0]["members"]), (&json!("billing"), &json!([])));
}

#[test]
fn a_projection_is_listed_shown_reset_and_deleted() {
    let server = server();
    feed(&server, &["publish", "-"], &lines(3)).expect(0);
    let put = |name: &str, body: Value| {
        let request = server.request(reqwest::Method::PUT, &format!("/v1/projections/{name}")).json(&body);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(crate::http::answer(request)).0, 201);
    };
    put("accounts", json!({"topic": TOPIC, "filter": "has(data)"}));
    put("audit", json!({"log": true}));
    let list = ask(&server, &["projections", "list"]).expect(0).out;
    let row = |n: usize| list.lines().nth(n).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row(1)[..4], ["accounts", TOPIC, "0", "3"], "{list}");
    assert_eq!(row(2)[..3], ["audit", "the", "log"], "{list}");
    assert_eq!(ask(&server, &["projections", "list", "--json"]).expect(0).json()[1]["log"], true);
    assert!(ask(&server, &["projections", "get", "accounts"]).expect(0).out.contains("has(data)"));
    let reset = ask(&server, &["projections", "reset", "accounts", "--to", "2", "--json"]).expect(0).json();
    assert_eq!((&reset[0]["checkpoint"], &reset[0]["generation"]), (&json!(2), &json!(2)));
    let refused = ask(&server, &["projections", "reset", "accounts", "--to", "9"]).expect(1);
    assert!(refused.err.contains("EVENT_BROKER_VALIDATION_ERROR"), "{}", refused.err);
    assert_eq!(ask(&server, &["projections", "delete", "accounts"]).expect(0).out, "deleted accounts\n");
    ask(&server, &["projections", "show", "accounts"]).expect(1);
}

#[tokio::test]
async fn claims_and_dead_letters_are_shown_redriven_and_discarded() {
    let server = server();
    feed(&server, &["publish", "-"], &lines(3)).expect(0);
    let mut letters = Vec::new();
    for sequence in 1..=3 {
        let wanted =
            json!({"handler": "billing", "topic": TOPIC, "sequence": sequence, "owner": "w1", "order": "latest"});
        let (_, taken) = server.post("/v1/claims", &wanted).await;
        let claim = &taken["claim"];
        if sequence == 3 {
            continue;
        }
        let failure =
            json!({"token": claim["token"], "error": {"class": "Poison", "message": "m"}, "retryable": false});
        let (_, dead) = server.post(&format!("/v1/claims/{}:fail", claim["id"].as_str().unwrap()), &failure).await;
        letters.push(dead["deadLetter"].as_str().unwrap().to_owned());
    }
    let open = ask(&server, &["claims", "list", "billing"]).expect(0).out;
    assert!(open.lines().count() == 4 && open.contains("dead") && open.contains("claimed"), "{open}");
    let handlers = ask(&server, &["claims", "handlers"]).expect(0).out;
    assert!(handlers.lines().nth(1).unwrap().split_whitespace().take(6).eq(["billing", "latest", "1", "0", "2", "3"]));
    assert!(ask(&server, &["claims", "handler", "billing"]).expect(0).out.contains("maxAttempts"));
    let list = ask(&server, &["dead-letters", "list", "--name", "billing"]).expect(0).out;
    assert!(list.contains(&letters[0]) && list.contains("Poison"), "{list}");
    let summary = ask(&server, &["dead-letters", "summary"]).expect(0).out;
    assert!(
        summary.lines().nth(1).unwrap().split_whitespace().take(4).eq(["handler", "billing", TOPIC, "2"]),
        "{summary}"
    );
    assert_eq!(ask(&server, &["dead-letters", "redrive", "--all", "--dry-run"]).expect(0).out, "2\n");
    let redriven = ask(&server, &["dead-letters", "redrive", &letters[0], "--json"]).expect(0).json();
    assert_eq!(redriven[0]["status"], "redriven");
    let refused = ask(&server, &["dead-letters", "redrive", &letters[0]]).expect(1);
    assert!(refused.err.contains("409 EVENT_BROKER_INVALID_STATE"), "{}", refused.err);
    let shown = ask(&server, &["dead-letters", "discard", &letters[1], "--reason", "old", "--dry-run", "--json"]);
    assert_eq!(shown.expect(0).json()[0]["status"], "open");
    let discarded =
        ask(&server, &["dead-letters", "discard", &letters[1], "--reason", "old", "--json"]).expect(0).json();
    assert_eq!(discarded[0]["resolution"]["reason"], "old");
    assert_eq!(ask(&server, &["dead-letters", "list", "--json"]).expect(0).out, "");
    assert_eq!(ask(&server, &["dead-letters", "list", "--resolved", "--json"]).expect(0).json().len(), 2);
}
