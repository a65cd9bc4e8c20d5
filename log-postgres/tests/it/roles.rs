//! The privileges of each role, with psql and with an engine.

use crate::support::{Deadline, batch, everything, open, open_with};
use contract::{Position, Sequence};
use log::{Log, LogError, TopicNumber};
use log_postgres::testing::TestServer;
use log_postgres::{PostgresLog, PostgresOptions};
use std::path::Path;
use std::sync::OnceLock;

/// A server of its own: roles are shared by all databases of a server.
fn server() -> &'static TestServer {
    static SERVER: OnceLock<TestServer> = OnceLock::new();
    SERVER.get_or_init(|| {
        let server = TestServer::start();
        // Here, so that no two tests create the same role at once.
        run_roles(&server, "postgres");
        server
    })
}

fn run_roles(server: &TestServer, database: &str) {
    server.run_file(database, Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/roles.sql")), &[]);
}

fn roles(url: &str) {
    run_roles(server(), url);
}

/// A database with the roles, and its URLs for owner, application and maintenance.
fn database() -> (String, [String; 3]) {
    let url = server().create_database();
    roles(&url);
    let name = url.rsplit('/').next().unwrap().to_owned();
    let as_role = |role: &str| server().url_as(&format!("event_broker_{role}"), &name);
    (url, ["owner", "application", "maintenance"].map(as_role))
}

const CHANGES: [&str; 8] = [
    "UPDATE event_broker.events SET topic = 'other'",
    "DELETE FROM event_broker.events",
    "TRUNCATE event_broker.events",
    "UPDATE event_broker.entries SET fact = 'other'",
    "DELETE FROM event_broker.entries",
    "TRUNCATE event_broker.entries",
    "DROP TABLE event_broker.events",
    "UPDATE event_broker.removals SET through = 9",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_application_role_appends_and_reads_and_changes_nothing() {
    let (_, [owner, application, maintenance]) = database();
    let log = open_with(&application, |options| {
        options.owner_url = Some(owner.clone());
        options.maintenance_url = Some(maintenance.clone());
    })
    .await;
    log.append(Position(0), batch(Position(0), 1, 5)).await.unwrap();
    for change in CHANGES {
        let refused = server().psql(&application, change).unwrap_err();
        assert!(refused.contains("permission denied") || refused.contains("must be owner"), "{change}: {refused}");
    }
    // Retention uses the maintenance role.
    log.remove(TopicNumber(1), Sequence(2)).await.unwrap();
    assert_eq!(everything(&log).await.len(), 3);
    let warnings = log.warnings();
    assert!(warnings.iter().all(|warning| !warning.contains("role")), "{warnings:?}");
    // After the migration the application role can open it alone.
    assert_eq!(everything(&open(&application).await).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_but_maintenance_deletes_and_nobody_changes() {
    let (url, [owner, _, maintenance]) = database();
    let log = open(&owner).await;
    log.append(Position(0), batch(Position(0), 1, 2)).await.unwrap();
    for role in [&url, &owner, &maintenance] {
        for change in CHANGES.iter().filter(|change| change.contains(".events") && !change.starts_with("DROP")) {
            if *role == maintenance && change.starts_with("DELETE") {
                continue;
            }
            let refused = server().psql(role, change).unwrap_err();
            assert!(
                refused.contains("is refused") || refused.contains("permission denied"),
                "{role} {change}: {refused}"
            );
        }
    }
    assert_eq!(everything(&log).await.len(), 2);
    server().sql(&maintenance, "DELETE FROM event_broker.events");
    assert_eq!(everything(&log).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_role_without_a_schema_is_told_what_to_do() {
    let (_, [_, application, _]) = database();
    let refused = PostgresLog::open(&application, PostgresOptions::default()).await.err().unwrap().to_string();
    assert!(refused.contains("owner's URL"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_role_alone_removes_nothing_and_says_why() {
    let (_, [owner, application, _]) = database();
    drop(open(&owner).await);
    let log = open(&application).await;
    log.append(Position(0), batch(Position(0), 1, 2)).await.unwrap();
    for refused in [log.remove(TopicNumber(1), Sequence(1)).await, log.may_remove().await.map(|_| ())] {
        let refused = refused.unwrap_err();
        assert!(
            matches!(&refused, LogError::Forbidden(what) if what.contains("`storage.maintenance_url`")),
            "{refused}"
        );
    }
    assert_eq!(everything(&log).await.len(), 2);
}

/// A role that is a member of maintenance sets that role for removals, and only for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_is_a_member_of_maintenance_removes_as_it() {
    let (url, [owner, ..]) = database();
    let name = url.rsplit('/').next().unwrap();
    let member = format!("member_of_{name}");
    let made = "LOGIN; GRANT event_broker_application, event_broker_maintenance TO";
    server().sql(&url, &format!("CREATE ROLE {member} {made} {member}"));
    drop(open(&owner).await);
    let log = open(&server().url_as(&member, name)).await;
    log.append(Position(0), batch(Position(0), 1, 2)).await.unwrap();
    let refused = server().psql(&server().url_as(&member, name), "DELETE FROM event_broker.events").unwrap_err();
    assert!(refused.contains("is refused"), "{refused}");
    assert!(log.may_remove().await.unwrap().is_some_and(|server_time| server_time > 1_700_000_000_000));
    log.remove(TopicNumber(1), Sequence(1)).await.unwrap();
    assert_eq!(everything(&log).await.len(), 1);
    let warnings = log.warnings().join(" ");
    assert!(warnings.contains("has DELETE on the log's tables"), "{warnings}");
}

/// A developer's database: one role with all privileges. Everything works, with warnings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_powerful_role_works_with_warnings() {
    let url = TestServer::shared().create_database();
    let log = open(&url).await;
    log.append(Position(0), batch(Position(0), 1, 2)).await.unwrap();
    assert!(log.may_remove().await.unwrap().is_some_and(|server_time| server_time > 1_700_000_000_000));
    log.remove(TopicNumber(1), Sequence(1)).await.unwrap();
    assert_eq!(everything(&log).await.len(), 1);
    let warnings = log.warnings().join("\n");
    assert!(warnings.contains("postgres is a superuser") && warnings.contains("roles.sql"), "{warnings}");
    assert!(warnings.contains("fsync off"), "{warnings}");
    let refused = TestServer::shared().psql(&url, "DELETE FROM event_broker.events").unwrap_err();
    assert!(refused.contains("DELETE on events is refused"), "{refused}");
}

/// The tables were created by a superuser; the roles are created later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_that_come_later_get_their_rights() {
    let url = server().create_database();
    let log = open(&url).await;
    log.append(Position(0), batch(Position(0), 1, 2)).await.unwrap();
    drop(log);
    roles(&url);
    roles(&url);
    let name = url.rsplit('/').next().unwrap();
    let [application, maintenance] =
        ["application", "maintenance"].map(|role| server().url_as(&format!("event_broker_{role}"), name));
    let log = open_with(&application, |options| options.maintenance_url = Some(maintenance)).await;
    log.append(Position(2), batch(Position(2), 2, 1)).await.unwrap();
    log.remove(TopicNumber(1), Sequence(2)).await.unwrap();
    assert_eq!(everything(&log).await.len(), 1);
    let refused = server().psql(&application, "DELETE FROM event_broker.events").unwrap_err();
    assert!(refused.contains("permission denied"), "{refused}");
}

/// As in a managed service: an administrator who may create roles and owns the database, but is not a superuser.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_who_is_no_superuser_can_make_the_roles() {
    let server = TestServer::start();
    server.sql("postgres", "CREATE ROLE administrator LOGIN CREATEROLE");
    server.sql("postgres", "CREATE DATABASE managed OWNER administrator");
    run_roles(&server, &server.url_as("administrator", "managed"));
    let log = open_with(&server.url_as("event_broker_application", "managed"), |options| {
        options.owner_url = Some(server.url_as("event_broker_owner", "managed"));
    })
    .await;
    log.append(Position(0), batch(Position(0), 1, 2)).await.unwrap();
    let member = "SELECT pg_has_role('administrator', 'event_broker_owner', 'MEMBER')";
    assert_eq!(server.sql("managed", member), "f");
}

/// `begin_session` runs as the owner. Who could read `sessions` and call it stopped a broker for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_only_reads_the_tables_cannot_end_the_session_of_a_broker() {
    let (url, [owner, application, _]) = database();
    drop(open(&owner).await);
    let log = open(&application).await;
    let name = url.rsplit('/').next().unwrap();
    let analyst = format!("analyst_of_{name}");
    server().sql(&url, &format!("CREATE ROLE {analyst} LOGIN; GRANT USAGE ON SCHEMA event_broker TO {analyst}"));
    server().sql(&url, &format!("GRANT SELECT ON event_broker.events, event_broker.records TO {analyst}"));
    for query in
        ["SELECT * FROM event_broker.sessions", "SELECT event_broker.begin_session(1, 9223372036854775807, 1000)"]
    {
        let refused = server().psql(&server().url_as(&analyst, name), query).unwrap_err();
        assert!(refused.contains("permission denied"), "{query}: {refused}");
    }
    log.append(Position(0), batch(Position(0), 1, 1)).await.unwrap();
}

/// A role that appends by rights of its own, granted by hand before the migration, keeps what it needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_was_granted_its_rights_by_hand_still_appends() {
    let (url, [owner, ..]) = database();
    let name = url.rsplit('/').next().unwrap();
    drop(open(&owner).await);
    let own = format!("own_role_of_{name}");
    let again = include_str!("../../migrations/0007_compare.sql");
    let migration = &again
        [again.find("REVOKE ALL ON sessions").unwrap()..again.find("CREATE OR REPLACE FUNCTION grant_rights").unwrap()];
    let grants = format!(
        "CREATE ROLE {own} LOGIN; GRANT USAGE ON SCHEMA event_broker TO {own}; \
         GRANT SELECT, INSERT ON event_broker.events, event_broker.entries TO {own}; \
         GRANT SELECT ON event_broker.removals, event_broker.migrations, event_broker.records, event_broker.log_end TO {own}; \
         SET search_path = event_broker; {migration}"
    );
    server().sql(&url, &grants);
    let log = open(&server().url_as(&own, name)).await;
    log.append(Position(0), batch(Position(0), 1, 1)).await.unwrap();
}

/// With fewer connections than the broker wants, every second read failed, and readiness said nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_cannot_connect_are_named_and_the_others_serve_all_reads() {
    let (url, [owner, ..]) = database();
    drop(open(&owner).await);
    let name = url.rsplit('/').next().unwrap();
    let few = format!("few_of_{name}");
    server().sql(&url, &format!("CREATE ROLE {few} LOGIN IN ROLE event_broker_application CONNECTION LIMIT 4"));
    let log = open(&server().url_as(&few, name)).await;
    let deadline = Deadline::begin();
    while log.storage_warning().is_none() {
        deadline.check("a connection that is refused");
        tokio::task::yield_now().await;
    }
    while log.append(Position(0), batch(Position(0), 1, 2)).await.is_err() {
        deadline.check("an append");
    }
    for _ in 0..20 {
        assert_eq!(everything(&log).await.len(), 2);
    }
    let warning = log.storage_warning().unwrap();
    assert!(warning.contains("connections for reading") && warning.contains("connection limits"), "{warning}");
}
