//! The program's `config` command: the table, the JSON, the refusals.

use serde_json::{Value, json};
use std::process::{Command, Output};

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_event-broker"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).arg("config").args(arguments);
    command.env_clear().envs(environment.iter().copied()).output().unwrap()
}

fn said(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The value and the source of a key in the table.
fn row<'a>(table: &'a str, key: &str) -> Vec<&'a str> {
    let cells = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    cells.into_iter().find(|cells| cells.first() == Some(&key)).unwrap()[1..].to_vec()
}

#[test]
fn it_shows_what_is_in_force_and_where_that_came_from() {
    let output = run(
        &["--config", "config/quickstart.yaml", "--listen", "127.0.0.1:0"],
        &[("EVENT_BROKER__BATCH__MAX_SIZE", "50")],
    );
    let table = said(&output.stdout);
    assert!(output.status.success(), "{}", said(&output.stderr));
    for (key, expected) in [
        ("storage.type", ["memory", "config/quickstart.yaml:11"]),
        ("storage.path", ["./data", "default"]),
        ("batch.max_size", ["50", "EVENT_BROKER__BATCH__MAX_SIZE"]),
        ("server.listen", ["127.0.0.1:0", "--listen"]),
        ("topics", ["[]", "default"]),
    ] {
        assert_eq!(row(table, key), expected, "{table}");
    }
    assert!(table.contains("\nnote: config/quickstart.yaml:23: `polling.poll_interval_ms` has no effect"), "{table}");
}

#[test]
fn programs_get_json() {
    let output = run(
        &["--json", "--data", "some-where", "--insecure"],
        // A number of connections that every machine allows: if a machine allows fewer, `config` prints a note.
        &[("EVENT_BROKER__TOPICS", "[]"), ("EVENT_BROKER__SERVER__MAX_CONNECTIONS", "64")],
    );
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["config"]["storage"]["path"], "some-where");
    assert_eq!(answer["config"]["server"]["insecure"], true);
    assert_eq!(answer["sources"]["storage.path"], json!({"from": "flag", "flag": "--data"}));
    assert_eq!(answer["sources"]["topics"], json!({"from": "environment", "variable": "EVENT_BROKER__TOPICS"}));
    assert_eq!(answer["sources"]["batch.max_size"], json!({"from": "default"}));
    assert_eq!(answer["notes"], json!([]));
    let output = run(&["--json", "--config", "config/quickstart.yaml"], &[]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let source = json!({"from": "file", "file": "config/quickstart.yaml", "line": 16});
    assert_eq!(answer["sources"]["batch.max_size"], source);
}

#[test]
fn a_data_folder_means_files_unless_storage_says_otherwise() {
    for (arguments, engine) in [
        (vec!["--data", "here"], "file"),
        (vec!["--data", "here", "--storage", "memory"], "memory"),
        (vec!["--storage", "memory"], "memory"),
        (vec!["--config", "config/quickstart.yaml"], "memory"),
        (vec!["--config", "config/quickstart.yaml", "--data", "here"], "file"),
        (vec!["--storage", "postgres://localhost/events"], "database"),
        (vec!["--data", "here", "--storage", "postgres://localhost/events"], "database"),
    ] {
        assert_eq!(row(said(&run(&arguments, &[]).stdout), "storage.type")[0], engine, "{arguments:?}");
    }
}

#[test]
fn a_database_that_is_named_is_the_log_and_its_password_is_not_shown() {
    let url = "postgres://broker:s3cret@localhost:5432/events?sslmode=disable";
    for (arguments, environment) in
        [(vec!["--storage", url], vec![]), (vec![], vec![("EVENT_BROKER__STORAGE__URL", url)])]
    {
        let output = run(&arguments, &environment);
        assert_eq!(row(said(&output.stdout), "storage.type")[0], "database");
        assert_eq!(row(said(&output.stdout), "storage.url")[0], "postgres://broker:***@localhost/events");
        let whole = run(&[&["--json"], &arguments[..]].concat(), &environment);
        assert!(!said(&whole.stdout).contains("s3cret"));
    }
}

#[test]
fn a_password_that_the_driver_takes_is_never_printed_however_it_is_written() {
    for url in [
        "postgres://u:s3cr/et@h/db",
        "postgres://h/db?%70assword=s3cret&user=u",
        "postgres://u:s3cr%2Fet@h/db?application_name=password=s3cret",
        "postgres://u:s3cret@h:no-port/db",
    ] {
        for arguments in [vec!["--storage", url], vec!["--json", "--storage", url]] {
            let output = run(&arguments, &[]);
            let said = format!("{}{}", said(&output.stdout), said(&output.stderr));
            assert!(!said.contains("s3cr") && !said.contains("et@"), "{url}: {said}");
        }
    }
}

#[test]
fn a_password_on_the_command_line_is_warned_of_and_a_file_is_taken_instead() {
    let warned = run(&["--storage", "postgres://u:s3cret@localhost/db"], &[]);
    assert!(said(&warned.stdout).contains("note: --storage: the password of the database is on the command line"));
    let file = "tests/it/configuration/database.url";
    let quiet = run(&[], &[("EVENT_BROKER__STORAGE__URL_FILE", file)]);
    let table = said(&quiet.stdout);
    assert_eq!(row(table, "storage.url")[0], "postgres://broker:***@localhost/events");
    assert_eq!(row(table, "storage.type")[0], "database");
    assert!(!table.contains("s3cret") && !table.contains("command line"), "{table}");
    let both = run(&["--storage", "postgres://localhost/db"], &[("EVENT_BROKER__STORAGE__URL_FILE", file)]);
    assert!(
        said(&both.stderr).contains("storage.url_file: is set together with `storage.url`"),
        "{}",
        said(&both.stderr)
    );
    let none = run(&[], &[("EVENT_BROKER__STORAGE__URL_FILE", "tests/none")]);
    assert!(said(&none.stderr).contains("storage.url_file: the file cannot be read"), "{}", said(&none.stderr));
}

#[test]
fn a_configuration_that_is_refused_ends_with_2_and_every_reason() {
    let output =
        run(&["--storage", "flie", "--config", "config/none.yaml"], &[("EVENT_BROKER__BATCH__MAX_SIZES", "50")]);
    assert_eq!((output.status.code(), said(&output.stdout)), (Some(2), ""));
    let lines: Vec<_> = said(&output.stderr).lines().collect();
    assert!(lines[0].starts_with("event-broker: config/none.yaml: the file cannot be read: "), "{lines:?}");
    assert_eq!(
        lines[1..],
        [
            "event-broker: EVENT_BROKER__BATCH__MAX_SIZES: unknown key; did you mean `EVENT_BROKER__BATCH__MAX_SIZE`?",
            "event-broker: --storage: storage.type: expected memory, file or database; did you mean `file`?",
        ]
    );
}

#[test]
fn it_lists_every_key() {
    let output = run(&["--keys"], &[]);
    assert_eq!(said(&output.stdout), event_broker::config::keys::table());
}

#[test]
fn what_serve_would_refuse_of_declared_topics_and_types_is_refused_with_its_line() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("c.yaml");
    let check = |declared: &str| {
        std::fs::write(&file, format!("modules:\n  event_broker:\n{declared}")).unwrap();
        let output =
            run(&["--config", file.to_str().unwrap(), "--data", folder.path().join("data").to_str().unwrap()], &[]);
        assert!(!folder.path().join("data").exists(), "a check must not write anything");
        (output.status.code(), said(&output.stderr).replace(file.to_str().unwrap(), "c.yaml"))
    };
    let types = "    event_types:\n      - id: order.created\n";
    let (code, told) = check(&format!("{types}        dataSchema:\n          type: 7\n"));
    assert!(code == Some(1) && told.starts_with("event-broker: c.yaml:6: event_types[0]: "), "{code:?} {told}");
    assert!(told.contains("/dataSchema/type"), "{told}");
    let (code, told) = check(&format!("{types}        topic: shop.orders\n"));
    assert!(code == Some(1) && told.starts_with("event-broker: c.yaml:5: event_types[0]: "), "{code:?} {told}");
    assert!(told.contains("/topic: is not registered"), "{told}");
    let topics = "    topics:\n      - id: shop.orders\n        streaming: {type: file, location: deep/orders}\n";
    let (code, told) = check(&format!("{topics}        description: {}\n", "x".repeat(2049)));
    assert!(code == Some(1) && told.starts_with("event-broker: c.yaml:6: topics[0]: "), "{code:?} {told}");
    let (code, told) = check(&format!("{topics}{types}        topic: shop.orders\n"));
    assert_eq!((code, told.as_str()), (Some(0), ""));
    // `config` did not report a location at which `serve` allows no log.
    let (code, told) = check("    topics:\n      - id: shop.orders\n        streaming: {location: 'file:///nope/x'}\n");
    assert!(code == Some(1) && told.starts_with("event-broker: c.yaml:5: topics[0]: "), "{code:?} {told}");
    assert!(told.contains("is in no folder that the configuration lists"), "{told}");
}
