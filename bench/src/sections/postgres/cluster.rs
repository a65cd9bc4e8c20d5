//! A throw-away PostgreSQL server on the measured disk, and the databases in it.
//!
//! - Everything is as PostgreSQL's own defaults have it, `fsync` on; only more connections are let in.
//! - Every contender has a database of its own, with the broker's own schema in it.

use crate::place::Place;
use crate::{Outcome, usage};
use log_postgres::testing::{ServerOptions, TestServer};
use log_postgres::{PostgresLog, PostgresOptions};
use std::panic::catch_unwind;
use tokio_postgres::{Client, NoTls};

/// A running server.
pub(in crate::sections) struct Cluster {
    server: TestServer,
}

/// A database with the broker's schema, and a connection to look at it.
pub(in crate::sections) struct Database {
    pub(in crate::sections) url: String,
    looking: Client,
}

impl Cluster {
    /// Starts one, or says why there is none.
    pub(in crate::sections) fn start(place: &Place) -> Result<Self, String> {
        let options = ServerOptions {
            fsync: true,
            place: Some(place.folder().to_owned()),
            // A socket's path may not be as long as that of a folder.
            settings: vec![("unix_socket_directories".to_owned(), String::new())],
            ..ServerOptions::default()
        };
        let server = catch_unwind(|| TestServer::start_with(options));
        let server = server.map_err(|_| "a PostgreSQL server of its own could not be started".to_owned())?;
        Ok(Self { server })
    }

    /// A new database with the broker's schema.
    pub(in crate::sections) async fn database(&self) -> Outcome<Database> {
        let url = self.server.create_database();
        // Opening makes the tables.
        drop(PostgresLog::open(&url, PostgresOptions::default()).await?);
        let looking = connect(&url).await?;
        Ok(Database { url, looking })
    }

    /// What was written so far is put where it belongs, so that it is nobody else's work.
    pub(super) fn checkpoint(&self) {
        self.server.sql("postgres", "CHECKPOINT");
    }

    /// The server's version, as it says it.
    pub(super) fn version(&self) -> String {
        self.server.sql("postgres", "SHOW server_version")
    }

    /// Processor time of all its processes so far, in seconds.
    pub(super) fn cpu_seconds(&self) -> Outcome<f64> {
        let file = std::fs::read_to_string(self.server.folder().join("data/postmaster.pid"))?;
        let process = file.lines().next().ok_or("the server does not say which process it is")?;
        usage::cpu_seconds_of_family(process.parse()?)
    }
}

impl Database {
    /// The last position of an event.
    pub(super) async fn last(&self) -> Outcome<i64> {
        let row = self.looking.query_one("SELECT coalesce(max(event_id), 0) FROM event_broker.events", &[]).await?;
        Ok(row.try_get(0)?)
    }

    /// How many events lie behind a position, and how many transactions brought them.
    pub(super) async fn since(&self, position: i64) -> Outcome<(i64, i64)> {
        let asked = "SELECT count(*), count(DISTINCT xmin::text) FROM event_broker.events WHERE event_id > $1";
        let row = self.looking.query_one(asked, &[&position]).await?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }
}

/// A connection of its own; it ends when the client is dropped.
pub(super) async fn connect(url: &str) -> Outcome<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            eprintln!("bench: a connection to PostgreSQL ended: {error}");
        }
    });
    Ok(client)
}
