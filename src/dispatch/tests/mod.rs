//! Dispatch as tables of text: one command per line, the expected result after `->`. A command without `->` must succeed.
//!
//! ```text
//! subscribe mail mode=BLOCK_ON_ERROR retry=PT5S,PT30S    other members have their defaults
//! publish a b a                                          events 1, 2 and 3, with the subjects a, b and a
//! answer mail/1 500 410                                  the responses to its next attempts; then 200
//! run                -> mail/1:500 mail/2:200            sends everything that can be sent now, in this order
//! run-sorted                                             the same, sorted, if the order is arbitrary
//! release mail/1     -> mail/1:200                       a delivery that hangs (answer `hang`) ends
//! job mail/1         -> PENDING tried 1 in 5000
//! jobs status=ERROR  -> mail/1
//! restart    reopen                                      another worker; another broker on the same log
//! limit 4                                                the same, with at most four open jobs
//! public                                                 the same, with targets in public networks only
//! key k2                                                 the same, with another key for secrets
//! advance 5000                                           milliseconds pass
//! step -5000                                             only the wall clock is moved, in milliseconds
//! land               -> mail/1:200                       sends what can be sent now, and records nothing
//! turn                                                   starts what can be sent now, and waits for nothing
//! remembered         -> 2                                lanes with a recorded offset in the worker
//! flying             -> 2                                deliveries in flight
//! run-until mail 24  -> soon                             at most 24 deliveries before the first one of `mail`
//! news               -> job_dead target_failing          the operations events, in order
//! replayed           -> mail/1@1 mail/1@2                deliveries marked as replayed since, with the replay's number
//! ```

mod actions;
mod ageing;
mod bounds;
mod damage;
mod deferrals;
mod definitions;
mod finality;
mod fixture;
mod history;
mod known_pitfalls;
mod language;
mod lists;
mod modes;
mod more_commands;
mod operational_events;
mod panics;
mod pausing;
mod planner_model;
mod pools;
mod races;
mod receiver;
mod removed_events;
mod replays;
mod secrets;
mod several_brokers;
mod topics;

use crate::clock::Clock;
use crate::dispatch::JobAction;
use crate::dispatch::worker::WorkerStep;
use crate::ledger::ReplyRecorder;
use contract::api::*;
use contract::{
    DeadLetterFilter, DispatchJob, Error, JobFilter, NewEvent, NewReplay, NewTask, Pool, PoolChange, RedriveRequest,
    ReplayBound, RepublishRequest, Result, Sequence, TopicId, TopicRead,
};
use definitions::{changed, describe, name, sorted, subscription, turns};
use fixture::{DispatchFixture, worker};
use log::MemoryLog;
use serde_json::json;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;

const TOPIC: &str = "gts.hx.core.events.topic.v1~";
const NEWS: &str = "gts.hx.core.events.topic.v1~hx.broker.dispatch.operations.v1";
const TYPE: &str = "gts.hyperspot.core.events.type.v1~vendor.app";

/// Runs a table on a new broker.
pub(super) fn check(text: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut world = DispatchFixture::new(Arc::new(MemoryLog::new())).await;
        for (number, line) in text.lines().enumerate() {
            world.run_line(number + 1, line).await;
        }
    });
}

/// Whether a command did what its line says. A refusal is never what a line without `->` means.
fn check_result(result: Result<String>, expected: Option<&str>) -> Result<(), String> {
    match (result, expected) {
        (Ok(_), None) => Ok(()),
        (Err(error), None) => Err(error.to_string()),
        (result, Some(expected)) => {
            let got = result.map_or_else(|error| describe(&error), |got| got.trim().to_owned());
            if got == expected { Ok(()) } else { Err(format!("{got} instead of {expected}")) }
        }
    }
}

impl DispatchFixture {
    async fn run_line(&mut self, number: usize, line: &str) {
        let (command, expected) = match line.split_once("->") {
            Some((command, expected)) => (command.trim(), Some(expected.trim())),
            None => (line.trim(), None),
        };
        if command.is_empty() {
            return;
        }
        let result = self.ask(command).await;
        check_result(result, expected).unwrap_or_else(|reason| panic!("line {number}: {line}: {reason}"));
    }

    pub(super) async fn ask(&mut self, command: &str) -> Result<String> {
        let words: Vec<_> = command.split_whitespace().collect();
        let (verb, rest) = words.split_first().unwrap();
        let named: BTreeMap<&str, &str> = rest.iter().filter_map(|word| word.split_once('=')).collect();
        match *verb {
            "run" => return Ok(self.run().await),
            "run-sorted" => return Ok(sorted(&self.run().await)),
            "run-turns" => return Ok(turns(self.run().await)),
            "remembered" => return Ok(self.worker.recorded.len().to_string()),
            "flying" => return Ok(self.worker.deliveries.len().to_string()),
            "run-until" => {
                let heard = self.run().await;
                let place = heard.split(' ').position(|word| word.starts_with(rest[0]));
                let is_soon = place.is_some_and(|place| place <= rest[1].parse().unwrap());
                return Ok(if is_soon { "soon".to_owned() } else { heard });
            }
            "restart" => self.worker = worker(&self.broker, &self.receiver, &self.clock),
            "limit" => {
                self.settings.max_open_jobs = rest[0].parse().unwrap();
                return Box::pin(self.ask("reopen")).await;
            }
            "key" => {
                self.settings.secret_key = rest[0].to_owned();
                return Box::pin(self.ask("reopen")).await;
            }
            "public" => {
                self.settings.allow_private = false;
                return Box::pin(self.ask("reopen")).await;
            }
            "reopen" => {
                self.broker.close().await;
                let (log, clock) = (Arc::clone(&self.log), Arc::clone(&self.clock));
                *self = Self::with_settings(log, clock, Arc::clone(&self.receiver), self.settings.clone()).await;
            }
            "land" => return Ok(self.land().await),
            "turn" => drop(self.worker.step().await),
            "trim" => drop(self.broker.trim(&TOPIC.parse()?, Sequence(rest[0].parse().unwrap())).await?),
            "news" => return self.news().await,
            "advance" => self.clock.advance(rest[0].parse().unwrap()),
            "step" => self.clock.step(rest[0].parse().unwrap()),
            "publish" => {
                for subject in rest.iter().filter(|word| !word.contains('=')) {
                    self.publish(subject, &named).await?;
                }
            }
            "answer" => {
                let answers = rest[1..].iter().map(|it| (*it).to_owned()).collect();
                self.receiver.answers.lock().unwrap().insert(rest[0].to_owned(), answers);
            }
            "release" => {
                self.receiver.hanging.lock().unwrap().remove(rest[0]).unwrap().notify_one();
                return Ok(self.run().await);
            }
            "replayed" => return Ok(std::mem::take(&mut self.receiver.replayed.lock().unwrap().1).join(" ")),
            "tokens" => {
                let tokens = self.receiver.tokens.lock().unwrap()[rest[0]].clone();
                let grow = tokens.windows(2).all(|pair| pair[0] < pair[1]);
                return Ok(format!("{} {}", tokens.len(), if grow { "growing" } else { "not growing" }));
            }
            "task" => {
                let mut task =
                    json!({"code": rest[0], "target": format!("http://tasks/{}", rest[0]), "payload": {"n": 1}});
                for (name, value) in &named {
                    task[*name] = json!(value);
                }
                let task: NewTask = serde_json::from_str(&task.to_string()).unwrap();
                self.broker.jobs(None).create_task(task, ReplyRecorder::disabled()).await?;
            }
            _ => return self.ask_about_subscriptions(verb, rest, &named).await,
        }
        Ok(String::new())
    }

    async fn ask_about_subscriptions(
        &mut self,
        verb: &str,
        rest: &[&str],
        named: &BTreeMap<&str, &str>,
    ) -> Result<String> {
        match verb {
            "subscribe" => {
                let new = subscription(rest[0], named);
                self.broker.subscriptions(None).create_keeping(new, ReplyRecorder::disabled()).await?;
            }
            "change" => {
                let change = changed(named);
                self.broker.subscriptions(None).change(rest[0], change, ReplyRecorder::disabled()).await?;
            }
            "unsubscribe" => self.broker.subscriptions(None).delete(rest[0], ReplyRecorder::disabled()).await?,
            "pause" => drop(self.broker.subscriptions(None).pause(rest[0], None, ReplyRecorder::disabled()).await?),
            "resume" => drop(self.broker.subscriptions(None).resume(rest[0], ReplyRecorder::disabled()).await?),
            "status" => {
                let it = self.broker.subscriptions(None).get(rest[0])?;
                let by = it.pause.map(|pause| format!(" by {}", pause.by)).unwrap_or_default();
                let held = if it.held.is_some() { " held" } else { "" };
                return Ok(format!("{:?}{by} through {} open {}{held}", it.status, it.settled_through, it.open_jobs));
            }
            "pool" => {
                let number = |name: &str| named.get(name).map(|text| text.parse().unwrap());
                let subscriptions = self.broker.subscriptions(None);
                match subscriptions.pool(rest[0]).is_ok() {
                    true => {
                        let change = PoolChange {
                            concurrency: number("concurrency"),
                            rate_per_minute: number("rate").map(Some),
                        };
                        subscriptions.change_pool(rest[0], change, ReplyRecorder::disabled()).await?;
                    }
                    false => {
                        let (code, concurrency) = (rest[0].to_owned(), number("concurrency").unwrap_or(10));
                        let pool = Pool { code, concurrency, rate_per_minute: number("rate") };
                        subscriptions.create_pool(pool, ReplyRecorder::disabled()).await?;
                    }
                }
            }
            "replay" => {
                let edge = |text: &str| ReplayBound::Sequence(Sequence(text.parse().unwrap()));
                let order = NewReplay { from: edge(rest[1]), to: Some(edge(rest[2])), dry_run: rest.contains(&"dry") };
                let replayed =
                    self.broker.subscriptions(None).replay(rest[0], order, ReplyRecorder::disabled()).await?;
                return Ok(replayed.count.to_string());
            }
            "republish" | "repeat" => {
                let edge = |text: &str| Sequence(text.parse().unwrap());
                let target =
                    if verb == "repeat" { RepublishRequest::to_topic } else { RepublishRequest::to_subscriptions };
                let mut order = target(edge(rest[0]), edge(rest[1]));
                order.dry_run = rest.contains(&"dry");
                order.name = named.get("to").map(|name| (*name).to_owned());
                return Ok(self.broker.republish(&TopicId::parse(TOPIC)?, order).await?.count.to_string());
            }
            _ => return self.ask_about_jobs(verb, rest, named).await,
        }
        Ok(String::new())
    }

    async fn ask_about_jobs(&self, verb: &str, rest: &[&str], named: &BTreeMap<&str, &str>) -> Result<String> {
        Ok(match verb {
            "job" => {
                let job = self.job(rest[0]).await?;
                let wait = job.scheduled_for.map(|at| format!(" in {}", at.millis() - self.clock.now()));
                let tried = job.attempts.last().map_or(0, |attempt| attempt.number);
                format!("{} tried {tried}{}", job.status.as_str(), wait.unwrap_or_default())
            }
            "retry" | "cancel" | "complete" => {
                let verb = match verb {
                    "retry" => JobAction::Retry,
                    "cancel" => JobAction::Cancel,
                    _ => JobAction::Complete,
                };
                let id = self.job(rest[0]).await?.id;
                let job = self.broker.jobs(None).act(&id, verb, ReplyRecorder::disabled()).await?;
                job.status.as_str().to_owned()
            }
            "jobs" => {
                let status = named.get("status").map(|text| serde_json::from_value(json!(text)).unwrap());
                let subscription = named.get("subscription").map(|it| (*it).to_owned());
                let group = named.get("group").map(|it| (*it).to_owned());
                let filter = JobFilter { status, subscription, event: None, group };
                let limit = named.get("limit").map_or(100, |text| text.parse().unwrap());
                let mut names = Vec::new();
                let mut cursor = None;
                loop {
                    let page = self.broker.jobs(None).list(&filter, cursor.as_ref(), limit).await?;
                    names.extend(page.items.iter().map(name));
                    cursor = page.next;
                    if cursor.is_none() {
                        break;
                    }
                }
                names.sort();
                names.join(" ")
            }
            "groups" => {
                let limit = named.get("limit").map_or(100, |text| text.parse().unwrap());
                let (mut groups, mut cursor) = (Vec::new(), None);
                loop {
                    let lane = self.broker.subscriptions(None).find(rest[0])?;
                    let page = self.broker.jobs(None).groups(lane, cursor.as_ref(), limit).await?;
                    groups.extend(page.items);
                    cursor = page.next;
                    if cursor.is_none() {
                        break;
                    }
                }
                let shown = groups.iter().map(|it| {
                    let by = it.blocked_by.rsplit_once('-').unwrap().1;
                    format!(
                        "{} by {by} for {} waiting {}",
                        it.message_group,
                        self.clock.now() - it.since.millis(),
                        it.waiting
                    )
                });
                shown.collect::<Vec<_>>().join(" | ")
            }
            "verbs" => {
                let lane = self.broker.subscriptions(None).find(rest[0])?;
                let groups = self.broker.jobs(None).groups(lane, None, 100).await?.items;
                let verbs = serde_json::to_value(&groups[0].verbs).unwrap();
                let mut names: Vec<_> = verbs.as_object().unwrap().keys().cloned().collect();
                names.sort_unstable();
                names.join(" ")
            }
            _ => return self.ask_about_letters(verb, rest, named).await,
        })
    }

    async fn ask_about_letters(&self, verb: &str, rest: &[&str], named: &BTreeMap<&str, &str>) -> Result<String> {
        Ok(match verb {
            "letters" => self.letters(rest.contains(&"all")).await?,
            "redrive" | "discard" | "correct" => {
                let page = self.broker.dead_letters(&DeadLetterFilter::default(), None, 100).await?;
                let dead_letter = page.items.iter().find(|it| format!("{}/{}", it.name, it.sequence) == rest[0]);
                let id = dead_letter.ok_or_else(|| Error::not_found("letter"))?.id;
                match verb {
                    "redrive" => self.broker.redrive(id, RedriveRequest::default(), None).await?,
                    "correct" => self.broker.redrive(id, finality::corrected(), None).await?,
                    _ => self.broker.discard(id, "old".to_owned(), None).await?,
                };
                String::new()
            }
            _ => return self.ask_more(verb, rest, named).await,
        })
    }

    async fn publish(&self, subject: &str, named: &BTreeMap<&str, &str>) -> Result<()> {
        let event_type = format!("{TYPE}.{}.v1", named.get("type").unwrap_or(&"placed"));
        let data = RawValue::from_string(json!({"n": 1}).to_string()).unwrap();
        let event = NewEvent::new(event_type.parse().unwrap(), "test", data);
        let mut event = event.about("gts.vendor.app.order.v1".parse().unwrap(), subject);
        event.message_group = named.get("group").map(|it| (*it).to_owned());
        self.broker.publish(event, None).await.map(drop)
    }

    async fn letters(&self, resolved_too: bool) -> Result<String> {
        let filter = DeadLetterFilter { resolved_too, ..DeadLetterFilter::default() };
        let page = self.broker.dead_letters(&filter, None, 100).await?;
        let shown = page.items.iter();
        let shown = shown.map(|it| format!("{}/{} {} tried {}", it.name, it.sequence, it.exc_class, it.attempts.len()));
        let mut shown: Vec<_> = shown.collect();
        shown.sort_unstable();
        Ok(shown.join(" | "))
    }

    /// The job `CODE/SEQUENCE`, or the task `task:CODE`; of replays the job of the first.
    async fn job(&self, wanted: &str) -> Result<DispatchJob> {
        let page = self.broker.jobs(None).list(&JobFilter::default(), None, 100).await?;
        page.items.into_iter().find(|job| name(job) == wanted).ok_or_else(|| Error::not_found("job"))
    }

    /// Sends what can be sent now, and records nothing.
    async fn land(&mut self) -> String {
        self.worker.step().await;
        while let Some(landed) = self.worker.deliveries.join_next().await {
            self.worker.delivery_ended(landed);
        }
        std::mem::take(&mut *self.receiver.heard.lock().unwrap()).join(" ")
    }

    async fn news(&self) -> Result<String> {
        // Operations events outside of a report are appended by another task.
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
        let page = self.broker.read(TopicRead::all(NEWS.parse()?)).await?;
        let kinds = page.items.iter().map(|event| {
            let event_type = event.event().unwrap().event_type.to_string();
            event_type.rsplit('.').nth(1).unwrap().to_owned()
        });
        Ok(kinds.collect::<Vec<_>>().join(" "))
    }

    /// Sends everything that can be sent now, except for deliveries that hang. Returns the deliveries in order.
    pub(super) async fn run(&mut self) -> String {
        loop {
            let turn = self.worker.step().await;
            let mut moved = turn == WorkerStep::More;
            loop {
                for _ in 0..8 {
                    tokio::task::yield_now().await;
                }
                while let Some(landed) = self.worker.deliveries.try_join_next() {
                    self.worker.delivery_ended(landed);
                    moved = true;
                }
                if self.worker.deliveries.len() <= self.receiver.hanging.lock().unwrap().len() {
                    break;
                }
            }
            if let Some(written) = self.worker.recording.join_next().await {
                self.worker.report_recorded(written);
                moved = true;
            }
            if !moved {
                break;
            }
        }
        std::mem::take(&mut *self.receiver.heard.lock().unwrap()).join(" ")
    }
}
