//! A projection that keeps a table in PostgreSQL: the balance of every account.
//!
//! - The effect of an event and the checkpoint are one transaction, so every event counts once, whenever the program is
//!   killed: it resumes after the last committed event, whatever checkpoint the broker has.
//! - The checkpoint moves only from the value that this program expects. A second instance that works on the same table by
//!   mistake finds another value, and stops.
//! - A reset (`event-broker projections reset accounts`) clears and rebuilds the table, while the program runs or when it
//!   starts the next time.
//!
//! ```sh
//! cargo run -p event-broker-client --example accounts_table -- http://127.0.0.1:8087 postgres://me@localhost/bank
//! ```
//!
//! For the tests, `ACCOUNTS_CRASH=before-commit@7` kills it at this point of the event with this sequence.

use contract::{Generation, NewProjection, Offset, StoredEvent};
use event_broker_client::Client;
use event_broker_client::projection::{Checkpoint, ProjectionRunner, ProjectionView};
use serde::Deserialize;
use std::error::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio_postgres::{NoTls, Transaction};

const TOPIC: &str = "gts.hx.core.events.topic.v1~vendor.bank.v1";

/// The data of a `money_moved` event.
#[derive(Deserialize)]
struct MoneyMoved {
    account: String,
    /// In cents; a negative amount leaves the account.
    amount: i64,
}

/// The table with its checkpoint.
struct Accounts {
    database: tokio_postgres::Client,
    projection: String,
}

type Failure = Box<dyn Error + Send + Sync>;

impl Accounts {
    async fn open(url: &str, projection: String) -> Result<Self, Failure> {
        let (database, connection) = tokio_postgres::connect(url, NoTls).await?;
        // The next statement fails if the connection is lost.
        tokio::spawn(connection);
        let tables = "
            CREATE TABLE IF NOT EXISTS accounts (
                account text PRIMARY KEY, balance bigint NOT NULL, moves bigint NOT NULL);
            CREATE TABLE IF NOT EXISTS projection_checkpoints (
                projection text PRIMARY KEY, generation bigint NOT NULL, checkpoint bigint NOT NULL)";
        database.batch_execute(tables).await?;
        Ok(Self { database, projection })
    }
}

impl ProjectionView for Accounts {
    type Error = Failure;

    async fn apply(&mut self, event: &StoredEvent, at: Checkpoint) -> Result<(), Failure> {
        let MoneyMoved { account, amount } = serde_json::from_str(event.event()?.data.get())?;
        die("before-write", at);
        let transaction = self.database.transaction().await?;
        let count = "INSERT INTO accounts VALUES ($1, $2, 1)
            ON CONFLICT (account) DO UPDATE SET balance = accounts.balance + $2, moves = accounts.moves + 1";
        transaction.execute(count, &[&account, &amount]).await?;
        advance(&transaction, &self.projection, at).await?;
        die("before-commit", at);
        transaction.commit().await?;
        die("before-telling", at);
        Ok(())
    }

    async fn checkpoint(&mut self) -> Result<Option<Checkpoint>, Failure> {
        let ask = "SELECT generation, checkpoint FROM projection_checkpoints WHERE projection = $1";
        let row = self.database.query_opt(ask, &[&self.projection]).await?;
        let Some(row) = row else { return Ok(Some(Checkpoint::default())) };
        let number = |column: &str| row.try_get::<_, i64>(column).map(i64::cast_unsigned);
        let (generation, offset) = (Generation(number("generation")?), Offset(number("checkpoint")?));
        Ok(Some(Checkpoint { generation, offset }))
    }

    async fn clear(&mut self, start: Checkpoint) -> Result<(), Failure> {
        let transaction = self.database.transaction().await?;
        transaction.execute("DELETE FROM accounts", &[]).await?;
        let begin = "INSERT INTO projection_checkpoints VALUES ($1, $2, $3)
            ON CONFLICT (projection) DO UPDATE SET generation = $2, checkpoint = $3";
        let (generation, checkpoint) = numbers(start);
        transaction.execute(begin, &[&self.projection, &generation, &checkpoint]).await?;
        die("in-clear", start);
        Ok(transaction.commit().await?)
    }
}

/// Moves the checkpoint forwards in this generation. Any other checkpoint means that another program works on the table.
async fn advance(transaction: &Transaction<'_>, projection: &str, at: Checkpoint) -> Result<(), Failure> {
    let advance = "UPDATE projection_checkpoints SET checkpoint = $3
        WHERE projection = $1 AND generation = $2 AND checkpoint < $3";
    let (generation, checkpoint) = numbers(at);
    match transaction.execute(advance, &[&projection, &generation, &checkpoint]).await? {
        1 => Ok(()),
        _ => Err("somebody else keeps this table".into()),
    }
}

fn numbers(at: Checkpoint) -> (i64, i64) {
    (at.generation.get().cast_signed(), at.offset.get().cast_signed())
}

/// Kills the program where a test requires it.
fn die(place: &str, at: Checkpoint) {
    if std::env::var("ACCOUNTS_CRASH").is_ok_and(|wanted| wanted == format!("{place}@{}", at.offset)) {
        let _ = std::process::Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
        // Until the signal arrives.
        std::thread::park();
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(broker), Some(database)) = (arguments.next(), arguments.next()) else {
        return Err("usage: accounts_table BROKER POSTGRES [PROJECTION]".into());
    };
    let projection = arguments.next().unwrap_or_else(|| "accounts".to_owned());
    let view = Accounts::open(&database, projection.clone()).await?;
    let definition = NewProjection::of_topic(TOPIC.parse()?);
    let mut runner = ProjectionRunner::new(Client::new(&broker)?, projection, definition, view);
    let mut asked = signal(SignalKind::terminate())?;
    let stop = async {
        asked.recv().await;
    };
    Ok(runner.run(stop).await.map_err(|stopped| stopped.to_string())?)
}
