//! Only the owner can access the files and folders of a broker.

use super::{CREATED, Server, event, expect_problem, is_on_databases};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Everything below a folder that other users than its owner can access, with its mode.
fn open_to_others(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            found.push((path.clone(), mode));
        }
        if path.is_dir() {
            found.extend(open_to_others(&path));
        }
    }
    found
}

#[tokio::test]
async fn everything_a_broker_creates_is_for_its_owner_alone_whatever_the_umask() {
    if is_on_databases() {
        return;
    }
    let above = TempDir::new().unwrap();
    let segments = ("EVENT_BROKER__STORAGE__SEGMENT_BYTES", "1024");
    let data = TempDir::new_in(above.path()).unwrap();
    set_mode(data.path(), 0o700);
    let server = Server::start_after("umask 0", data, &[segments]);
    server.register(CREATED).await;
    let topic =
        json!({"id": "gts.hx.core.events.topic.v1~vendor.private.x.v1", "streaming": {"location": "file://side"}});
    assert!(server.post("/v1/topics", &topic).await.0.is_success());
    let subscription = json!({"code": "s", "topic": super::TOPIC, "target": "https://example.com/",
        "eventTypes": [{"type": CREATED}], "signing": {"type": "standard-webhooks"}});
    let (status, answer) = server.post("/v1/subscriptions", &subscription).await;
    assert!(status.is_success(), "{answer}");
    for _ in 0..20 {
        assert!(server.post("/v1/events", &event(CREATED, "s")).await.0.is_success());
    }
    let run = |arguments: &[&str]| {
        let mut shell = Command::new("bash");
        shell.args(["-c", "umask 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_event-broker")]).args(arguments);
        let output = shell.env("EVENT_BROKER_URL", &server.url).current_dir(above.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["backup", "--data", server.path().to_str().unwrap(), "--output", "backup"]);
    run(&["export", super::TOPIC, "--output", "export.jsonl"]);
    server.terminate();
    let (_, data) = server.wait();
    for made in ["log", "logs/side/log", "state", "secret.key", "LOCK"] {
        assert!(data.path().join(made).exists(), "{made}");
    }
    std::fs::remove_file(data.path().with_extension("log")).unwrap();
    assert_eq!(open_to_others(above.path()), []);
}

#[tokio::test]
async fn a_data_folder_that_others_can_read_is_told_of_at_the_start() {
    if is_on_databases() {
        return;
    }
    let folder = TempDir::new().unwrap();
    set_mode(folder.path(), 0o755);
    let server = Server::start_in(folder, &[]);
    let logged = server.logged();
    assert!(logged.contains("users other than its owner can read") && logged.contains("755"), "{logged}");
    let folder = TempDir::new().unwrap();
    set_mode(folder.path(), 0o700);
    let server = Server::start_in(folder, &[]);
    assert!(!server.logged().contains("open to others"));
}

#[tokio::test]
async fn answers_tell_no_path_of_this_machine_and_nothing_of_its_files() {
    if is_on_databases() {
        return;
    }
    let server = Server::start(&[]);
    server.register(CREATED).await;
    assert!(server.post("/v1/events", &event(CREATED, "s")).await.0.is_success());
    let (_, page) = server.get(&format!("/v1/topics/segments?topic={}", super::TOPIC)).await;
    assert_eq!(page["segments"][0]["location"], "file://log/00000000000000000001.1.log", "{page}");
    let data = server.path().display().to_string();
    let mut reply = Vec::new();
    let inside = ["/log", "/state/x", "/none/x", ""].map(|inside| format!("file://{data}{inside}x"));
    for location in ["file:///etc/passwd/x", "file:///etc/none/x"].map(str::to_owned).iter().chain(&inside) {
        let topic =
            json!({"id": "gts.hx.core.events.topic.v1~vendor.private.x.v1", "streaming": {"location": location}});
        let problem = expect_problem(server.post("/v1/topics", &topic).await, 422, "EVENT_BROKER_VALIDATION_ERROR");
        assert!(!problem["errors"].to_string().contains(&data), "{problem}");
        reply.push(problem["errors"].clone());
    }
    assert!(reply.iter().all(|one| *one == reply[0]), "{reply:?}");
}

#[tokio::test]
async fn credentials_go_over_https_alone_and_stand_in_no_header() {
    let hooks = |members: serde_json::Value| {
        let mut it = json!({"code": "s", "topic": super::TOPIC, "eventTypes": [{"type": CREATED}]});
        it.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        it
    };
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let signing = json!({"type": "standard-webhooks", "secrets": [secret]});
    let bearer = json!({"type": "bearer", "token": "t0ken"});
    let key = json!({"type": "apikey", "header": "X-Api-Key", "key": "k1"});
    let (clear, encrypted) = ("http://hooks.example.com/", "https://hooks.example.com/");
    let server = Server::start(&[]);
    for (refused, pointer) in [
        (json!({"target": clear, "auth": bearer}), "/target"),
        (json!({"target": clear, "auth": key}), "/target"),
        (json!({"target": clear, "signing": signing}), "/target"),
        (json!({"target": encrypted, "headers": {"X-Api-Key": "k"}}), "/headers/x-api-key"),
        (json!({"target": encrypted, "headers": {"cookie": "k"}}), "/headers/cookie"),
    ] {
        let problem = server.post("/v1/subscriptions", &hooks(refused)).await;
        let problem = expect_problem(problem, 422, "EVENT_BROKER_VALIDATION_ERROR");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    for (code, taken) in [
        ("a", json!({"target": clear})),
        ("b", json!({"target": encrypted, "auth": key, "signing": signing})),
        ("c", json!({"target": encrypted, "auth": bearer, "headers": {"X-Tenant": "k"}})),
    ] {
        let mut it = hooks(taken);
        it["code"] = code.into();
        let (status, answer) = server.post("/v1/subscriptions", &it).await;
        assert!(status.is_success(), "{answer}");
        assert!(!answer.to_string().contains("\"k1\"") && !answer.to_string().contains("t0ken"), "{answer}");
    }
    let moved = server.request(reqwest::Method::PATCH, "/v1/subscriptions/c").json(&json!({"target": clear}));
    expect_problem(super::answer(moved).await, 422, "EVENT_BROKER_VALIDATION_ERROR");
    // In a private network all of it may be unencrypted.
    let server = Server::start_with(&[("EVENT_BROKER__DISPATCH__ALLOW_PRIVATE_TARGETS", "true")], &[]);
    let (status, answer) = server
        .post("/v1/subscriptions", &hooks(json!({"target": "http://127.0.0.1:9/", "auth": bearer, "signing": signing})))
        .await;
    assert!(status.is_success(), "{answer}");
}

#[tokio::test]
async fn hosts_that_are_not_listed_are_refused() {
    let server = Server::start_with(&[("EVENT_BROKER__DISPATCH__ALLOWED_HOSTS", "['*.example.com']")], &[]);
    let to = |target: &str| json!({"code": "s", "topic": super::TOPIC, "target": target});
    for target in ["https://example.com/", "https://example.org/", "https://aexample.com/"] {
        let problem = server.post("/v1/subscriptions", &to(target)).await;
        let problem = expect_problem(problem, 422, "EVENT_BROKER_VALIDATION_ERROR");
        assert!(problem.to_string().contains("dispatch.allowed_hosts"), "{problem}");
    }
    let (status, answer) = server.post("/v1/subscriptions", &to("https://hooks.example.com/")).await;
    assert!(status.is_success(), "{answer}");
}
