//! Acceptance tests of effects that happen exactly once, on files and on PostgreSQL.
//!
//! Brokers, workers and projections are real processes, and crashes are real kills. Effects are counted outside the
//! broker: in a file that the workers append to, and in a table that the projection keeps.

mod outage;
mod processes;

use contract::api::*;
use contract::{AggregateSequence, ClaimOrder, DeadLetterFilter, NewHandler, Offset, RedriveRequest};
use log_postgres::testing::TestServer as Database;
use processes::{BrokerProcess, Engine, RunningProgram, WorkerEffect, moved, until};
use serde_json::Value;
use std::collections::HashSet;
use std::process::Command;
use std::time::Duration;
use uuid::Uuid;

macro_rules! on_both_engines {
    ($($name:ident)*) => {
        mod on_files {
            $(#[tokio::test(flavor = "multi_thread")] async fn $name() { super::$name(super::Engine::File).await })*
        }
        mod on_postgresql {
            $(#[tokio::test(flavor = "multi_thread")] async fn $name() { super::$name(super::Engine::Postgres).await })*
        }
    };
}

on_both_engines! {
    a_publisher_publishes_again_after_a_rollback_and_side_effects_happen_once
    a_worker_crashes_at_four_points_and_side_effects_happen_once
    a_projection_crashes_at_three_points_and_its_view_counts_each_event_once
    events_out_of_order_are_ignored_where_they_are_stale
    of_two_workers_that_receive_the_same_event_only_one_claims_it
    failed_work_is_retried_after_a_back_off_then_given_up_and_left_to_a_person
    aggregates_whose_names_look_alike_do_not_collide
    while_the_registry_is_away_the_worker_pauses_and_no_effect_happens
}

use outage::while_the_registry_is_away_the_worker_pauses_and_no_effect_happens;

/// The events of the effects; each event must occur once.
fn once(effects: &[WorkerEffect]) -> HashSet<Uuid> {
    let ids: HashSet<_> = effects.iter().map(|effect| effect.id).collect();
    assert_eq!(ids.len(), effects.len(), "an effect happened twice: {effects:?}");
    ids
}

/// Runs a publisher process that reads `events` from a file, starting at its checkpoint.
async fn publish_from(stage: &BrokerProcess, events: &[Value], checkpoint: usize, to: usize) {
    let lines: Vec<_> = events[checkpoint..to].iter().map(ToString::to_string).collect();
    let file = stage.folder.path().join("events.ndjson");
    std::fs::write(&file, lines.join("\n")).unwrap();
    let mut publisher = Command::new(env!("CARGO_BIN_EXE_event-broker"));
    publisher.args(["import", "--url", &stage.url]).arg(&file);
    let output = tokio::task::spawn_blocking(move || publisher.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn a_publisher_publishes_again_after_a_rollback_and_side_effects_happen_once(engine: Engine) {
    const EVENTS: usize = 30;
    let mut stage = BrokerProcess::on(engine).await;
    stage.put_handler("billing").await;
    let events: Vec<Value> = (0..EVENTS)
        .map(|n| {
            let mut event = moved(&format!("account-{}", n % 4), 1);
            event.id = Some(Uuid::from_u128(n as u128 + 1));
            serde_json::to_value(&event).unwrap()
        })
        .collect();
    let table = Database::shared().create_database();
    let (worker, projection) = (stage.worker("billing", &[]), stage.projection(&table, "accounts", None));
    publish_from(&stage, &events, 0, 20).await;
    // The publisher's checkpoint is rolled back; then the broker is killed, and the publisher starts again.
    publish_from(&stage, &events, 10, 25).await;
    let folder = stage.kill_broker();
    stage.restart_broker(folder);
    publish_from(&stage, &events, 0, EVENTS).await;
    stage.caught_up("billing", EVENTS as u64).await;
    until("the projection has applied them all", async || {
        let projection = stage.client.projection("accounts").await.ok()?;
        (projection.checkpoint.get() >= EVENTS as u64).then_some(())
    })
    .await;
    worker.stop();
    projection.stop();
    assert_eq!(once(&stage.effects("billing")).len(), EVENTS);
    let counted = Database::shared().sql(&table, "SELECT sum(moves), sum(balance) FROM accounts");
    assert_eq!(counted, format!("{EVENTS}|{EVENTS}"));
    // Delivering the events again, by any path, has no effect.
    let mut again = stage.delivered_to(&stage.url, "billing", &[]);
    for event in events.iter().chain(&events) {
        again.tell(event["id"].as_str().unwrap());
        assert_eq!(again.says().await, "already");
    }
    assert_eq!(stage.effects("billing").len(), EVENTS);
}

async fn a_worker_crashes_at_four_points_and_side_effects_happen_once(engine: Engine) {
    const EVENTS: u64 = 7;
    let stage = BrokerProcess::on(engine).await;
    let published: HashSet<_> = stage.publish_several(EVENTS).await.into_iter().collect();
    // The crash points, each with the attempt by which the effect has happened.
    for (point, attempt) in [("after-claim", 2), ("before-effect", 2), ("after-effect", 1), ("before-done", 1)] {
        stage.put_handler(point).await;
        // One crash at a time: at the first event, at one in the middle, and at the last.
        for sequence in [1, 4, EVENTS] {
            stage.worker(point, &[("WORKER_CRASH", &format!("{point}@{sequence}"))]).dies().await;
        }
        let worker = stage.worker(point, &[]);
        stage.caught_up(point, EVENTS).await;
        worker.stop();
        let effects = stage.effects(point);
        assert_eq!(once(&effects), published, "{point}");
        let attempts: Vec<_> = effects.iter().map(|effect| effect.attempt).collect();
        assert!(attempts.contains(&attempt) && attempts.iter().all(|it| *it <= 4), "{point}: {attempts:?}");
        // Each aggregate is processed in order, however often the worker crashes.
        for account in ["account-0", "account-1", "account-2"] {
            let numbers: Vec<_> =
                effects.iter().filter(|it| it.subject == account).map(|it| it.aggregate_sequence).collect();
            assert!(numbers.is_sorted(), "{point}, {account}: {numbers:?}");
        }
    }
}

async fn a_projection_crashes_at_three_points_and_its_view_counts_each_event_once(engine: Engine) {
    const EVENTS: u64 = 6;
    let stage = BrokerProcess::on(engine).await;
    stage.publish_several(EVENTS).await;
    for point in ["before-write", "before-commit", "before-telling"] {
        let table = Database::shared().create_database();
        for sequence in [1, 4, EVENTS] {
            stage.projection(&table, point, Some(&format!("{point}@{sequence}"))).dies().await;
        }
        let projection = stage.projection(&table, point, None);
        let there = stage.client.wait_for_projection(point, Offset(EVENTS), Duration::from_secs(30)).await.unwrap();
        assert_eq!(there.lag.events, 0);
        projection.stop();
        let rows = Database::shared().sql(&table, "SELECT account, balance, moves FROM accounts ORDER BY account");
        assert_eq!(rows, "account-0|9|2\naccount-1|5|2\naccount-2|7|2", "{point}");
    }
}

/// Delivers events of one aggregate in this order; returns the worker's reply to each.
async fn deliver(worker: &mut RunningProgram, ids: &[Uuid], order: &[usize]) -> Vec<String> {
    let mut said = Vec::new();
    for number in order {
        worker.tell(&ids[number - 1].to_string());
        said.push(worker.says().await);
    }
    said
}

async fn events_out_of_order_are_ignored_where_they_are_stale(engine: Engine) {
    let stage = BrokerProcess::on(engine).await;
    let mut ids = Vec::new();
    for n in 1..=6 {
        ids.push(stage.publish(moved("account-1", n)).await);
    }
    let mut latest = stage.delivered_to(&stage.url, "latest", &[]);
    let said = deliver(&mut latest, &ids, &[3, 1, 2, 3, 6, 4, 5, 6]).await;
    assert_eq!(said, ["done", "stale", "stale", "already", "done", "stale", "stale", "already"]);
    let numbers = |handler: &str| stage.effects(handler).iter().map(|it| it.aggregate_sequence).collect::<Vec<_>>();
    assert_eq!(numbers("latest"), [3, 6]);
    // If no event may be skipped, an event waits for the one before it.
    let mut gapless = stage.delivered_to(&stage.url, "gapless", &[("WORKER_ORDER", "gapless")]);
    let said = deliver(&mut gapless, &ids, &[2, 1, 3, 2, 3, 6, 4, 5, 6]).await;
    assert_eq!(said, ["held", "done", "held", "done", "done", "held", "done", "done", "done"]);
    assert_eq!(numbers("gapless"), [1, 2, 3, 4, 5, 6]);
}

async fn of_two_workers_that_receive_the_same_event_only_one_claims_it(engine: Engine) {
    const ROUNDS: usize = 25;
    let stage = BrokerProcess::on(engine).await;
    // On a shared log they call two brokers.
    let other = stage.database.as_deref().map(crate::several_brokers::start);
    let other_url = other.as_ref().map_or(&stage.url, |other| &other.url);
    let mut one = stage.delivered_to(&stage.url, "billing", &[]);
    let mut two = stage.delivered_to(other_url, "billing", &[]);
    for round in 0..ROUNDS {
        let id = stage.publish(moved(&format!("account-{round}"), 1)).await.to_string();
        one.tell(&id);
        two.tell(&id);
        let mut said = [one.says().await, two.says().await];
        said.sort();
        assert!(said[1] == "held" || said[0] == "already", "round {round}: {said:?}");
        assert!(said.contains(&"done".to_owned()), "round {round}: {said:?}");
    }
    assert_eq!(once(&stage.effects("billing")).len(), ROUNDS);
}

async fn failed_work_is_retried_after_a_back_off_then_given_up_and_left_to_a_person(engine: Engine) {
    let stage = BrokerProcess::on(engine).await;
    let (lease, backoff) = (Some("PT5S".parse().unwrap()), Some("PT0.2S".parse().unwrap()));
    let terms = NewHandler { lease, backoff, max_attempts: Some(3), order: Some(ClaimOrder::Latest) };
    stage.client.put_handler("billing", terms).await.unwrap();
    let bad = [stage.publish(moved("bad", 1)).await, stage.publish(moved("bad", 2)).await];
    let good = stage.publish(moved("good", 3)).await;
    // By default the runner uses `gapless`, where later events of an aggregate wait for its dead letter.
    let failing = stage.worker("billing", &[("WORKER_FAIL", "bad"), ("WORKER_ORDER", "latest")]);
    // A failing event delays no other aggregate, and is given up after its last attempt.
    stage.caught_up("billing", 3).await;
    let effects = stage.effects("billing");
    assert_eq!(effects.iter().map(|it| it.id).collect::<Vec<_>>(), [good]);
    let filter = DeadLetterFilter { name: Some("billing".to_owned()), ..DeadLetterFilter::default() };
    let letters = stage.client.dead_letters(&filter, None, 10).await.unwrap().items;
    assert_eq!(letters.iter().map(|it| it.event_id).collect::<Vec<_>>(), bad);
    for dead_letter in &letters {
        let said = (dead_letter.exc_class.as_str(), dead_letter.exc_msg.as_str(), dead_letter.service.as_str());
        assert_eq!(said, ("Declined", "This subject is declined.", "billing"));
        assert_eq!(dead_letter.attempts.iter().map(|it| it.number).collect::<Vec<_>>(), [1, 2, 3]);
        let waits: Vec<_> = dead_letter
            .attempts
            .windows(2)
            .map(|pair| pair[1].started_at.millis() - pair[0].failed_at.millis())
            .collect();
        assert!(waits[0] >= 200 && waits[1] >= 400, "{waits:?}");
        assert!(dead_letter.attempts.is_sorted_by(|one, other| one.token < other.token));
    }
    failing.stop();
    // The operator removes the cause, redrives one dead letter and discards the other. The worker notices without a
    // restart.
    let mended = stage.worker("billing", &[("WORKER_ORDER", "latest")]);
    stage.client.discard(letters[1].id, "Not worth it.".to_owned(), None).await.unwrap();
    stage.client.redrive(letters[0].id, RedriveRequest::default(), None).await.unwrap();
    until("the redriven event is done", async || (stage.effects("billing").len() == 2).then_some(())).await;
    mended.stop();
    let effects = stage.effects("billing");
    assert_eq!(effects.iter().map(|it| it.id).collect::<Vec<_>>(), [good, bad[0]]);
    assert!(effects[1].token > letters[0].attempts[2].token.get(), "{effects:?}");
    let mut again = stage.delivered_to(&stage.url, "billing", &[]);
    assert_eq!(deliver(&mut again, &bad, &[1, 2]).await, ["already", "already"]);
    assert_eq!(stage.client.dead_letter_summary().await.unwrap().count, 0);
}

async fn aggregates_whose_names_look_alike_do_not_collide(engine: Engine) {
    let stage = BrokerProcess::on(engine).await;
    let names = [
        "acme",
        "Acme",
        "ACME",
        " acme",
        "acme ",
        "ac me",
        "ac  me",
        "acme/1",
        "acme%2F1",
        "acme:1",
        "acme~1",
        "acme.1",
        "acme|1",
        "acme\\1",
        "\u{e9}t\u{e9}",
        "e\u{301}te\u{301}",
        "ete",
        "\u{ff41}cme",
        "a\u{430}cme",
        "acme\u{200b}",
        "straße",
        "strasse",
        "İ",
        "i",
        "ı",
        "1",
        "01",
        "+1",
        "null",
        "\"acme\"",
        "'acme'",
        "#acme",
        "?acme",
    ];
    let mut ids = Vec::new();
    for (n, name) in names.iter().enumerate() {
        let published = stage.client.publish(moved(name, n as u64), None).await.unwrap();
        // Each name is a separate aggregate without earlier events.
        assert_eq!(published.event.aggregate_sequence, AggregateSequence(1), "{name:?}");
        ids.push(published.event.id);
    }
    // In reverse order: if two names were one aggregate, the earlier event would be stale.
    let mut worker = stage.delivered_to(&stage.url, "billing", &[]);
    let order: Vec<_> = (1..=names.len()).rev().collect();
    let said = deliver(&mut worker, &ids, &order).await;
    assert!(said.iter().all(|said| said == "done"), "{said:?}");
    let effects = stage.effects("billing");
    assert_eq!(once(&effects).len(), names.len());
    let subjects: HashSet<_> = effects.iter().map(|it| it.subject.as_str()).collect();
    assert_eq!(subjects, names.into_iter().collect());
}
