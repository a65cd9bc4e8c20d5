//! Every operation of the HTTP API has a method of the client.

use crate::test_broker::TestBroker;
use bytes::Bytes;
use contract::api::*;
use event_broker_client::Client;
use event_broker_client::connection::{BrokerConnection, ConnectionOptions};
use futures_util::stream::Empty;
use reqwest::Method;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The operations that are pages for browsers and load balancers.
const PAGES: [&str; 7] = ["getDocs", "getDocsFile", "getDocsPage", "getDocument", "getRoot", "isAlive", "isReady"];

/// The name of each operation with the method that performs it. A method that does not exist does not compile.
macro_rules! operations {
    ($($operation:literal => $method:path,)*) => {
        [$(($operation, { let _ = $method; stringify!($method) })),*]
    };
}

fn methods() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from(operations! {
        "publishEvent" => Client::publish,
        "publishBatch" => Client::publish_batch,
        "importEvents" => Client::import::<Empty<io::Result<Bytes>>>,
        "listEvents" => Client::read,
        "pollEvents" => Client::wait,
        "streamEvents" => Client::follow,
        "getEvent" => Client::event,
        "readLog" => Client::wait_log,
        "getAggregate" => Client::aggregate,
        "listAggregateEvents" => Client::read_aggregate,
        "listTopics" => Client::topics,
        "registerTopic" => Client::register_topic,
        "listSegments" => Client::segments,
        "getTopic" => Client::topic,
        "changeTopic" => Client::change_topic,
        "deleteTopic" => Client::delete_topic,
        "republishTopic" => Client::republish,
        "compactTopic" => Client::compact_topic,
        "trimTopic" => Client::trim_topic,
        "listEventTypes" => Client::event_types,
        "registerEventType" => Client::register_event_type,
        "getEventType" => Client::event_type,
        "archiveEventType" => Client::archive_event_type,
        "deleteEventType" => Client::delete_event_type,
        "addVersion" => Client::add_version,
        "getVersion" => Client::version,
        "finaliseVersion" => Client::finalise_version,
        "deprecateVersion" => Client::deprecate_version,
        "createConsumer" => Client::create_consumer,
        "listConsumers" => Client::consumers,
        "getConsumer" => Client::consumer,
        "deleteConsumer" => Client::delete_consumer,
        "commitOffset" => Client::commit_offset,
        "listConsumerGroups" => Client::consumer_groups,
        "getConsumerGroup" => Client::consumer_group,
        "deleteConsumerGroup" => Client::delete_group,
        "resetConsumerGroup" => Client::reset_group,
        "putProjection" => Client::put_projection,
        "listProjections" => Client::projections,
        "getProjection" => Client::projection,
        "deleteProjection" => Client::delete_projection,
        "moveCheckpoint" => Client::move_checkpoint,
        "resetProjection" => Client::reset_projection,
        "waitForProjection" => Client::wait_for_projection,
        "claimEvent" => Client::claim,
        "completeClaims" => Client::complete_claims,
        "listClaims" => Client::open_claims,
        "getClaim" => Client::open_claim,
        "heartbeatClaim" => Client::heartbeat,
        "completeClaim" => Client::complete_claim,
        "failClaim" => Client::fail_claim,
        "releaseClaim" => Client::release_claim,
        "putHandler" => Client::put_handler,
        "listHandlers" => Client::handlers,
        "getHandler" => Client::handler,
        "deleteHandler" => Client::delete_handler,
        "listDeadLetters" => Client::dead_letters,
        "summariseDeadLetters" => Client::dead_letter_summary,
        "getDeadLetter" => Client::dead_letter,
        "redriveDeadLetter" => Client::redrive,
        "discardDeadLetter" => Client::discard,
        "redriveDeadLetters" => Client::redrive_all,
        "discardDeadLetters" => Client::discard_all,
        "createSubscription" => Client::create_subscription,
        "listSubscriptions" => Client::subscriptions,
        "getSubscription" => Client::subscription,
        "changeSubscription" => Client::change_subscription,
        "deleteSubscription" => Client::delete_subscription,
        "pauseSubscription" => Client::pause_subscription,
        "resumeSubscription" => Client::resume_subscription,
        "closeBreaker" => Client::close_breaker,
        "rotateSecret" => Client::rotate_secret,
        "testSubscription" => Client::test_subscription,
        "replaySubscription" => Client::replay_subscription,
        "listReplays" => Client::replays,
        "listBlockedGroups" => Client::blocked_groups,
        "listJobs" => Client::jobs,
        "createTask" => Client::create_task,
        "getJob" => Client::job,
        "retryJob" => Client::retry_job,
        "cancelJob" => Client::cancel_job,
        "completeJob" => Client::complete_job,
        "resumeDispatch" => Client::resume_dispatch,
        "createPool" => Client::create_pool,
        "listPools" => Client::pools,
        "getPool" => Client::pool,
        "changePool" => Client::change_pool,
        "deletePool" => Client::delete_pool,
    })
}

#[tokio::test]
async fn every_operation_of_the_http_api_has_a_method_of_the_client() {
    let server = TestBroker::set(Vec::new()).await;
    let connection = BrokerConnection::new(&server.url, ConnectionOptions::default()).unwrap();
    let response = connection.send(connection.request(Method::GET, &["openapi.json"], &[])).await.unwrap();
    let document: Value = response.json().await.unwrap();
    let methods_of_paths = document["paths"].as_object().unwrap().values().map(|path| path.as_object().unwrap());
    let operations: BTreeSet<&str> = methods_of_paths
        .flat_map(|path| path.values())
        .filter_map(|operation| operation["operationId"].as_str())
        .collect();
    let methods = methods();
    let listed: BTreeSet<&str> = methods.keys().copied().chain(PAGES).collect();
    let missing: Vec<_> = operations.difference(&listed).collect();
    assert!(missing.is_empty(), "add a method to the client, and a line here, for {missing:?}");
    let unknown: Vec<_> = listed.difference(&operations).collect();
    assert!(unknown.is_empty(), "no operations of the HTTP API: {unknown:?}");
    let distinct: BTreeSet<_> = methods.values().collect();
    assert_eq!(distinct.len(), methods.len(), "a method is listed for two operations: {methods:?}");
    server.close().await;
}
