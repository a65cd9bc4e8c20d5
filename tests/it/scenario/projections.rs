//! The scenario language's commands for projections.
//!
//! ```text
//! projection p topic=orders                        -> created orders 0 of generation 1
//! projection p topic=orders cel=has(data)          -> known orders 0 of generation 1 filtered
//! projection all log                               -> created log 0 of generation 1
//! checkpoint p 2 expected=0 generation=1           -> orders 2 of generation 1
//! begin p 1                                        -> orders 1 of generation 2 from 1     a reset
//! lag p                                            -> 1 for 3 s
//! await p 2 wait=1000                              -> orders 2 of generation 1
//! touched p                                        -> created -1000 updated 0             milliseconds from now
//! ```

use super::{CommandWords, ScenarioFixture, topic_id};
use contract::api::*;
use contract::{
    Cursor, Generation, NewCheckpoint, NewProjection, Offset, Projection, RegisterOutcome, Result, Timestamp,
};
use event_broker::Clock;
use std::time::Duration;

impl ScenarioFixture {
    /// The result of a verb of this module; `None` if the verb belongs to another module.
    pub(super) async fn ask_about_projections(
        &self,
        verb: &str,
        words: &CommandWords<'_>,
        rest: &str,
    ) -> Option<Result<String>> {
        let name = words.plain.first().copied().unwrap_or_default();
        let number = || Offset(words.plain[1].parse().unwrap());
        let broker = self.broker();
        let shown = match verb {
            "projection" if words.plain.len() > 1 || !words.named.is_empty() => {
                return Some(self.put(words, rest).await);
            }
            "projection" => broker.projection(name).await,
            "checkpoint" => {
                let (expected, generation) = (words.number("expected"), words.number("generation"));
                let (expected, generation) = (expected.map(Offset), generation.map(Generation));
                broker.move_checkpoint(name, NewCheckpoint { offset: number(), expected, generation }).await
            }
            "begin" => broker.reset_projection(name, number()).await,
            "await" => {
                let timeout = Duration::from_millis(words.number("wait").unwrap_or(0));
                broker.wait_for_projection(name, number(), timeout).await
            }
            "lag" => {
                let lag = broker.projection(name).await.map(|it| it.lag);
                return Some(lag.map(|lag| format!("{} for {} s", lag.events, lag.seconds)));
            }
            "touched" => return Some(broker.projection(name).await.map(|it| self.touched(&it))),
            "end" => return Some(broker.delete_projection(name).await.map(|()| "deleted".to_owned())),
            "projections" => return Some(self.projections(words).await),
            _ => return None,
        };
        Some(shown.map(|projection| standing(&projection)))
    }

    async fn put(&self, words: &CommandWords<'_>, rest: &str) -> Result<String> {
        let name = words.plain[0].replace("(none)", "").replace("(control)", "\u{7}");
        let projection = NewProjection {
            topic: words.get("topic").map(topic_id),
            log: words.plain.contains(&"log"),
            filter: rest.split_once("cel=").map(|(_, cel)| cel.trim().to_owned()),
        };
        Ok(match self.broker().put_projection(&name, projection).await? {
            RegisterOutcome::Created(made) => {
                assert_eq!(self.broker().projection(&name).await?, made);
                format!("created {}", standing(&made))
            }
            RegisterOutcome::Unchanged(known) => format!("known {}", standing(&known)),
        })
    }

    async fn projections(&self, words: &CommandWords<'_>) -> Result<String> {
        let limit = words.number("limit").map_or(100, |limit| usize::try_from(limit).unwrap());
        let cursor = words.get("after").map(|key| Cursor::After(key.to_owned()));
        let page = self.broker().projections(cursor.as_ref(), limit).await?;
        let names: Vec<_> = page.items.iter().map(|it| it.name.as_str()).collect();
        Ok(format!("{} {}", names.join(" "), page.next.map_or("end", |_| "more")))
    }

    fn touched(&self, projection: &Projection) -> String {
        let from_now = |time: Timestamp| time.millis() - self.clock.now();
        format!("created {} updated {}", from_now(projection.created_at), from_now(projection.updated_at))
    }
}

fn standing(projection: &Projection) -> String {
    let Projection { definition, checkpoint, generation, start, .. } = projection;
    let short = |id: &str| id.rsplit('~').next().unwrap().split('.').nth(1).unwrap_or("default").to_owned();
    let what = definition.topic.as_ref().map_or("log".to_owned(), |topic| short(topic.as_str()));
    let filtered = if definition.filter.is_some() { "filtered" } else { "" };
    let from = if start.0 > 0 { format!("from {start}") } else { String::new() };
    format!("{what} {checkpoint} of generation {generation} {from} {filtered}")
}
