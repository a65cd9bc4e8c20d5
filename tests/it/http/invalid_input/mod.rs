//! Edge cases: every parameter and every member of every route, missing, empty, huge, repeated, of another type.
//!
//! - A line of a table is a request and its expected response; every refusal is a complete problem document.
//! - No request causes a server error, is echoed in a response, or changes what is stored.

mod members;
mod requests;

use super::raw_http::{RawResponse, ask};
use super::{CREATED, Server, TENANT, TOPIC, event, expect_problem};
use serde_json::{Value, json};
use std::cell::RefCell;

/// An event with a subject that needs escapes.
const SLASHED: &str = "a/b:c~d e";
const SUBJECT_TYPE: &str = "gts.vendor.tenants.tenant.v1~";
/// Part of every value that is sent to be refused; no response may contain it.
const CANARY: &str = "canary";

/// A server with one resource of every kind.
struct PopulatedServer {
    server: Server,
    event_id: String,
    consumer_id: String,
    before: Vec<Value>,
    wrong: RefCell<Vec<String>>,
}

impl PopulatedServer {
    async fn set() -> Self {
        let server = Server::start(&[]);
        server.register(CREATED).await;
        let mut first = event(CREATED, SLASHED);
        first["subjectType"] = json!(SUBJECT_TYPE);
        let (status, stored) = server.post("/v1/events", &first).await;
        assert_eq!(status, 201, "{stored}");
        let (status, made) = server.post("/v1/consumers", &consumer()).await;
        assert_eq!(status, 201, "{made}");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (event_id, consumer_id) = (text(&stored["id"]), text(&made["data"]["id"]));
        let mut stage = Self { server, event_id, consumer_id, before: Vec::new(), wrong: RefCell::default() };
        stage.before = stage.stored().await;
        stage
    }

    /// Everything that is stored.
    async fn stored(&self) -> Vec<Value> {
        let mut all = Vec::new();
        for path in ["/v1/log?after=0", "/v1/topics", "/v1/event-types", "/v1/consumers", "/v1/consumer-groups"] {
            let (status, mut list) = self.server.get(path).await;
            assert_eq!(status, 200, "{list}");
            // A poll updates the time at which a consumer was last seen.
            forget(&mut list, &["lastSeenAt", "expiresAt"]);
            all.push(list);
        }
        all
    }

    /// For every line `request -> status [code] [pointer]`, compares the response with the expected one.
    fn check(&self, table: &str) {
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (request, expected) = line.rsplit_once(" -> ").unwrap_or_else(|| panic!("no arrow in {line}"));
            self.check_line(request, &self.send(&self.filled(request)), expected);
        }
    }

    /// Records what is wrong with a response; [`Stage::end`] reports everything at once.
    fn check_line(&self, request: &str, reply: &RawResponse, expected: &str) {
        let path = request.split(' ').nth(1).and_then(|target| target.split('?').next()).unwrap_or_default();
        if let Err(wrong) = judge(reply, expected, &self.filled(path), request.starts_with("HEAD ")) {
            let text = String::from_utf8_lossy(&reply.body);
            let short = |text: &str| text.chars().take(300).collect::<String>();
            let line = format!("{} -> {expected}: {wrong}\n    {} {}", short(request), reply.status, short(&text));
            self.wrong.borrow_mut().push(line);
        }
    }

    /// `METHOD target <header: value>… body`.
    fn send(&self, request: &str) -> RawResponse {
        let (method, rest) = request.split_once(' ').unwrap_or((request, ""));
        let (target, mut rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let mut headers = Vec::new();
        while let Some((header, after)) = rest.strip_prefix('<').and_then(|rest| rest.split_once('>'))
            && let Some(pair) = header.split_once(": ")
        {
            headers.push(pair);
            rest = after.trim_start();
        }
        if !rest.is_empty() && !headers.iter().any(|(name, _)| *name == "content-type") {
            headers.push(("content-type", "application/json"));
        }
        headers.push(("connection", "close"));
        ask(&self.server, method, target, &headers, rest.as_bytes())
    }

    fn filled(&self, text: &str) -> String {
        text.replace("{T}", TOPIC)
            .replace("{E}", CREATED)
            .replace("{S}", SUBJECT_TYPE)
            .replace("{tenant}", TENANT)
            .replace("{event}", &self.event_id)
            .replace("{consumer}", &self.consumer_id)
            .replace("{600}", &"x".repeat(600))
            .replace("{1100}", &"x".repeat(1100))
    }

    /// Checks that every response was right, and that nothing has changed.
    async fn end(self) {
        let wrong = self.wrong.take();
        assert!(wrong.is_empty(), "{} of the answers:\n{}", wrong.len(), wrong.join("\n"));
        assert_eq!(self.stored().await, self.before, "a refused request changed something");
        assert_eq!(self.server.get("/readyz").await.0, 200);
        let logged = self.server.logged();
        assert!(!logged.contains("ERROR") && !logged.contains("panicked"), "{logged}");
    }
}

/// Whether a reply is `status [code] [pointer]`, with every member that a refusal must have.
fn judge(reply: &RawResponse, expected: &str, path: &str, to_head: bool) -> Result<(), String> {
    let ensure = |holds: bool, wrong: &str| if holds { Ok(()) } else { Err(wrong.to_owned()) };
    let mut words = expected.split(' ');
    let status = words.next().and_then(|status| status.parse::<u16>().ok()).ok_or("no status is expected")?;
    ensure(reply.status == status, "another status")?;
    let trace = reply.header("x-trace-id").ok_or("no trace")?;
    let Some(code) = words.next() else { return ensure(status < 400, "no code is expected") };
    if to_head {
        return ensure(reply.body.is_empty(), "an answer to HEAD has no body");
    }
    ensure(reply.header("content-type") == Some("application/problem+json"), "not a problem document")?;
    let mut problem = reply.json();
    ensure(problem["type"] == format!("https://errors.hyperspot.com/EVENT_BROKER_{code}"), "another code")?;
    expect_problem(reply.answer(), status, &format!("EVENT_BROKER_{code}"));
    ensure(problem["traceId"] == trace, "another trace than the header's")?;
    ensure(problem["instance"] == path, "another instance")?;
    problem["instance"].take();
    ensure(!problem.to_string().contains(CANARY), "it says back what was sent")?;
    let Some(pointer) = words.next() else { return Ok(()) };
    let there = problem["errors"].as_array().is_some_and(|errors| errors.iter().any(|it| it["pointer"] == pointer));
    ensure(there, "no such pointer")
}

fn consumer() -> Value {
    json!({"consumerGroup": "g", "topic": TOPIC, "types": [CREATED], "CEL": "true", "sessionTimeout": "PT10M"})
}

/// Removes members, at any depth.
fn forget(value: &mut Value, names: &[&str]) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !names.contains(&name.as_str()));
            members.values_mut().for_each(|value| forget(value, names));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| forget(item, names)),
        _ => (),
    }
}
