//! A receiver that fails one call in five, the same ones in every run, and records every call whose work it did.
//!
//! - The outcome of the n-th call of a job depends only on the job and n: an error, a hang-up before any work was done,
//!   a response that is lost after the work was done, or a response.
//! - It implements the part of HTTP that this needs, because no HTTP server lets a handler close the connection.

use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A job as the receiver knows it: the subscription's code and the event's sequence.
pub(super) type JobName = (String, u64);

/// The outcome of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallFate {
    Answered,
    Refused,
    HungUp,
    Lost,
}

/// One call whose work was done.
#[derive(Debug, Clone, Copy)]
pub(super) struct TakenCall {
    pub(super) at: Instant,
    /// Whether the response was sent.
    pub(super) is_answered: bool,
}

/// Everything that the receiver has recorded.
#[derive(Default)]
pub(super) struct CallBook {
    calls: HashMap<JobName, u64>,
    pub(super) failed: u64,
    pub(super) lost: u64,
    pub(super) taken: HashMap<JobName, Vec<TakenCall>>,
    /// Jobs of each group in the order of their first completion, by subscription.
    pub(super) firsts: BTreeMap<(String, String), Vec<u64>>,
    /// Tokens of each job, in the order of arrival.
    pub(super) tokens: HashMap<JobName, Vec<u64>>,
}

#[derive(Clone)]
pub(super) struct FlakyReceiver {
    pub(super) url: String,
    pub(super) book: Arc<Mutex<CallBook>>,
    /// The number of jobs whose work was done at least once.
    pub(super) count: Arc<watch::Sender<usize>>,
    seed: u64,
}

struct DeliveryCall {
    subscription: String,
    sequence: u64,
    token: u64,
    group: String,
}

impl FlakyReceiver {
    pub(super) async fn start(seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let receiver = Self { url, book: Arc::default(), count: Arc::new(watch::Sender::new(0)), seed };
        let serving = receiver.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(socket));
            }
        });
        receiver
    }

    /// Waits until the work of this many jobs was done.
    pub(super) async fn took(&self, count: usize) {
        self.count.subscribe().wait_for(|there| *there >= count).await.unwrap();
    }

    async fn serve(self, mut socket: TcpStream) {
        let mut buffer = Vec::new();
        while let Some(call) = take_call(&mut socket, &mut buffer).await {
            let answer: &[u8] = match self.note(&call) {
                CallFate::Answered => b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
                CallFate::Refused => b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n",
                CallFate::HungUp | CallFate::Lost => return,
            };
            if socket.write_all(answer).await.is_err() {
                return;
            }
        }
    }

    fn note(&self, call: &DeliveryCall) -> CallFate {
        let mut book = self.book.lock().unwrap();
        let job = (call.subscription.clone(), call.sequence);
        let number = book.calls.entry(job.clone()).or_default();
        *number += 1;
        let fate = fate(self.seed, call, *number);
        book.tokens.entry(job.clone()).or_default().push(call.token);
        match fate {
            CallFate::Refused | CallFate::HungUp => {
                book.failed += 1;
                return fate;
            }
            CallFate::Lost => book.lost += 1,
            CallFate::Answered => (),
        }
        let taken = book.taken.entry(job).or_default();
        taken.push(TakenCall { at: Instant::now(), is_answered: fate == CallFate::Answered });
        if taken.len() == 1 {
            book.firsts.entry((call.subscription.clone(), call.group.clone())).or_default().push(call.sequence);
            self.count.send_replace(book.taken.len());
        }
        fate
    }
}

/// One call in five fails: a tenth with an error, a twentieth by hanging up, a twentieth after the work was done.
fn fate(seed: u64, call: &DeliveryCall, number: u64) -> CallFate {
    let text = format!("{seed} {} {} {number}", call.subscription, call.sequence);
    match blake3::hash(text.as_bytes()).as_bytes()[0] % 20 {
        0 | 1 => CallFate::Refused,
        2 => CallFate::HungUp,
        3 => CallFate::Lost,
        _ => CallFate::Answered,
    }
}

/// Reads one request; `None` if the peer closed the connection.
async fn take_call(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<DeliveryCall> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|end| end == b"\r\n\r\n") {
            break at + 4;
        }
        if socket.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(buffer[..head_end].to_vec()).unwrap();
    let headers: HashMap<String, String> = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers["content-length"].parse().unwrap();
    while buffer.len() < head_end + length {
        if socket.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let event: Value = serde_json::from_slice(&buffer[head_end..head_end + length]).unwrap();
    buffer.drain(..head_end + length);
    assert_eq!(headers["webhook-id"], event["id"].as_str().unwrap());
    assert!(headers.contains_key("webhook-signature"));
    Some(DeliveryCall {
        subscription: headers["event-broker-subscription"].clone(),
        sequence: headers["event-broker-sequence"].parse().unwrap(),
        token: headers["event-broker-token"].parse().unwrap(),
        group: event["subject"].as_str().unwrap().to_owned(),
    })
}
