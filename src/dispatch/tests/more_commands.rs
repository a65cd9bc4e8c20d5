//! More commands of the tables: dead letters in bulk, deleted pools, and facts of older versions.
//!
//! ```text
//! redrive-all mail         -> 1 skipped 2             every open dead letter of a subscription
//! letters-all              -> mail/1 discarded        resolved dead letters too
//! why mail/1               -> The subscription …      the reason of a resolution
//! drop-pool p              -> INVALID_STATE
//! old-drop-pool p                                     as versions did that did not check for users
//! old-unsubscribe mail                                as versions did that left dead letters open
//! deferred mail/1          -> 2 in 1000: The receiver responded with 503 and Retry-After.
//! breaker mail             -> Open after 10 next in 30000
//! close-breaker mail
//! rotate mail 0                                       a new signing secret, with this grace in seconds
//! pause-dispatch    resume-dispatch                   of the whole log
//! ```

use super::DispatchFixture;
use crate::clock::Clock;
use crate::ledger::{Command, Decision, DispatchFact, Entry, ReplyRecorder};
use contract::api::*;
use contract::{BulkResolveRequest, DeadLetter, DeadLetterFilter, Error, RedriveRequest, Result, SecretRotation};
use std::collections::BTreeMap;

/// Appends a fact without checking the state.
struct AppendFact(DispatchFact);

impl Command for AppendFact {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        decision.add_entry(Entry::Dispatch { what: self.0.clone() }).map(drop)
    }

    fn bytes(&self) -> usize {
        0
    }
}

impl DispatchFixture {
    pub(super) async fn ask_more(&self, verb: &str, rest: &[&str], _: &BTreeMap<&str, &str>) -> Result<String> {
        let subscriptions = self.broker.subscriptions(None);
        Ok(match verb {
            "redrive-all" => {
                let order = BulkResolveRequest {
                    name: rest.first().map(|it| (*it).to_owned()),
                    dry_run: rest.contains(&"dry"),
                    ..BulkResolveRequest::default()
                };
                let resolved = self.broker.redrive_all(order, None).await?;
                format!("{} skipped {}", resolved.count, resolved.skipped)
            }
            "pause-dispatch" => {
                crate::dispatch::pause_dispatch(self.broker.default_ledger(), "restore", "restored").await?;
                String::new()
            }
            "resume-dispatch" => {
                self.broker.resume_dispatch(Some(&contract::ProducerId("ops".to_owned()))).await?;
                String::new()
            }
            "degraded" => self.broker.degradations().join(" | "),
            "letters-all" => {
                let dead_letters = self.all_letters().await?;
                let shown = dead_letters.iter().map(|it| format!("{}/{} {:?}", it.name, it.sequence, it.status));
                shown.collect::<Vec<_>>().join(" | ")
            }
            "why" => {
                let dead_letter = self.letter(rest[0]).await?;
                dead_letter.resolution.and_then(|it| it.reason).unwrap_or_default()
            }
            "redrive-closed" => {
                let id = self.letter(rest[0]).await?.id;
                self.broker.redrive(id, RedriveRequest::default(), None).await?;
                String::new()
            }
            "deferred" => {
                let deferred = self.job(rest[0]).await?.deferred;
                let shown = deferred
                    .map(|it| format!("{} in {}: {}", it.count, it.until.millis() - self.clock.now(), it.reason));
                shown.unwrap_or_else(|| "no".to_owned())
            }
            "breaker" => {
                let breaker = subscriptions.get(rest[0])?.breaker;
                let now = self.clock.now();
                breaker.map_or_else(
                    || "unknown".to_owned(),
                    |it| {
                        let next = it.next_try_at.map(|at| format!(" next in {}", at.millis() - now));
                        format!("{:?} after {}{}", it.state, it.failures, next.unwrap_or_default())
                    },
                )
            }
            "close-breaker" => {
                let closed = subscriptions.close_breaker(rest[0], ReplyRecorder::disabled()).await?;
                assert!(closed.breaker.is_none_or(|it| it.failures == 0));
                String::new()
            }
            "rotate" => {
                let grace_seconds = rest.get(1).map(|text| text.parse().unwrap());
                let rotation = SecretRotation { grace_seconds, kind: None };
                subscriptions.rotate(rest[0], rotation, ReplyRecorder::disabled()).await?;
                String::new()
            }
            "drop-pool" => {
                subscriptions.delete_pool(rest[0], ReplyRecorder::disabled()).await?;
                String::new()
            }
            "old-drop-pool" => self.say(DispatchFact::PoolDeleted { code: rest[0].to_owned() }).await?,
            "old-unsubscribe" => {
                let id = subscriptions.find(rest[0])?.1.id;
                self.say(DispatchFact::SubscriptionDeleted { id, code: None, by: None }).await?
            }
            _ => panic!("unknown verb {verb}"),
        })
    }

    async fn say(&self, fact: DispatchFact) -> Result<String> {
        self.broker.default_ledger().submit(AppendFact(fact)).await?;
        Ok(String::new())
    }

    async fn all_letters(&self) -> Result<Vec<DeadLetter>> {
        let filter = DeadLetterFilter { resolved_too: true, ..DeadLetterFilter::default() };
        Ok(self.broker.dead_letters(&filter, None, 100).await?.items)
    }

    async fn letter(&self, wanted: &str) -> Result<DeadLetter> {
        let dead_letters = self.all_letters().await?;
        let found = dead_letters.into_iter().find(|it| format!("{}/{}", it.name, it.sequence) == wanted);
        found.ok_or_else(|| Error::not_found("letter"))
    }
}
