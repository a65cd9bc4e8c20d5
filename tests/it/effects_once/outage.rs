//! The claims registry is unavailable for a while: on PostgreSQL the database is stopped, on files the broker is
//! killed.

use super::once;
use super::processes::{BrokerProcess, Engine, RunningProgram, bank, until};
use crate::http::expect_problem;
use contract::Kind;
use log_postgres::testing::{ServerOptions, ShutdownMode, TestServer as Database};
use serde_json::json;
use std::collections::HashSet;

const EVENTS: u64 = 120;

/// The number of the pause that this line reports; 0 if it reports none.
fn pause(line: &str) -> u32 {
    line.strip_prefix("paused ").map_or(0, |number| number.parse().unwrap())
}

/// Watches a worker during an outage: it reports that it pauses, and no effect happens until the outage ends.
async fn pauses(worker: &mut RunningProgram, stage: &BrokerProcess) -> usize {
    worker.has_said(|line| pause(line) >= 1).await;
    let before = stage.effects("billing").len();
    assert!(before < usize::try_from(EVENTS).unwrap(), "the worker was finished before the outage");
    worker.has_said(|line| pause(line) >= 4).await;
    assert_eq!(stage.effects("billing").len(), before, "an effect happened during the outage");
    before
}

pub(super) async fn while_the_registry_is_away_the_worker_pauses_and_no_effect_happens(engine: Engine) {
    let database = (engine == Engine::Postgres)
        .then(|| Database::start_with(ServerOptions { fsync: true, ..ServerOptions::default() }));
    let mut stage = BrokerProcess::at(database.as_ref().map(Database::create_database)).await;
    stage.put_handler("billing").await;
    let published: HashSet<_> = stage.publish_several(EVENTS).await.into_iter().collect();
    // One event at a time: while the worker pauses, no work is in flight.
    let mut worker = stage.worker("billing", &[("WORKER_PARALLEL", "1")]);
    for how in [ShutdownMode::Fast, ShutdownMode::Immediate] {
        let so_far = stage.effects("billing").len();
        until("some effects", async || (stage.effects("billing").len() >= so_far + 10).then_some(())).await;
        match &database {
            Some(database) => {
                tokio::task::block_in_place(|| database.stop(how));
                pauses(&mut worker, &stage).await;
                // The broker reports the outage to every client.
                let wanted = json!({"handler": "other", "topic": bank(), "sequence": 1});
                let broker = stage.broker.as_ref().unwrap();
                let answer = broker.post("/v1/claims", &wanted).await;
                expect_problem(answer, 503, Kind::Unavailable.code());
                tokio::task::block_in_place(|| database.start_again());
            }
            None => {
                let folder = stage.kill_broker();
                pauses(&mut worker, &stage).await;
                stage.restart_broker(folder);
            }
        }
        worker.has_said(|line| line == "running").await;
    }
    stage.caught_up("billing", EVENTS).await;
    worker.stop();
    let effects = stage.effects("billing");
    assert_eq!(once(&effects), published);
    // Every effect had its own claim; the claims of one account followed each other. A claim whose response was lost
    // with the broker is found again later, after other events were processed.
    for account in effects.iter().map(|effect| &effect.subject).collect::<HashSet<_>>() {
        let tokens: Vec<_> = effects.iter().filter(|it| it.subject == *account).map(|it| it.token).collect();
        assert!(tokens.is_sorted_by(|one, other| one < other), "{account}: {effects:?}");
    }
}
