//! The scenario language's commands for consumers and groups. A command refers to a consumer by the name it was created
//! under.
//!
//! ```text
//! consumer c1 group=g topic=orders session=PT30S   -> created
//! poll c1 after=2                                  -> 3 next 3 tail 3
//! session c1                                       -> seen 0 expires 30000    milliseconds from now
//! commit c1 2                                      -> orders 2 of 3 lag 1 by c1
//! reset g orders earliest                          -> orders 0 of 3 lag 3 by c1
//! reset g orders time=-1000                        -> orders 2 of 3 lag 1 by c1
//! consumer m1 group=g topic=orders shared flight=2 -> created
//! poll m1                                          -> 1 2+2 next 0 tail 3     the second is an attempt after another
//! done m1.1                                        a claim is named by its member and sequence
//! group g                                          -> orders 1 of 3 lag 2 by m1(1)    the events in flight of each member
//! ```

use super::{CommandWords, ScenarioFixture, topic_id};
use contract::api::*;
use contract::{
    ConsumerGroup, Cursor, Distribution, GroupReset, GroupTopic, NewConsumer, Offset, ResetTo, Result, Timestamp,
};
use event_broker::Clock;
use std::time::Duration;
use uuid::Uuid;

impl ScenarioFixture {
    /// The result of a verb of this module; `None` if the verb belongs to another module.
    pub(super) async fn ask_about_consumers(
        &self,
        verb: &str,
        words: &CommandWords<'_>,
        rest: &str,
    ) -> Option<Result<String>> {
        Some(match verb {
            "consumer" => self.consumer(words, rest).await,
            "session" => self.session(words).await,
            "consumers" => self.consumers(words).await,
            "delete" => self.broker().delete_consumer(self.id(words)).await.map(|()| "deleted".to_owned()),
            "poll" => self.poll(words).await,
            "commit" => {
                let offset = Offset(words.plain[1].parse().unwrap());
                self.broker().commit_offset(self.id(words), offset).await.map(|topic| self.standing(&topic))
            }
            "group" => self.broker().consumer_group(words.plain[0]).await.map(|group| self.group(&group)),
            "groups" => self.groups(words).await,
            "delete-group" => self.broker().delete_group(words.plain[0]).await.map(|()| "deleted".to_owned()),
            "reset" => self.reset(words).await,
            _ => return None,
        })
    }

    fn id(&self, words: &CommandWords<'_>) -> Uuid {
        self.consumers.lock().unwrap().get(words.plain[0]).copied().unwrap_or_default()
    }

    fn name(&self, id: Uuid) -> String {
        self.consumers.lock().unwrap().iter().find(|(_, known)| **known == id).unwrap().0.clone()
    }

    async fn consumer(&self, words: &CommandWords<'_>, rest: &str) -> Result<String> {
        let group = words.get("group").unwrap_or("g").replace("(none)", "").replace("(control)", "\u{7}");
        let mut consumer = NewConsumer::new(group, topic_id(words.get("topic").unwrap_or("default")));
        consumer.types = words.all("type").map(str::parse).collect::<Result<_>>()?;
        consumer.subject_types = words.all("subject-type").map(str::parse).collect::<Result<_>>()?;
        consumer.cel = rest.split_once("cel=").map(|(_, cel)| cel.trim().to_owned());
        consumer.session_timeout = words.get("session").map(str::parse).transpose()?;
        consumer.distribution = words.plain.contains(&"shared").then_some(Distribution::Shared);
        consumer.max_in_flight = words.number("flight").map(|count| u32::try_from(count).unwrap());
        let made = self.broker().create_consumer(consumer).await?;
        assert_eq!(self.broker().consumer(made.id).await?, made);
        self.consumers.lock().unwrap().insert(words.plain[0].to_owned(), made.id);
        Ok("created".to_owned())
    }

    async fn session(&self, words: &CommandWords<'_>) -> Result<String> {
        let consumer = self.broker().consumer(self.id(words)).await?;
        let from_now = |time: Timestamp| time.millis() - self.clock.now();
        Ok(format!("seen {} expires {}", from_now(consumer.last_seen_at), from_now(consumer.expires_at)))
    }

    /// Sorted by their names; the check also requires pages to be sorted by id.
    async fn consumers(&self, words: &CommandWords<'_>) -> Result<String> {
        let limit = words.number("limit").map_or(100, |limit| usize::try_from(limit).unwrap());
        let (mut names, mut after) = (Vec::new(), words.get("after").map(|key| Cursor::After(key.to_owned())));
        loop {
            let page = self.broker().consumers(words.get("group"), after.as_ref(), limit).await?;
            assert!(page.items.is_sorted_by_key(|consumer| consumer.id) && page.items.len() <= limit);
            let is_behind = |id: String| matches!(&after, Some(Cursor::After(last)) if *last >= id);
            assert!(!page.items.iter().any(|consumer| is_behind(consumer.id.to_string())));
            names.extend(page.items.iter().map(|consumer| self.name(consumer.id)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        names.sort();
        Ok(names.join(" "))
    }

    async fn poll(&self, words: &CommandWords<'_>) -> Result<String> {
        let offset = words.read_offset();
        let limit = words.number("limit").map_or(100, |limit| usize::try_from(limit).unwrap());
        let page = match words.number("wait") {
            Some(millis) => self.broker().wait_as(self.id(words), offset, limit, Duration::from_millis(millis)).await?,
            None => self.broker().read_as(self.id(words), offset, limit).await?,
        };
        let is_shared = self.broker().consumer(self.id(words)).await?.distribution == Distribution::Shared;
        assert_eq!(page.claims.len(), if is_shared { page.items.len() } else { 0 });
        let mut items: Vec<_> = page.items.iter().map(|event| event.sequence.to_string()).collect();
        for ((item, claim), event) in items.iter_mut().zip(&page.claims).zip(&page.items) {
            let first = event.event()?.republish_of.unwrap_or(event.sequence);
            assert_eq!((claim.sequence, claim.event_id), (first, event.id));
            assert_eq!(claim.owner, self.id(words).to_string());
            let name = format!("{}.{item}", words.plain[0]);
            self.claims.lock().unwrap().insert(name, (claim.id.clone(), claim.token));
            if claim.attempt > 1 {
                *item = format!("{item}+{}", claim.attempt);
            }
        }
        Ok(format!("{} next {} tail {}", items.join(" "), page.next_offset, page.tail))
    }

    async fn groups(&self, words: &CommandWords<'_>) -> Result<String> {
        let limit = words.number("limit").map_or(100, |limit| usize::try_from(limit).unwrap());
        let cursor = words.get("after").map(|key| Cursor::After(key.to_owned()));
        let page = self.broker().consumer_groups(cursor.as_ref(), limit).await?;
        let names: Vec<_> = page.items.iter().map(|group| group.consumer_group.as_str()).collect();
        Ok(format!("{} {}", names.join(" "), page.next.map_or("end", |_| "more")))
    }

    async fn reset(&self, words: &CommandWords<'_>) -> Result<String> {
        let in_millis = |millis: &str| Timestamp::from_millis(self.clock.now() + millis.parse::<i64>().unwrap());
        let at = words.get("at").map(str::parse).transpose()?;
        let to = match (at.or(words.get("time").map(in_millis)), words.plain.get(2).copied()) {
            (Some(time), _) => ResetTo::Time(time),
            (None, Some("earliest")) => ResetTo::Earliest,
            (None, Some("latest")) => ResetTo::Latest,
            (None, offset) => ResetTo::Offset(Offset(offset.unwrap().parse().unwrap())),
        };
        let reset = GroupReset { topic: topic_id(words.plain[1]), to };
        let name = words.plain[0].replace("(none)", "");
        Ok(self.group(&self.broker().reset_group(&name, reset).await?))
    }

    fn group(&self, group: &ConsumerGroup) -> String {
        group.topics.iter().map(|topic| self.standing(topic)).collect::<Vec<_>>().join(" | ")
    }

    fn standing(&self, row: &GroupTopic) -> String {
        let name = row.topic.as_str().rsplit('~').next().unwrap().split('.').nth(1).unwrap_or("default");
        let members = row.members.iter().map(|member| match (self.name(member.consumer_id), member.in_flight) {
            (name, 0) => name,
            (name, count) => format!("{name}({count})"),
        });
        let mut members: Vec<_> = members.collect();
        members.sort();
        let by = if members.is_empty() { String::new() } else { format!("by {}", members.join(" ")) };
        format!("{name} {} of {} lag {} {by}", row.committed_offset, row.tail, row.lag)
    }
}
