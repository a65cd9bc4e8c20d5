//! Every key: the values it accepts, the values it refuses, and that the value takes effect.

use super::{at, load_file, load_layers, load_text};
use event_broker::config::keys::{ConfigKey, KEYS, ValueType};
use event_broker::config::{FlagSetting, LoadedConfig};
use serde_json::{Value, json};

/// Loads a file with one key, in YAML flow style: everything is on line 1.
fn load_key(key: &ConfigKey, value: &str) -> Result<LoadedConfig, String> {
    let (mut text, mut closing) = ("{modules: {event_broker: {".to_owned(), 3);
    for name in key.name.split('.') {
        text.push_str(&format!("{name}: {{"));
        closing += 1;
    }
    text.pop();
    text.push_str(value);
    text.push_str(&"}".repeat(closing - 1));
    load_text(&text, if value == "null" { Vec::new() } else { roomy(key) }.as_slice(), Vec::new())
}

/// The maxima that limit other keys, each at its largest value; for the keys of TLS those that belong to them.
fn roomy(key: &ConfigKey) -> Vec<(&'static str, &'static str)> {
    let maxima = [
        ("polling.max_timeout_secs", ("EVENT_BROKER__POLLING__MAX_TIMEOUT_SECS", "3600")),
        ("consumer.max_limit", ("EVENT_BROKER__CONSUMER__MAX_LIMIT", "10000")),
        ("claims.lease_secs", ("EVENT_BROKER__CLAIMS__LEASE_SECS", "86400")),
        ("storage.free_space_warn_bytes", ("EVENT_BROKER__STORAGE__FREE_SPACE_WARN_BYTES", "1125899906842624")),
    ];
    let tls = [
        ("server.tls.certificate", ("EVENT_BROKER__SERVER__TLS__CERTIFICATE", "server.pem")),
        ("server.tls.key", ("EVENT_BROKER__SERVER__TLS__KEY", "server.key")),
        ("server.tls.client_ca", ("EVENT_BROKER__SERVER__TLS__CLIENT_CA", "clients.pem")),
        ("server.tls.client_auth", ("EVENT_BROKER__SERVER__TLS__CLIENT_AUTH", "optional")),
    ];
    let tls = tls.into_iter().filter(|_| key.name.starts_with("server.tls."));
    maxima.into_iter().chain(tls).filter(|(name, _)| *name != key.name).map(|(_, variable)| variable).collect()
}

/// A value that the key accepts and that is not its default.
fn sample(key: &ConfigKey) -> Value {
    match (key.name, key.expects) {
        ("server.listen", _) => json!("[::1]:9000"),
        ("logging.level", _) => json!("warn,event_broker::ledger=trace"),
        ("default_topic", _) => json!("gts.hx.core.events.topic.v1~vendor.other.v1"),
        ("server.cors.allowed_origins", _) => json!(["https://a.example", "http://localhost:3000"]),
        ("topics", _) => json!([{"id": "gts.a.b.v1~", "streaming": true}]),
        ("event_types", _) => json!([{"id": "gts.a.b.v1~", "dataSchema": {"type": "object", "minProperties": 1}}]),
        ("routes", _) => json!([{"type": "gts.a.*", "topic": "gts.a.b.v1~"}]),
        ("server.insecure" | "dispatch.allow_private_targets" | "storage.require_tls", _) => json!(true),
        (name, ValueType::Text(_)) if name.starts_with("server.tls.") => json!("tests/it/configuration/some.pem"),
        ("storage.url_file", _) => json!("tests/it/configuration/database.url"),
        ("claims.backoff_secs", _) => json!(7),
        ("storage.type", _) => json!("memory"),
        (_, ValueType::Text("a database URL")) => json!("postgres://broker@localhost/events"),
        (_, ValueType::Flag) => json!(false),
        (_, ValueType::Number { min, .. }) => json!(min + 1),
        (_, ValueType::Word(words)) => json!(words.last()),
        (_, ValueType::Text(_)) => json!("some-where"),
        (_, ValueType::Texts(_)) => json!(["some-where", "else-where"]),
        (_, ValueType::Items(_)) => panic!("{} needs a sample", key.name),
    }
}

#[test]
fn every_key_arrives_from_file_environment_and_flag() {
    for key in KEYS {
        let value = sample(key);
        let flag =
            FlagSetting { flag: "--it", key: key.name, value: value.as_str().map_or(value.to_string(), str::to_owned) };
        let variable = (key.variable(), flag.value.clone());
        let mut environment = roomy(key);
        environment.push((&variable.0, &variable.1));
        for (loaded, source) in [
            (load_key(key, &value.to_string()), "broker.yaml:1"),
            (load_layers("", &environment, Vec::new()), variable.0.as_str()),
            (load_layers("", &roomy(key), vec![flag]), "--it"),
        ] {
            let loaded = loaded.unwrap_or_else(|refusal| panic!("{}: {refusal}", key.name));
            let config = serde_json::to_value(&loaded.config).unwrap();
            // A secret takes effect and is not shown.
            let shown = if key.name == "dispatch.secret_key" { json!("***") } else { value.clone() };
            assert_eq!(at(&config, key.name), &shown, "{} from {source}", key.name);
            assert_eq!(super::source(&loaded, key.name), source, "{}", key.name);
        }
        assert_ne!(at(&serde_json::to_value(event_broker::Config::folder("./data")).unwrap(), key.name), &value);
    }
}

#[test]
fn every_key_takes_its_edges_and_nothing_beyond() {
    for key in KEYS {
        let (good, bad): (Vec<String>, Vec<String>) = match key.expects {
            ValueType::Flag => (texts(&["true", "false"]), texts(&["yes", "1", "'true'", "[true]", "null"])),
            ValueType::Number { min, max, .. } => {
                let mut bad = texts(&["-1", "1.5", "'7'", "many", "1e3", "{}", "99999999999999999999", "true"]);
                bad.push((max + 1).to_string());
                bad.extend(min.checked_sub(1).map(|below| below.to_string()));
                (vec![min.to_string(), max.to_string()], bad)
            }
            ValueType::Word(words) => {
                let good = words.iter().filter(|word| **word != "database").map(|word| (*word).to_owned());
                (good.collect(), texts(&["nonsense", "''", "5", "null", "[]", &words[0].to_uppercase()]))
            }
            ValueType::Text(_) => (Vec::new(), texts(&["''", "' '", "5", "true", "[]", "{}"])),
            ValueType::Texts(_) => (texts(&["[]"]), texts(&["text", "5", "{}", "[5]", "['']", "[[]]", "null"])),
            ValueType::Items(_) => (texts(&["[]"]), texts(&["text", "5", "{}", "[5]", "[[]]", "[{}]", "null"])),
        };
        for value in good {
            load_key(key, &value).unwrap_or_else(|refusal| panic!("{}: {value}: {refusal}", key.name));
        }
        for value in bad {
            let Err(refusal) = load_key(key, &value) else { panic!("{} took {value}", key.name) };
            assert!(refusal.starts_with(&format!("FILE:1: {}", key.name)), "{value}: {refusal}");
        }
        assert_eq!(load_key(key, "null").is_ok(), key.optional, "{}", key.name);
    }
}

fn texts(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

#[test]
fn values_that_do_not_work_are_refused_with_what_would() {
    for (keys, expected) in [
        ("storage: {type: database}", "FILE:3: storage.type: is `database`, but `storage.url` does not say which"),
        ("storage: {type: flie}", "FILE:3: storage.type: expected memory, file or database; did you mean `file`?"),
        (
            "storage: {retention_days: 0}",
            "FILE:3: storage.retention_days: expected a whole number of days from 1 to 36500, found 0",
        ),
        (
            "polling: {max_timeout_secs: -1}",
            "FILE:3: polling.max_timeout_secs: expected a whole number of seconds from 1 to 3600, found -1",
        ),
        (
            "batch:\n  max_size:",
            "FILE:4: batch.max_size: expected a whole number of events from 1 to 10000, found nothing",
        ),
        ("server: {tls: {certificate: a.pem}}", "FILE:3: server.tls.certificate: is set, but `server.tls.key` is not"),
        ("server: {tls: {key: a.pem}}", "FILE:3: server.tls.key: is set, but `server.tls.certificate` is not"),
        (
            "server: {tls: {certificate: a, key: b, client_auth: required}}",
            "FILE:3: server.tls.client_auth: needs `server.tls.client_ca`",
        ),
        (
            "server: {tls: {certificate: a, key: b, client_ca: c}}",
            "FILE:3: server.tls.client_ca: has no effect without `server.tls.client_auth`",
        ),
        ("server: {tls: {certificate: a, key: b, crl: c}}", "FILE:3: server.tls.crl: has no effect without"),
        ("server: {listen: 8087}", "FILE:3: server.listen: expected an address and a port, found a number"),
        (
            "server: {listen: 'localhost:8087'}",
            "FILE:3: server.listen: expected an address and a port, such as 127.0.0.1:8087",
        ),
        ("server: {listen: 127.0.0.1}", "FILE:3: server.listen: expected an address and a port, such as"),
        ("server: {listen: '127.0.0.1:99999'}", "FILE:3: server.listen: expected an address and a port, such as"),
        (
            "polling:\n  default_timeout_secs: 31",
            "FILE:4: polling.default_timeout_secs: is 31, above `polling.max_timeout_secs`, which is 30 (default)",
        ),
        (
            "claims: {lease_secs: 20,\n heartbeat_secs: 20}",
            "FILE:4: claims.heartbeat_secs: is 20, not below `claims.lease_secs`, which is 20 (FILE:3)",
        ),
        (
            "consumer: {default_limit: 9,\n max_limit: 8}",
            "FILE:3: consumer.default_limit: is 9, above `consumer.max_limit`, which is 8 (FILE:4)",
        ),
        (
            "batch: {max_payload_bytes: 3145728}\nserver: {max_inflight_bytes: 2097152}",
            "FILE:3: batch.max_payload_bytes: is 3145728, above `server.max_inflight_bytes`",
        ),
        (
            "storage: {free_space_warn_bytes: 5,\n free_space_refuse_bytes: 6}",
            "FILE:4: storage.free_space_refuse_bytes: is 6, above `storage.free_space_warn_bytes`, which is 5 (FILE:3)",
        ),
        (
            "logging: {level: inof}",
            "FILE:3: logging.level: expected off, error, warn, info, debug, trace, or levels by target; did you mean `in",
        ),
        ("logging: {level: 'info,=debug'}", "FILE:3: logging.level: expected off"),
        (
            "server:\n  cors:\n    allowed_origins:\n      - https://a.example\n      - https://b.example/",
            "FILE:7: server.cors.allowed_origins[1]: expected a scheme and a host",
        ),
        (
            "server: {cors: {allowed_origins: ['*']}}",
            "FILE:3: server.cors.allowed_origins[0]: `*` would let every web page read and write everything, because no auth",
        ),
        (
            "server: {allowed_hosts: [broker.example, '*.example', '*']}",
            "FILE:3: server.allowed_hosts[2]: `*` would let every web page read and write everything by DNS rebinding",
        ),
        (
            "server: {allowed_hosts: ['broker.example:8087']}",
            "FILE:3: server.allowed_hosts[0]: expected a host without scheme and port",
        ),
        ("storage:\n  path: Cargo.toml", "FILE:4: storage.path: is not a folder"),
        ("storage:\n  path: Cargo.toml/data", "FILE:4: storage.path: cannot be used: "),
        (
            "storage:\n  path: ./a\n  locations: [./b, ./a/c]",
            "FILE:5: storage.locations[1]: must lie outside `storage.path`",
        ),
        ("storage: {locations: [b, ./b]}", "FILE:3: storage.locations[1]: is in the list twice"),
        (
            "default_topic: gts.hx.core.events.topic.v1~hx.broker.mine.v1",
            "FILE:3: default_topic: belongs to the broker: ids that contain `hx.broker.` are reserved",
        ),
        ("routes:\n  - type: gts.a.*\n    topic: a.hx.broker.b", "FILE:5: routes[0].topic: belongs to the broker"),
        ("topics:\n  - {id: hx.broker.b, streaming: true}", "FILE:4: topics[0].id: belongs to the broker"),
        ("event_types:\n  - id: a.b\n    topic: hx.broker.b", "FILE:5: event_types[0].topic: belongs to the broker"),
        ("storage: {locations: [Cargo.toml]}", "FILE:3: storage.locations[0]: is not a folder"),
    ] {
        let refusal = load_file(keys).unwrap_err();
        assert!(refusal.starts_with(expected), "{keys}\n{refusal}");
        assert_eq!(refusal.lines().count(), 1, "{refusal}");
    }
    assert!(load_file("storage: {type: memory, path: Cargo.toml}").is_ok(), "memory storage needs no folder");
}
