//! Number 8: the registry is away for a while. On PostgreSQL the database is stopped, on files the broker is killed.

use super::once;
use super::processes::{BrokerProcess, Engine, RunningProgram, bank, until};
use crate::http::expect_problem;
use contract::Kind;
use log_postgres::testing::{ServerOptions, ShutdownMode, TestServer as Database};
use serde_json::json;
use std::collections::HashSet;

const EVENTS: u64 = 120;

/// Which pause this line tells of; 0 where it tells of none.
fn pause(line: &str) -> u32 {
    line.strip_prefix("paused ").map_or(0, |number| number.parse().unwrap())
}

/// Watches a worker through an outage: it says that it pauses, and nothing happens until it is over.
async fn pauses(worker: &mut RunningProgram, stage: &BrokerProcess) -> usize {
    worker.has_said(|line| pause(line) >= 1).await;
    let before = stage.effects("billing").len();
    assert!(before < usize::try_from(EVENTS).unwrap(), "it was done before the outage");
    worker.has_said(|line| pause(line) >= 4).await;
    assert_eq!(stage.effects("billing").len(), before, "an effect while the registry was away");
    before
}

pub(super) async fn while_the_registry_is_away_the_worker_pauses_and_no_effect_happens(engine: Engine) {
    let database = (engine == Engine::Postgres)
        .then(|| Database::start_with(ServerOptions { fsync: true, ..ServerOptions::default() }));
    let mut stage = BrokerProcess::at(database.as_ref().map(Database::create_database)).await;
    stage.put_handler("billing").await;
    let published: HashSet<_> = stage.publish_several(EVENTS).await.into_iter().collect();
    // One event at a time: while it pauses, no work is under way.
    let mut worker = stage.worker("billing", &[("WORKER_PARALLEL", "1")]);
    for how in [ShutdownMode::Fast, ShutdownMode::Immediate] {
        let so_far = stage.effects("billing").len();
        until("some effects", async || (stage.effects("billing").len() >= so_far + 10).then_some(())).await;
        match &database {
            Some(database) => {
                tokio::task::block_in_place(|| database.stop(how));
                pauses(&mut worker, &stage).await;
                // The broker says so to everybody.
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
    // Every effect had a claim of its own, those of an account one after another. One whose answer was lost with the broker
    // is found again later, when others have gone before it.
    for account in effects.iter().map(|effect| &effect.subject).collect::<HashSet<_>>() {
        let tokens: Vec<_> = effects.iter().filter(|it| it.subject == *account).map(|it| it.token).collect();
        assert!(tokens.is_sorted_by(|one, other| one < other), "{account}: {effects:?}");
    }
}
