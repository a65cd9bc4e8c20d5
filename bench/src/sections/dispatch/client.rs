//! The HTTP client that the broker delivers with, in a bare loop: what is left when there is no broker.

use super::{CONCURRENCY, Round};
use crate::http::receiver::{Manner, Receiver};
use crate::http::text;
use crate::{Outcome, usage};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Builder};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

type Calling = legacy::Client<HttpConnector, Full<Bytes>>;

/// As long as the signatures are.
const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

/// A client with a runtime like the broker's, and a receiver.
pub(super) struct Client {
    receiver: Receiver,
    /// Absent while it is being taken down.
    runtime: Option<Runtime>,
    calling: Calling,
    body: Bytes,
}

impl Client {
    pub(super) fn start() -> Outcome<Self> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let mut builder: Builder = legacy::Client::builder(TokioExecutor::new());
        builder.timer(TokioTimer::new()).pool_timer(TokioTimer::new()).pool_max_idle_per_host(256);
        let mut body = Vec::new();
        text::event(&mut body, 1, 0, 0);
        // What the broker adds to an event.
        body.resize(600, b' ');
        Ok(Self {
            receiver: Receiver::start(Manner::Answers)?,
            runtime: Some(crate::sections::runtime()?),
            calling: builder.build(connector),
            body: body.into(),
        })
    }

    /// Calls for a time, as many at a time as the broker does.
    pub(super) async fn run(&self, time: Duration) -> Outcome<Round> {
        let runtime = self.runtime.as_ref().ok_or("the client has ended")?;
        let (before, receiver_cpu) = (self.receiver.count(), self.receiver.cpu_time().await?);
        let (all_cpu, begun) = (usage::cpu_time(), Instant::now());
        let uri: Uri = format!("http://{}/hooks", self.receiver.address).parse()?;
        let calls: Vec<_> = (0..CONCURRENCY)
            .map(|_| runtime.spawn(call(self.calling.clone(), uri.clone(), self.body.clone(), begun, time)))
            .collect();
        for call in calls {
            call.await??;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let receiver_cpu = self.receiver.cpu_time().await?.saturating_sub(receiver_cpu).as_secs_f64();
        let all_cpu = usage::cpu_time().saturating_sub(all_cpu).as_secs_f64();
        self.receiver.take()?;
        Ok(Round {
            deliveries: self.receiver.count() - before,
            seconds,
            sender_cpu: all_cpu - receiver_cpu,
            receiver_cpu,
            generator_cpu: 0.0,
            waits: Vec::new(),
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // A runtime must not be waited for inside another.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

async fn call(calling: Calling, uri: Uri, body: Bytes, begun: Instant, time: Duration) -> Outcome {
    while begun.elapsed() < time {
        let request = Request::post(uri.clone())
            .header("content-type", "application/json")
            .header("user-agent", "event-broker-bench")
            .header("webhook-id", "01927c3e-5a4b-7d6e-8f90-a1b2c3d4e5f6")
            .header("webhook-timestamp", "1764763200")
            .header("webhook-signature", SIGNATURE)
            .header("event-broker-attempt", "1")
            .header("event-broker-subscription", "bench")
            .header("event-broker-topic", text::topic(0))
            .header("event-broker-sequence", "100000")
            .header("event-broker-token", "200000")
            .body(Full::new(body.clone()))?;
        let answer = calling.request(request).await?;
        if answer.status() != StatusCode::NO_CONTENT {
            return Err("the receiver does not answer as it should".into());
        }
        answer.into_body().collect().await?;
    }
    Ok(())
}
