//! The engine keeps every promise of `Log`, and returns the same as the model.

use crate::support::TestEngine;
use log::testing::model::agree;

log::conformance!(TestEngine::new());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_seeds_agree_with_the_model() {
    for seed in 0..20 {
        agree(&TestEngine::new(), seed, 100).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_run_agrees_with_the_model() {
    agree(&TestEngine::new(), 1_000_003, 1000).await;
}
