//! The text of requests: heads and bodies as they go over the wire.
//!
//! Topic 0 is the one most sections publish to; others are for readers that have one of their own. One more than was
//! asked for is registered, and nothing is ever published to it: it is the quiet one.

use crate::Outcome;
use crate::events::mixed;
use memchr::memmem;
use serde_json::json;
use std::io::Write;
use uuid::Uuid;

const TENANT: &str = "01927c3e-5a4b-7d6e-8f90-a1b2c3d4e5f6";
/// As many aggregates as a middling system has alive.
const AGGREGATES: u64 = 100_000;
/// What stands before the moment at which an event was sent.
const SENT: &[u8] = br#""sent":"#;
/// A stamp and what stands before it are shorter than this.
const STAMP_BYTES_MAX: usize = 32;

/// How many topics are published to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Topics(pub(crate) u64);

impl Topics {
    pub(crate) const ONE: Self = Self(1);

    /// The name of the topic nothing is published to.
    pub(crate) fn quiet(self) -> String {
        topic(self.0)
    }
}

pub(crate) fn topic(number: u64) -> String {
    format!("gts.hx.core.events.topic.v1~acme.orders{number}.v1")
}

pub(crate) fn event_type(number: u64) -> String {
    format!("gts.acme.shop.order_placed{number}.v1")
}

pub(crate) fn new_topic(number: u64) -> Vec<u8> {
    json!({"id": topic(number), "streaming": true}).to_string().into_bytes()
}

pub(crate) fn new_event_type(number: u64) -> Vec<u8> {
    let schema = json!({
        "type": "object",
        "properties": {
            "by": {"type": "integer", "minimum": 0},
            "amount": {"type": "number", "minimum": 0},
            "currency": {"enum": ["EUR", "USD", "GBP"]}
        },
        "required": ["by", "amount", "currency"]
    });
    json!({"id": event_type(number), "topic": topic(number), "dataSchema": schema}).to_string().into_bytes()
}

/// An event by number, for a topic by number, sent at a moment.
pub(crate) fn event(out: &mut Vec<u8>, number: u64, topic: u64, sent: u64) {
    let id = Uuid::from_u64_pair(mixed(number), mixed(!number));
    let subject = mixed(number) % AGGREGATES;
    let (by, amount) = (number % 10_007, number % 997);
    // Writing to memory cannot fail.
    let _ = write!(
        out,
        r#"{{"id":"{id}","type":"gts.acme.shop.order_placed{topic}.v1","source":"shop","subject":"{subject}","#
    );
    let _ = write!(
        out,
        r#""subjectType":"gts.acme.shop.order.v1","tenant":"{TENANT}","data":{{"by":{by},"amount":{amount}.95,"#
    );
    let _ = write!(out, r#""currency":"EUR","sent":{sent}}}}}"#);
}

/// So many events, by number from the first, with commas between them.
pub(crate) fn events(out: &mut Vec<u8>, first: u64, count: u64) {
    for number in first..first + count {
        if number > first {
            out.push(b',');
        }
        event(out, number, 0, 0);
    }
}

/// A whole POST.
pub(crate) fn post(path: &str, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_post(&mut out, path, body);
    out
}

/// Writes a whole POST.
pub(crate) fn write_post(out: &mut Vec<u8>, path: &str, body: &[u8]) {
    let length = body.len();
    let _ = write!(
        out,
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    out.extend_from_slice(body);
}

/// Writes a whole GET.
pub(crate) fn write_get(out: &mut Vec<u8>, path: std::fmt::Arguments<'_>) {
    let _ = write!(out, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
}

/// Calls `each` with every stamp; answers how many bytes need not be looked at again.
pub(crate) fn stamps(bytes: &[u8], mut each: impl FnMut(u64)) -> usize {
    let mut done = 0;
    for start in memmem::find_iter(bytes, SENT) {
        let digits = bytes.get(start + SENT.len()..).unwrap_or_default();
        let Some(length) = digits.iter().position(|byte| !byte.is_ascii_digit()) else {
            return start;
        };
        let text = digits.get(..length).and_then(|digits| std::str::from_utf8(digits).ok()).unwrap_or_default();
        text.parse().into_iter().for_each(&mut each);
        done = start + SENT.len() + length;
    }
    done.max(bytes.len().saturating_sub(STAMP_BYTES_MAX))
}

/// The number that stands behind `name` near the end of a page.
pub(crate) fn number_after(page: &[u8], name: &str) -> Outcome<u64> {
    let start = memmem::rfind(page, name.as_bytes()).ok_or("a page does not say where it ends")? + name.len();
    let digits = page.get(start..).unwrap_or_default();
    let length = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    Ok(std::str::from_utf8(digits.get(..length).unwrap_or_default())?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_found_even_when_they_come_in_two_pieces() {
        let text = br#"{"sent":12}, {"sent":3456}, {"sen"#;
        for cut in 0..text.len() {
            let (mut found, mut rest) = (Vec::new(), Vec::new());
            for piece in [&text[..cut], &text[cut..]] {
                rest.extend_from_slice(piece);
                let done = stamps(&rest, |stamp| found.push(stamp));
                rest.drain(..done);
            }
            assert_eq!(found, [12, 3456], "cut at {cut}");
        }
    }

    #[test]
    fn a_page_says_where_the_next_begins() {
        let page = br#"{"items":[{"nextOffset":9}],"nextOffset":41,"tail":50}"#;
        assert_eq!(number_after(page, "\"nextOffset\":").unwrap(), 41);
        assert_eq!(number_after(page, "\"tail\":").unwrap(), 50);
    }

    #[test]
    fn an_event_is_json() {
        let mut text = Vec::new();
        event(&mut text, 7, 0, 123);
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["data"]["sent"], 123);
        assert_eq!(value["type"], event_type(0));
    }
}
