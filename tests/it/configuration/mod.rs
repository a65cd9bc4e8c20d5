//! The configuration: layers, keys, refusals, and their effect on the domain.

mod program;
mod values;

use crate::scenario::check_with;
use contract::api::*;
use contract::{Kind, TopicRead};
use event_broker::config::{Config, ConfigError, FlagSetting, LoadedConfig, StorageEngine, keys, load};
use event_broker::{Broker, OpenError};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// Loads a file that has these keys below `modules.event_broker`.
fn load_file(keys: &str) -> Result<LoadedConfig, String> {
    load_layers(keys, &[], Vec::new())
}

fn load_layers(keys: &str, environment: &[(&str, &str)], flags: Vec<FlagSetting>) -> Result<LoadedConfig, String> {
    let indented: Vec<_> = keys.trim_end().lines().map(|line| format!("    {line}")).collect();
    load_text(&format!("modules:\n  event_broker:\n{}\n", indented.join("\n")), environment, flags)
}

/// Loads a file; error messages name it as `FILE`.
fn load_text(text: &str, environment: &[(&str, &str)], flags: Vec<FlagSetting>) -> Result<LoadedConfig, String> {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("broker.yaml");
    std::fs::write(&file, text).unwrap();
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let named = |error: ConfigError| error.to_string().replace(&file.display().to_string(), "FILE");
    load(Some(&file), environment, flags).map_err(named)
}

fn source(loaded: &LoadedConfig, path: &str) -> String {
    let source = loaded.sources.of(path).to_string();
    source.rsplit('/').next().unwrap_or_default().to_owned()
}

fn at<'a>(config: &'a Value, key: &str) -> &'a Value {
    config.pointer(&format!("/{}", key.replace('.', "/"))).unwrap()
}

#[test]
fn without_anything_the_program_keeps_its_log_in_a_folder_and_an_embedded_broker_in_memory() {
    let loaded = load(None, [], Vec::new()).unwrap();
    assert_eq!(loaded.config, Config::folder("./data"));
    assert_eq!(Config::default().storage.engine, StorageEngine::Memory);
    assert!(loaded.sources.iter().all(|(_, source)| source.to_string() == "default"));
    assert!(loaded.notes.is_empty());
}

#[test]
fn flags_beat_the_environment_which_beats_the_file_which_beats_the_defaults() {
    let flag = |key, value: &str| FlagSetting { flag: "--flag", key, value: value.to_owned() };
    let file = "batch: {max_size: 1}\nconsumer:\n  max_limit: 2\nserver:\n  compression: false";
    let (size, limit) = (("EVENT_BROKER__BATCH__MAX_SIZE", "3"), ("EVENT_BROKER__CONSUMER__MAX_LIMIT", "4"));
    let loaded = load_layers(file, &[size, limit], vec![flag("batch.max_size", "5")]).unwrap();
    assert_eq!((loaded.config.batch.max_size, loaded.config.consumer.max_limit), (5, 4));
    assert!(!loaded.config.server.compression);
    for (key, expected) in [
        ("batch.max_size", "--flag"),
        ("batch.max_payload_bytes", "default"),
        ("consumer.max_limit", "EVENT_BROKER__CONSUMER__MAX_LIMIT"),
        ("server.compression", "broker.yaml:7"),
    ] {
        assert_eq!(source(&loaded, key), expected, "{key}");
    }
}

#[test]
fn the_environment_takes_yaml_and_a_key_beats_its_section() {
    let environment = [
        ("EVENT_BROKER__STORAGE__PATH", "123"),
        ("EVENT_BROKER__POLLING", "{max_timeout_secs: 7, default_timeout_secs: 3}"),
        ("EVENT_BROKER__POLLING__MAX_TIMEOUT_SECS", "8"),
        ("EVENT_BROKER__SERVER__LISTEN", "[::1]:80"),
        ("EVENT_BROKER__SERVER__CORS__ALLOWED_ORIGINS", "[https://a.example, 'http://b:80']"),
        ("EVENT_BROKER__STORAGE__RETENTION_DAYS", ""),
        ("EVENT_BROKER__DEFAULT_TOPIC", "null"),
        ("EVENT_BROKER_URL", "another thing"),
        ("EVENT_BROKER_CRASH_AT", "another thing"),
        ("PATH", "another thing"),
    ];
    let Config { storage, polling, server, default_topic, .. } =
        load_layers("storage: {retention_days: 30}", &environment, Vec::new()).unwrap().config;
    assert_eq!((storage.path, storage.retention_days), (PathBuf::from("123"), None));
    assert_eq!((polling.max_timeout_secs, polling.default_timeout_secs), (8, 3));
    assert_eq!(server.listen.to_string(), "[::1]:80");
    assert_eq!(server.cors.allowed_origins, ["https://a.example", "http://b:80"]);
    assert_eq!(default_topic, None);
}

#[test]
fn text_of_the_environment_is_taken_as_it_is_but_for_quotes() {
    for (value, path) in
        [("a #b", "a #b"), ("a: b", "a: b"), ("@a", "@a"), ("'a'", "a"), (r#""\u0061 b""#, "a b"), ("'a", "'a")]
    {
        let loaded = load_layers("", &[("EVENT_BROKER__STORAGE__PATH", value)], Vec::new()).unwrap();
        assert_eq!(loaded.config.storage.path, PathBuf::from(path), "{value}");
    }
}

#[test]
fn unknown_keys_are_refused_with_their_place_and_the_nearest_known_one() {
    for (keys, expected) in [
        ("storage:\n  pth: x", "FILE:4: storage.pth: unknown key; did you mean `storage.path`?"),
        (
            "polling:\n  max_timeout: 5",
            "FILE:4: polling.max_timeout: unknown key; did you mean `polling.max_timeout_secs`?",
        ),
        ("pooling:\n  max: 5", "FILE:3: pooling: unknown key; did you mean `polling`?"),
        ("consumer: {maxLimit: 5}", "FILE:3: consumer.maxLimit: unknown key; did you mean `consumer.max_limit`?"),
        ("max_limit: 5", "FILE:3: max_limit: unknown key; did you mean `consumer.max_limit`?"),
        (
            "server:\n\n  # a comment\n  cors: {allowed_origin: []}",
            "FILE:6: server.cors.allowed_origin: unknown key; did you mean `server.cors.allowed_origins`?",
        ),
        (
            "polling.max_timeout_secs: 5",
            "FILE:3: polling.max_timeout_secs: unknown key; write each level of a key's path as a map of its own",
        ),
    ] {
        assert_eq!(load_file(keys).unwrap_err(), expected, "{keys}");
    }
    for (variable, meant) in [
        ("EVENT_BROKER__POLLING__MAX_TIMEOUT", "EVENT_BROKER__POLLING__MAX_TIMEOUT_SECS"),
        ("EVENT_BROKER__POLLING_MAX_TIMEOUT_SECS", "EVENT_BROKER__POLLING__MAX_TIMEOUT_SECS"),
        ("EVENT_BROKER__batch__max_size", "EVENT_BROKER__BATCH__MAX_SIZE"),
        ("EVENT_BROKER__STORAGES", "EVENT_BROKER__STORAGE"),
    ] {
        let refusal = load_layers("", &[(variable, "5")], Vec::new()).unwrap_err();
        assert_eq!(refusal, format!("{variable}: unknown key; did you mean `{meant}`?"));
    }
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let file = "batch: {max_size: 0}\nstorage:\n  typ: file\npolling: 5";
    let refusal = load_layers(file, &[("EVENT_BROKER__BATCH", "7")], Vec::new()).unwrap_err();
    let lines: Vec<_> = refusal.lines().collect();
    assert_eq!(
        lines,
        [
            "FILE:3: batch.max_size: expected a whole number of events from 1 to 10000, found 0",
            "FILE:5: storage.typ: unknown key; did you mean `storage.type`?",
            "FILE:6: polling: expected a map of keys, found a number",
            "EVENT_BROKER__BATCH: batch: expected a map of keys, found a number",
        ]
    );
}

#[test]
fn a_file_that_is_not_for_the_broker_is_refused() {
    for text in ["", "modules:", "modules: {event_brokr: {}}", "storage: {type: memory}", "[]", "- modules"] {
        let refusal = load_text(text, &[], Vec::new()).unwrap_err();
        assert!(refusal.starts_with("FILE: there is no `modules.event_broker` in it"), "{text}: {refusal}");
    }
    for text in ["modules: {event_broker: }", "other: 1\nmodules: {another: {a: 1}, event_broker: {storage: }}"] {
        assert_eq!(load_text(text, &[], Vec::new()).unwrap().config, Config::folder("./data"));
    }
    let missing = load(Some("no/such/file.yaml".as_ref()), [], Vec::new()).unwrap_err().to_string();
    assert!(missing.starts_with("no/such/file.yaml: the file cannot be read"), "{missing}");
}

#[test]
fn keys_that_stand_a_level_too_high_are_noted() {
    let loaded = load_text("modules:\n  event_broker: {}\n  polling: {max_timeout_secs: 1}", &[], Vec::new()).unwrap();
    assert_eq!(loaded.notes.len(), 1);
    assert!(loaded.notes[0].contains("broker.yaml:3: `modules.polling` is not the broker's"), "{:?}", loaded.notes);
}

#[test]
fn yaml_has_no_traps() {
    let bomb: String = ('b'..='h')
        .zip('a'..)
        .map(|(name, below)| format!("{name}: &{name} [{}]\n", vec![format!("*{below}"); 9].join(",")))
        .collect();
    let nested = |depth| format!("topics: {}{}", "[".repeat(depth), "]".repeat(depth));
    for (keys, expected) in [
        ("server: {insecure: yes}", "FILE:3: server.insecure: expected true or false, found text"),
        ("server: {insecure: on}", "FILE:3: server.insecure: expected true or false, found text"),
        ("batch: {max_size: 5, max_size: 6}", "FILE:3: not readable as YAML: `max_size` is there a second time"),
        ("batch: {max_size: 5}\npolling:\nbatch: {}", "FILE:5: not readable as YAML: `batch` is there a second time"),
        (&format!("a: &a [x]\n{bomb}"), "alias replay limit exceeded"),
        (&"[".repeat(5000), "recursion limit exceeded"),
        (&nested(73), "FILE:3: not readable as YAML: budget breached: Depth"),
        (&nested(65), "FILE:3: topics[0][0]: invalid type"),
        ("batch: !custom {}", "FILE:3: not readable as YAML: unsupported tag"),
    ] {
        let refusal = load_file(keys).unwrap_err();
        assert!(refusal.contains(expected), "{keys}: {refusal}");
    }
    for (text, expected) in [
        ("modules:\n\tevent_broker: {}", "FILE:2: not readable as YAML: tabs disallowed"),
        (
            "modules: {event_broker: {}}\n---\nmodules: {event_broker: {}}",
            "FILE:3: not readable as YAML: a second document",
        ),
        ("modules: {event_broker: {batch: {max_size: 5}", "FILE:1: not readable as YAML: "),
    ] {
        let refusal = load_text(text, &[], Vec::new()).unwrap_err();
        assert!(refusal.starts_with(expected), "{text}: {refusal}");
    }
    let shared = load_file("server: {body_timeout_secs: &t 9, header_timeout_secs: *t}").unwrap().config.server;
    assert_eq!((shared.body_timeout_secs, shared.header_timeout_secs), (9, 9));
}

#[test]
fn declared_things_are_refused_at_their_line() {
    let topic = "topics:\n  - id: gts.hx.core.events.topic.v1~vendor.orders.v1\n    streaming: true";
    for (keys, expected) in [
        (
            format!("{topic}\n    retentoin: P1D"),
            "FILE:6: topics[0].retentoin: unknown member; did you mean `retention`?",
        ),
        (format!("{topic}\n    retention: P1X"), "FILE:6: topics[0].retention: A duration must be ISO 8601"),
        (format!("{topic}\n  - id: gts.hx.core.events.topic.v1~"), "FILE:6: topics[1]: missing field `streaming`"),
        (
            format!("{topic}\n  - {{id: nonsense, streaming: true}}"),
            "FILE:6: topics[1].id: One word is not an identifier",
        ),
        (topic.replace("true", "{tpe: file}"), "FILE:5: topics[0].streaming: expected true, or a map of `type`"),
        (format!("{topic}{}", topic.replace("topics:", "")), "FILE:6: topics[1].id: is declared twice"),
        ("topics: [5]".to_owned(), "FILE:3: topics[0]: expected a map of members"),
        ("topics: {}".to_owned(), "FILE:3: topics: expected a list of topics, found a map"),
        (
            "event_types:\n  - id: gts.a.b.v1~\n    data_schema: {}".to_owned(),
            "FILE:5: event_types[0].data_schema: unknown member; did you mean `dataSchema`?",
        ),
        ("routes:\n  - type: gts.a.*b\n    topic: gts.a.b.v1~".to_owned(), "FILE:4: routes[0].type: A GTS pattern has"),
        ("default_topic: nonsense".to_owned(), "FILE:3: default_topic: One word is not an identifier"),
    ] {
        let refusal = load_file(&keys).unwrap_err();
        assert!(refusal.starts_with(expected), "{keys}\n{refusal}");
    }
}

#[tokio::test]
async fn what_only_the_broker_can_refuse_is_found_by_its_path() {
    let keys = "
storage: {type: memory}
topics:
  - {id: gts.hx.core.events.topic.v1~, streaming: true}
  - id: gts.hx.core.events.topic.v1~vendor.orders.v1
    streaming: {type: database}
event_types:
  - id: gts.hx.core.events.type.v1~vendor.orders.order_placed.v1
    dataSchema: {type: nonsense}
";
    let mut loaded = load_file(keys).unwrap();
    let Err(OpenError::Declared { path, .. }) = Broker::open(loaded.config.clone()).await else { panic!("opened") };
    assert_eq!((path.as_str(), source(&loaded, &path).as_str()), ("topics[1]", "broker.yaml:7"));
    loaded.config.topics.truncate(1);
    let refusal = Broker::open(loaded.config).await.err().unwrap().to_string();
    assert!(refusal.starts_with("`event_types[0]` of the configuration was refused: "), "{refusal}");
}

#[test]
fn the_quick_start_is_the_one_of_the_product_description() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config/quickstart.yaml");
    let loaded = load(Some(&file), [], Vec::new()).unwrap();
    let Config { storage, batch, polling, consumer, .. } = &loaded.config;
    assert_eq!((storage.engine, storage.retention_days), (StorageEngine::Memory, Some(30)));
    assert_eq!((batch.max_size, batch.max_payload_bytes), (100, 1_048_576));
    assert_eq!((polling.default_timeout_secs, polling.max_timeout_secs, polling.poll_interval_ms), (30, 30, 100));
    assert_eq!((consumer.default_limit, consumer.max_limit), (25, 200));
    let set = loaded.sources.iter().filter(|(_, source)| source.to_string() != "default");
    assert_eq!(set.count(), 9);
    assert!(loaded.notes.iter().any(|note| note.contains("`polling.poll_interval_ms` has no effect")));
}

#[test]
fn the_list_of_keys_is_what_a_configuration_has_and_what_the_docs_list() {
    fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    leaves(member, &format!("{path}.{name}"), found);
                }
            }
            _ => found.push(path.trim_start_matches('.').to_owned()),
        }
    }
    let mut there = Vec::new();
    leaves(&serde_json::to_value(Config::default()).unwrap(), "", &mut there);
    let mut listed: Vec<_> = keys::KEYS.iter().map(|key| key.name.to_owned()).collect();
    there.sort();
    listed.sort();
    assert_eq!(there, listed);
    let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md")).unwrap();
    let table: String = docs.lines().filter(|line| line.starts_with('|')).map(|line| format!("{line}\n")).collect();
    assert!(table == keys::table(), "put what `event-broker config --keys` prints into docs/configuration.md");
}

#[test]
fn limits_of_the_configuration_are_the_brokers() {
    let config = load_file("consumer: {max_limit: 2}\nbatch: {max_size: 2, max_payload_bytes: 1024}").unwrap().config;
    assert_eq!(config.consumer.default_limit, 2, "an unset default follows its maximum");
    let large = format!(r#"placed a data={{"x":"{}"}}"#, "y".repeat(600));
    check_with(
        &config,
        &format!(
            "
        type placed                        -> created
        publish placed a                   -> created 1 aggregate 1
        publish placed b                   -> created 2 aggregate 1
        read default limit=2               -> 1 2 next 2 tail 2
        read default limit=3               -> VALIDATION_ERROR /limit
        batch placed a ; placed b          -> created 3 aggregate 2 | created 4 aggregate 2
        batch placed a ; placed b ; placed c -> BATCH_TOO_LARGE
        batch {large} ; {large}            -> BATCH_TOO_LARGE
        publish {large}                    -> created 5 aggregate 3
    "
        ),
    );
}

#[tokio::test]
async fn the_longest_poll_is_the_configurations() {
    let mut config = Config::default();
    config.polling.max_timeout_secs = 2;
    let broker = Broker::open(config.clone()).await.unwrap();
    let read = || TopicRead::all(config.default_topic.clone().unwrap());
    let refusal = broker.wait(read(), Duration::from_secs(3)).await.unwrap_err();
    assert_eq!(refusal.kind(), Kind::Validation);
    assert!(refusal.detail().contains("between 0 and 2 seconds"), "{refusal}");
    assert_eq!(refusal.violations()[0].pointer, "/timeout");
    config.polling.max_timeout_secs = 60;
    let broker = Broker::open(config.clone()).await.unwrap();
    let closing = async {
        tokio::task::yield_now().await;
        broker.close().await;
    };
    let (page, ()) = tokio::join!(broker.wait(read(), Duration::from_secs(60)), closing);
    assert!(page.unwrap().items.is_empty());
}

#[test]
fn topics_that_name_no_retention_keep_events_as_long_as_the_configuration_says() {
    let mut config = Config::default();
    config.storage.retention_days = Some(1);
    check_with(
        &config,
        "
        topic brief retention=PT1H                  -> created
        topic long retention=P2D                    -> created
        topic inner streaming={\"retention\":\"P2D\"} -> created
        type kept                                   -> created
        type hurried topic=brief                    -> created
        type slow topic=long                        -> created
        type within topic=inner                     -> created
        publish kept a                              -> created 1 aggregate 1
        publish hurried a                           -> created 1 aggregate 1
        publish slow a                              -> created 1 aggregate 1
        publish within a                            -> created 1 aggregate 1
        advance 3600001
        expire                                      -> removed 1
        advance 82799999
        expire                                      -> removed 0
        advance 1
        expire                                      -> removed 1
        read default                                -> TRIMMED earliest 2
        read long                                   -> 1 next 1 tail 1
        read inner                                  -> 1 next 1 tail 1
    ",
    );
}
