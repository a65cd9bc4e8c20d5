//! Migrations: they bring the schema to the version that this program knows.
//!
//! - All missing migrations run in one transaction, under an advisory lock. If several processes open the log at once, one
//!   migrates and the others find it done.
//! - A database with a newer version than the program's is refused. A migration never changes after it was released.
//! - Migrations run as the owner. A role without rights only checks the version of the schema.

use crate::failure::refused;
use crate::session::{ConnectTarget, Session};
use log::LogError;
use std::time::Duration;

/// In order; a migration's version is its index, counted from 1.
const MIGRATIONS: [(&str, &str); 7] = [
    ("tables", include_str!("../migrations/0001_tables.sql")),
    ("functions", include_str!("../migrations/0002_functions.sql")),
    ("immutability", include_str!("../migrations/0003_immutability.sql")),
    ("append", include_str!("../migrations/0004_append.sql")),
    ("claim", include_str!("../migrations/0005_claim.sql")),
    ("sessions", include_str!("../migrations/0006_sessions.sql")),
    ("compare", include_str!("../migrations/0007_compare.sql")),
];

/// The schema version that this program knows.
const LATEST: i32 = MIGRATIONS.len() as i32;

/// A migration may rewrite a large table, or wait for another process that migrates.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(3600);

/// Whether the table of migrations exists and this role can see it.
const HAS_MIGRATIONS: &str = "SELECT CASE \
    WHEN to_regnamespace($1::text) IS NULL THEN false \
    WHEN NOT has_schema_privilege(to_regnamespace($1::text), 'USAGE') THEN false \
    ELSE to_regclass($1::text || '.migrations') IS NOT NULL END";

/// Brings the schema of `target` to the latest version, as `owner`.
pub(crate) async fn migrate(target: &ConnectTarget, owner: ConnectTarget) -> Result<(), LogError> {
    let session = target.connect(None).await?;
    check_server(&session).await?;
    if version(&session, target).await? < LATEST {
        let owner = ConnectTarget { answer_timeout: MIGRATION_TIMEOUT, ..owner };
        apply_migrations(&*owner.connect(None).await?, &owner).await?;
        if version(&session, target).await? < LATEST {
            return Err(refused("the schema was migrated, but this role cannot see it; run roles.sql"));
        }
    }
    Ok(())
}

/// Checks the server's version and the database's encoding.
async fn check_server(session: &Session) -> Result<(), LogError> {
    let query = "SELECT current_setting('server_version_num')::int, current_setting('server_encoding')";
    let row = session.row(query, &[]).await?;
    let (version, encoding): (i32, String) = row.map_or((0, String::new()), |row| (row.get(0), row.get(1)));
    if version < 140_000 {
        return Err(refused("PostgreSQL 14 or later is needed"));
    }
    if encoding != "UTF8" {
        return Err(refused(format!("the database's encoding is {encoding}; create one with UTF8")));
    }
    Ok(())
}

/// The version of the database's schema, 0 if it has none yet. A newer one than this program's is refused.
async fn version(session: &Session, target: &ConnectTarget) -> Result<i32, LogError> {
    let has_migrations = session.row(HAS_MIGRATIONS, &[&target.schema]).await?;
    if !has_migrations.is_some_and(|row| row.get(0)) {
        return Ok(0);
    }
    let row = session.row("SELECT coalesce(max(version), 0) FROM migrations", &[]).await?;
    let version = row.map_or(0, |row| row.get(0));
    match version > LATEST {
        true => Err(refused(format!(
            "the database is at version {version}, this program knows {LATEST}: a newer broker has used it; run that version"
        ))),
        false => Ok(version),
    }
}

/// Runs the missing migrations, in one transaction under a lock.
async fn apply_migrations(session: &Session, target: &ConnectTarget) -> Result<(), LogError> {
    session.run("BEGIN; SELECT pg_advisory_xact_lock(1163282770, 0)").await?;
    let schema = &target.schema;
    let created = session
        .run(&format!(
            "DO $$ BEGIN IF to_regnamespace('{schema}') IS NULL THEN CREATE SCHEMA {schema}; END IF; END $$; \
             SET LOCAL search_path = {schema}, pg_temp; \
             CREATE TABLE IF NOT EXISTS {schema}.migrations ( \
                 version int PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now(), \
                 applied_by text NOT NULL DEFAULT current_user); \
             COMMENT ON TABLE migrations IS 'The migrations applied to this schema; a broker refuses a newer version than its own.'"
        ))
        .await;
    created.map_err(|error| match error {
        LogError::Io(cause) => refused(format!(
            "the schema {schema} is missing or incomplete, and this role cannot create it ({cause}); set an owner's \
             URL, or start the broker once as the owner"
        )),
        other => other,
    })?;
    let from = version(session, target).await?;
    for ((name, text), version) in MIGRATIONS.iter().zip(1..).skip(usize::try_from(from).unwrap_or_default()) {
        session.run(text).await?;
        session.run(&format!("INSERT INTO migrations (version, name) VALUES ({version}, '{name}')")).await?;
        tracing::info!(version, name, "migrated the log's schema");
    }
    session.run("SELECT grant_rights(); COMMIT").await
}
