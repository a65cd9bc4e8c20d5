//! A handler that appends one line per event to a file, once, whenever it is killed.
//!
//! - The claim lets one program at a time work on an event. The file itself shows whether the effect has happened: a line is
//!   written with one write, and has the event's id. If a program is killed between its effect and its report to the broker,
//!   the event is claimed again, and the next worker finds the line.
//! - The file is locked while it is searched and written. A token below the highest one in the file for the event is refused:
//!   that worker was stalled until after its lease had expired.
//!
//! ```sh
//! cargo run -p event-broker-client --example append_once -- http://127.0.0.1:8087 ./effects.txt
//! ```
//!
//! Lines are `id subject aggregateSequence token attempt`, separated by tabs. With `-` after the handler's name it works on the
//! events whose ids it reads from standard input, and prints the outcome of each.
//!
//! For the tests: `WORKER_CRASH=after-effect@7` kills it at this point of the event with this sequence,
//! `WORKER_FAIL=subject` makes the work on this subject fail, `WORKER_PARALLEL` and `WORKER_ORDER` are options.

use contract::api::*;
use contract::{Claim, StoredEvent, TopicId};
use event_broker_client::Client;
use event_broker_client::handler::{self, HandlerOptions, HandlerRunner, RunnerState, WorkError, WorkOutcome};
use std::error::Error;
use std::fs::OpenOptions;
use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

const TOPIC: &str = "gts.hx.core.events.topic.v1~vendor.bank.v1";

type Failure = Box<dyn Error + Send + Sync>;

/// Appends an event's line, unless it exists.
fn append(file: &Path, event: &StoredEvent, claim: &Claim) -> Result<(), Failure> {
    let subject = event.event()?.subject.unwrap_or_default();
    die("before-effect", event);
    let mut effects = OpenOptions::new().create(true).read(true).append(true).open(file)?;
    effects.lock()?;
    let mut text = String::new();
    effects.read_to_string(&mut text)?;
    let id = event.id.to_string();
    let there = text.lines().filter(|line| line.starts_with(&id));
    let token = there.filter_map(|line| line.split('\t').nth(3)?.parse::<u64>().ok()).max();
    match token {
        Some(token) if token > claim.token.get() => {
            return Err(WorkError::new("StaleToken", "Somebody with a higher token was here.").into());
        }
        Some(_) => return Ok(()),
        None => (),
    }
    let line = format!("{id}\t{subject}\t{}\t{}\t{}\n", event.aggregate_sequence, claim.token, claim.attempt);
    effects.write_all(line.as_bytes())?;
    effects.sync_data()?;
    die("after-effect", event);
    Ok(())
}

/// The work on one event.
async fn work(file: Arc<PathBuf>, event: StoredEvent, claim: Claim) -> Result<(), Failure> {
    die("after-claim", &event);
    if std::env::var("WORKER_FAIL").is_ok_and(|subject| event.event().is_ok_and(|it| it.subject == Some(subject))) {
        return Err(WorkError::new("Declined", "This subject is declined.").into());
    }
    append(&file, &event, &claim)?;
    die("before-done", &event);
    Ok(())
}

/// Kills the program where a test requires it.
fn die(place: &str, event: &StoredEvent) {
    if std::env::var("WORKER_CRASH").is_ok_and(|wanted| wanted == format!("{place}@{}", event.sequence)) {
        let _ = std::process::Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
        // Until the signal arrives.
        std::thread::park();
    }
}

fn options() -> HandlerOptions {
    let parallel = std::env::var("WORKER_PARALLEL").ok().and_then(|number| number.parse().ok());
    let order = std::env::var("WORKER_ORDER").ok();
    HandlerOptions {
        parallel: parallel.unwrap_or(HandlerOptions::default().parallel),
        order: order.and_then(|order| serde_json::from_value(order.into()).ok()),
        recheck: Duration::from_millis(500),
        sweep: Duration::from_millis(500),
        ..HandlerOptions::default()
    }
}

/// Prints the state of the runner, line by line.
async fn report(mut state: tokio::sync::watch::Receiver<RunnerState>) {
    let mut out = std::io::stdout();
    loop {
        let line = match *state.borrow_and_update() {
            RunnerState::Running => "running".to_owned(),
            RunnerState::Paused(tries) => format!("paused {tries}"),
            RunnerState::Draining => "draining".to_owned(),
        };
        let said = writeln!(out, "{line}").and_then(|()| out.flush());
        if said.is_err() || state.changed().await.is_err() {
            return;
        }
    }
}

/// Works on events whose ids are delivered on standard input.
async fn work_on_delivered(client: &Client, name: &str, file: Arc<PathBuf>) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let id = line?;
        let event = client.event(id.trim().parse()?).await?;
        let file = Arc::clone(&file);
        let effect = move |event, claim| work(Arc::clone(&file), event, claim);
        let said = match handler::once(client, name, event, &options(), effect).await? {
            WorkOutcome::Done => "done",
            WorkOutcome::AlreadyDone => "already",
            WorkOutcome::Stale => "stale",
            WorkOutcome::DeadLetter => "dead",
            WorkOutcome::Gone => "gone",
            WorkOutcome::Later(_) => "held",
        };
        writeln!(out, "{said}").and_then(|()| out.flush())?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(broker), Some(file)) = (arguments.next(), arguments.next()) else {
        return Err("usage: append_once BROKER FILE [HANDLER [-]]".into());
    };
    let (client, file) = (Client::new(&broker)?, Arc::new(PathBuf::from(file)));
    let name = arguments.next().unwrap_or_else(|| "append_once".to_owned());
    if arguments.next().is_some() {
        return work_on_delivered(&client, &name, file).await;
    }
    let effect = move |event, claim| work(Arc::clone(&file), event, claim);
    let runner = HandlerRunner::new(client, name, TopicId::parse(TOPIC)?, options(), effect);
    tokio::spawn(report(runner.state()));
    let mut asked = signal(SignalKind::terminate())?;
    let stop = async {
        asked.recv().await;
    };
    Ok(runner.run(stop).await?)
}
