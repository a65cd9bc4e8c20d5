//! The scenario language's commands for claims, handlers and dead letters.
//!
//! ```text
//! claim billing orders/1 by=w1 lease=PT30S as=a    -> claimed attempt 1 until 30000       milliseconds from now
//! claim billing #7 order=gapless                   -> held until 1000                     an event by its id
//! beat a                                           -> claimed attempt 1 until 30000
//! done a offset=2 events: placed b id=9            -> done attempt 1
//! done a with=b                                    -> CLAIM_LOST                          with another claim's token
//! fail a class=Timeout                             -> failed attempt 1 again 1000
//! fail a class=Timeout final                       -> dead attempt 1
//! release a                                        -> released attempt 0
//! done b offset=2                                  -> done attempt 1 offset 0 because of 1
//! rhythm a                                         -> PT10S in PT30S           heartbeat and lease
//! delete-handler billing                           -> deleted
//! higher b a                                       -> yes                                 the tokens of two claims
//! open billing                                     -> orders/1 failed | orders/2 claimed
//! handler billing attempts=3 backoff=PT1S          -> created
//! standing billing                                 -> in flight 1 failed 0 dead 0 lag 2
//! letters name=billing                             -> billing orders/1 Timeout attempts 5 open
//! redrive billing orders/1 data={"n":2}            -> redriven          `new`, `dry`, by=ops
//! discard billing orders/1 reason=old              -> discarded
//! redrive-all name=billing dry                     -> 2
//! ```

use super::{CommandWords, ScenarioFixture, describe, json_after, new_event, topic_id};
use contract::api::*;
use contract::{
    BulkResolveOutcome, BulkResolveRequest, Claim, ClaimAnswer, ClaimCompletion, ClaimError, ClaimFailure,
    ClaimOutcome, ClaimStatus, Completion, DeadLetter, DeadLetterFilter, DeadLetterSource, FencingToken, NewClaim,
    NewEvent, NewHandler, Offset, ProducerId, RedriveOverride, RedriveRequest, RegisterOutcome, Result, Sequence,
    Timestamp, TopicId,
};
use event_broker::Clock;
use serde_json::value::RawValue;
use uuid::Uuid;

impl ScenarioFixture {
    /// The result of a verb of this module; `None` if the verb belongs to another module.
    pub(super) async fn ask_about_claims(
        &self,
        verb: &str,
        words: &CommandWords<'_>,
        rest: &str,
    ) -> Option<Result<String>> {
        Some(match verb {
            "claim" => self.claim(words).await,
            "claims" => self.claims_at_once(rest).await,
            "beat" => {
                let (id, token) = self.held(words.plain[0]);
                self.broker().heartbeat(&id, token).await.map(|claim| self.standing_of(&claim))
            }
            "release" => {
                let (id, token) = self.held(words.plain[0]);
                self.broker().release_claim(&id, token).await.map(|claim| self.standing_of(&claim))
            }
            "delete-handler" => self.broker().delete_handler(words.plain[0]).await.map(|()| "deleted".to_owned()),
            "rhythm" => {
                let (id, _) = self.held(words.plain[0]);
                self.broker().open_claim(&id).await.map(|claim| format!("{} in {}", claim.heartbeat, claim.lease))
            }
            "done" => self.done(words, rest).await,
            "dones" => self.done_at_once(words).await,
            "fail" => self.fail(words).await,
            "higher" => {
                let token = |name: &str| self.held(name).1;
                let is_higher = token(words.plain[0]) > token(words.plain[1]);
                Ok(if is_higher { "yes" } else { "no" }.to_owned())
            }
            "open" => self.open_claims(words).await,
            "shown" => {
                let (id, _) = self.held(words.plain[0]);
                self.broker().open_claim(&id).await.map(|claim| self.standing_of(&claim))
            }
            "handler" => self.handler(words).await,
            "handlers" => {
                let page = self.broker().handlers(None, 100).await;
                page.map(|page| page.items.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(" "))
            }
            "standing" => self.handler_standing(words).await,
            _ => return self.ask_about_letters(verb, words, rest).await,
        })
    }

    async fn ask_about_letters(&self, verb: &str, words: &CommandWords<'_>, rest: &str) -> Option<Result<String>> {
        Some(match verb {
            "letters" => self.letters(words).await,
            "letter" => match self.letter(words).await {
                Ok(dead_letter) => Ok(shown_letter(&dead_letter)),
                Err(error) => Err(error),
            },
            "tried" => self.letter(words).await.map(|letter| {
                let tries = letter.attempts.iter().map(|it| format!("{} {} {}", it.number, it.owner, it.error.class));
                tries.collect::<Vec<_>>().join(" | ")
            }),
            "resolved" => self.letter(words).await.map(|letter| {
                let it = letter.resolution.unwrap();
                format!("by {} because {} at {}", it.by, it.reason.unwrap_or_default(), self.millis_from_now(it.at))
            }),
            "summary" => self.broker().dead_letter_summary().await.map(|summary| {
                let rows =
                    summary.items.iter().map(|it| format!("{} {} {}", it.name, short(&it.original_topic), it.count));
                format!("{}: {}", summary.count, rows.collect::<Vec<_>>().join(" | "))
            }),
            "redrive" => self.redrive(words, rest).await,
            "discard" => self.discard(words).await,
            "redrive-all" => self.broker().redrive_all(order(words), None).await.map(resolved),
            "discard-all" => self.broker().discard_all(order(words), None).await.map(resolved),
            _ => return None,
        })
    }

    /// `HANDLER TOPIC/SEQUENCE` or `HANDLER #ID`.
    fn wanted(words: &CommandWords<'_>) -> NewClaim {
        let handler = words.plain[0].replace("(none)", "").replace("(control)", "\u{7}");
        let mut claim = match words.plain[1].split_once('/') {
            Some((topic, sequence)) => NewClaim::at(handler, topic_id(topic), Sequence(sequence.parse().unwrap())),
            None => {
                let id = words.plain[1].trim_start_matches('#').parse().unwrap();
                NewClaim::of_event(handler, Uuid::from_u128(id))
            }
        };
        claim.owner = words.get("by").map(str::to_owned);
        claim.lease = words.get("lease").map(|text| text.parse().unwrap());
        claim.order = words.get("order").map(|text| serde_json::from_value(serde_json::json!(text)).unwrap());
        claim
    }

    async fn claim(&self, words: &CommandWords<'_>) -> Result<String> {
        let producer = words.get("producer").map(|text| ProducerId(text.to_owned()));
        let outcome = self.broker().claim(Self::wanted(words), producer.as_ref()).await?;
        Ok(self.noted(words.get("as"), &outcome))
    }

    async fn claims_at_once(&self, rest: &str) -> Result<String> {
        let parts: Vec<_> = rest.split(';').map(CommandWords::of).collect();
        let answers = self.broker().claim_batch(parts.iter().map(Self::wanted).collect(), None).await?;
        let texts = parts.iter().zip(&answers).map(|(words, answer)| match answer {
            Ok(outcome) => self.noted(words.get("as"), outcome),
            Err(error) => describe(error),
        });
        Ok(texts.collect::<Vec<_>>().join(" | "))
    }

    /// An outcome as text; a claim is stored under the name that the text gives it.
    fn noted(&self, name: Option<&str>, outcome: &ClaimOutcome) -> String {
        match (outcome.outcome, &outcome.claim) {
            (ClaimAnswer::Claimed, Some(claim)) => {
                if let Some(name) = name {
                    self.claims.lock().unwrap().insert(name.to_owned(), (claim.id.clone(), claim.token));
                }
                self.standing_of(claim)
            }
            (ClaimAnswer::Claimed, None) => panic!("the result is claimed, but has no claim"),
            (answer, claim) => {
                assert!(claim.is_none());
                let until =
                    outcome.retry_at.map(|at| format!("until {}", self.millis_from_now(at))).unwrap_or_default();
                format!("{} {until}", format!("{answer:?}").to_lowercase())
            }
        }
    }

    fn held(&self, name: &str) -> (String, FencingToken) {
        self.claims.lock().unwrap().get(name).cloned().unwrap_or_else(|| panic!("no claim {name}"))
    }

    fn millis_from_now(&self, at: Timestamp) -> i64 {
        at.millis() - self.clock.now()
    }

    fn standing_of(&self, claim: &Claim) -> String {
        let until = claim.lease_expires_at.map(|at| format!("until {}", self.millis_from_now(at))).unwrap_or_default();
        let again = claim.retry_at.map(|at| format!("again {}", self.millis_from_now(at))).unwrap_or_default();
        assert_eq!(claim.status == ClaimStatus::Dead, claim.dead_letter.is_some());
        format!("{} attempt {} {until} {again}", format!("{:?}", claim.status).to_lowercase(), claim.attempt)
    }

    async fn done(&self, words: &CommandWords<'_>, rest: &str) -> Result<String> {
        let (id, own) = self.held(words.plain[0]);
        let token = words.get("with").map_or(own, |other| self.held(other).1);
        let offset =
            rest.split("events:").next().and_then(|before| CommandWords::of(before).number("offset")).map(Offset);
        let completion = Completion { token, events: produced(rest), offset };
        let claim = self.broker().complete_claim(&id, completion, None).await?;
        let held_back = claim
            .open_sequence
            .map(|open| format!("offset {} because of {open}", claim.committed_offset.unwrap_or_default()));
        Ok(format!("{} {}", self.standing_of(&claim), held_back.unwrap_or_default()))
    }

    async fn done_at_once(&self, words: &CommandWords<'_>) -> Result<String> {
        let completions = words.plain.iter().map(|name| {
            let (id, token) = self.held(name);
            ClaimCompletion { id, token, events: Vec::new(), offset: None }
        });
        let answers = self.broker().complete_claims(completions.collect(), None).await?;
        let texts = answers.iter().map(|answer| match answer {
            Ok(claim) => self.standing_of(claim),
            Err(error) => describe(error),
        });
        Ok(texts.collect::<Vec<_>>().join(" | "))
    }

    async fn fail(&self, words: &CommandWords<'_>) -> Result<String> {
        let (id, token) = self.held(words.plain[0]);
        let error = ClaimError::new(words.get("class").unwrap_or("Timeout").replace("(none)", ""), "it said so");
        let retryable = words.plain.contains(&"final").then_some(false);
        let claim = self.broker().fail_claim(&id, ClaimFailure { token, error, retryable }).await?;
        Ok(self.standing_of(&claim))
    }

    async fn open_claims(&self, words: &CommandWords<'_>) -> Result<String> {
        let page = self.broker().open_claims(words.plain[0], None, 100).await?;
        let rows = page.items.iter().map(|claim| {
            format!("{}/{} {}", short(&claim.topic), claim.sequence, format!("{:?}", claim.status).to_lowercase())
        });
        Ok(rows.collect::<Vec<_>>().join(" | "))
    }

    async fn handler(&self, words: &CommandWords<'_>) -> Result<String> {
        let name = words.plain[0].replace("(none)", "");
        let span = |name: &str| words.get(name).map(|text| text.parse().unwrap());
        let handler = NewHandler {
            lease: span("lease"),
            max_attempts: words.number("attempts").map(|count| u32::try_from(count).unwrap()),
            backoff: span("backoff"),
            order: words.get("order").map(|text| serde_json::from_value(serde_json::json!(text)).unwrap()),
        };
        let put = self.broker().put_handler(&name, handler).await?;
        let verb = if matches!(put, RegisterOutcome::Created(_)) { "created" } else { "known" };
        let shown = put.into_inner();
        assert_eq!(self.broker().handler(&name).await?, shown);
        let order = format!("{:?}", shown.order).to_lowercase();
        Ok(format!("{verb} {} {} {} {order}", shown.lease, shown.max_attempts, shown.backoff))
    }

    async fn handler_standing(&self, words: &CommandWords<'_>) -> Result<String> {
        let handler = self.broker().handler(words.plain[0]).await?;
        let oldest = handler.oldest_failure.map(|at| format!("since {}", self.millis_from_now(at))).unwrap_or_default();
        let (flight, failed, dead, lag) = (handler.in_flight, handler.failed, handler.dead_letters, handler.lag);
        let stale = if handler.stale == 0 { String::new() } else { format!("stale {}", handler.stale) };
        Ok(format!("in flight {flight} failed {failed} dead {dead} lag {lag} {stale} {oldest}"))
    }

    async fn letters(&self, words: &CommandWords<'_>) -> Result<String> {
        let BulkResolveRequest { source, name, topic, .. } = order(words);
        let filter = DeadLetterFilter { source, name, topic, resolved_too: words.plain.contains(&"all") };
        let page = self.broker().dead_letters(&filter, None, 100).await?;
        Ok(page.items.iter().map(shown_letter).collect::<Vec<_>>().join(" | "))
    }

    /// The last letter of a handler for an event.
    async fn letter(&self, words: &CommandWords<'_>) -> Result<DeadLetter> {
        let (topic, sequence) = words.plain[1].split_once('/').unwrap();
        let filter = DeadLetterFilter {
            name: Some(words.plain[0].to_owned()),
            resolved_too: true,
            ..DeadLetterFilter::default()
        };
        let page = self.broker().dead_letters(&filter, None, 100).await?;
        let is_it = |it: &&DeadLetter| short(&it.original_topic) == topic && it.sequence.to_string() == sequence;
        let dead_letter = page.items.iter().rfind(is_it).unwrap_or_else(|| panic!("no letter {:?}", words.plain));
        self.broker().dead_letter(dead_letter.id).await
    }

    async fn redrive(&self, words: &CommandWords<'_>, rest: &str) -> Result<String> {
        let data = json_after(rest, "data=").map(|text| RawValue::from_string(text.to_owned()).unwrap());
        let new_event_id = words.plain.contains(&"new");
        let changes = (data.is_some() || new_event_id).then_some(RedriveOverride { data, new_event_id });
        let (reason, dry_run) = (words.get("reason").map(str::to_owned), words.plain.contains(&"dry"));
        let by = words.get("by").map(|text| ProducerId(text.to_owned()));
        let id = self.letter(words).await?.id;
        let dead_letter = self.broker().redrive(id, RedriveRequest { changes, reason, dry_run }, by.as_ref()).await?;
        Ok(format!("{:?}", dead_letter.status).to_lowercase())
    }

    async fn discard(&self, words: &CommandWords<'_>) -> Result<String> {
        let by = words.get("by").map(|text| ProducerId(text.to_owned()));
        let reason = words.get("reason").unwrap_or_default().to_owned();
        let dead_letter = self.broker().discard(self.letter(words).await?.id, reason, by.as_ref()).await?;
        Ok(format!("{:?}", dead_letter.status).to_lowercase())
    }
}

fn produced(rest: &str) -> Vec<NewEvent> {
    let Some((_, events)) = rest.split_once("events:") else { return Vec::new() };
    events.split(';').filter(|part| !part.trim().is_empty()).map(|part| new_event(part).0).collect()
}

fn order(words: &CommandWords<'_>) -> BulkResolveRequest {
    BulkResolveRequest {
        source: words.get("source").map(|text| serde_json::from_value(serde_json::json!(text)).unwrap()),
        name: words.get("name").map(str::to_owned),
        topic: words.get("topic").map(topic_id),
        reason: words.get("reason").map(str::to_owned),
        dry_run: words.plain.contains(&"dry"),
    }
}

fn shown_letter(dead_letter: &DeadLetter) -> String {
    assert_eq!((dead_letter.source, &dead_letter.service), (DeadLetterSource::Handler, &dead_letter.name));
    let event = dead_letter.event.as_ref().map_or("event gone", |event| {
        assert!(event.get().contains(&dead_letter.event_id.to_string()));
        ""
    });
    let (topic, status) = (short(&dead_letter.original_topic), format!("{:?}", dead_letter.status).to_lowercase());
    let (name, sequence, tries) = (&dead_letter.name, dead_letter.sequence, dead_letter.attempts.len());
    format!("{name} {topic}/{sequence} {} attempts {tries} {status} {event}", dead_letter.exc_class)
}

fn short(topic: &TopicId) -> String {
    topic.as_str().rsplit('~').next().unwrap().split('.').nth(1).unwrap_or("default").to_owned()
}

fn resolved(BulkResolveOutcome { count, skipped }: BulkResolveOutcome) -> String {
    if skipped == 0 { count.to_string() } else { format!("{count} skipped {skipped}") }
}
