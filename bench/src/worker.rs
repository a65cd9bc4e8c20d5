//! A broker in a process of its own: its memory is its own, and it can be killed.
//!
//! The parent writes orders as lines of JSON, the child answers each with one line. The child opens the broker before
//! anything else, and says how that went.

use crate::load::{Done, Load};
use crate::store::Store;
use crate::usage::{self, Memory};
use crate::{Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Debug, Serialize, Deserialize)]
enum Order {
    /// Publish, answer when done.
    Publish(Load),
    /// Publish, answer before beginning: the parent means to kill.
    PublishUnheard(Load),
    /// Close in good order and end.
    Close,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Opened(Opened),
    Published(Done, Memory),
    Begun,
    Closed { seconds: f64 },
}

/// How opening went.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Opened {
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) memory: Memory,
}

/// The parent's side.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// How opening went.
    pub(crate) opened: Opened,
}

impl Worker {
    /// Starts a process that opens the broker in `folder`.
    pub(crate) fn start(folder: &Path) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("worker")
            .arg("--data")
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (orders, answers) = child.stdin.take().zip(child.stdout.take()).ok_or("a worker has no pipes")?;
        let mut answers = BufReader::new(answers);
        match answer(&mut answers)? {
            Answer::Opened(opened) => Ok(Self { child, orders, answers, opened }),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn publish(&mut self, load: Load) -> Outcome<(Done, Memory)> {
        match self.order(&Order::Publish(load))? {
            Answer::Published(done, memory) => Ok((done, memory)),
            other => Err(unexpected(&other)),
        }
    }

    /// Kills it (SIGKILL) after `time` of publishing.
    pub(crate) fn crash(mut self, load: Load, time: Duration) -> Outcome {
        match self.order(&Order::PublishUnheard(load))? {
            Answer::Begun => std::thread::sleep(time),
            other => return Err(unexpected(&other)),
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Closes in good order; answers how many seconds that took.
    pub(crate) fn close(mut self) -> Outcome<f64> {
        let closed = self.order(&Order::Close)?;
        self.child.wait()?;
        match closed {
            Answer::Closed { seconds } => Ok(seconds),
            other => Err(unexpected(&other)),
        }
    }

    fn order(&mut self, order: &Order) -> Outcome<Answer> {
        writeln!(self.orders, "{}", serde_json::to_string(order)?)?;
        answer(&mut self.answers)
    }
}

fn answer(answers: &mut impl BufRead) -> Outcome<Answer> {
    let mut line = String::new();
    if answers.read_line(&mut line)? == 0 {
        return Err("a worker ended without an answer; what it said is above".into());
    }
    Ok(serde_json::from_str(&line)?)
}

fn unexpected(answer: &Answer) -> Failure {
    format!("a worker answered something else: {answer:?}").into()
}

/// The child's side: opens the broker, then obeys.
pub(crate) fn serve(folder: &Path) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (begun, cpu) = (Instant::now(), usage::cpu_time());
    let store = runtime.block_on(Store::files(folder))?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu_seconds = usage::cpu_time().saturating_sub(cpu).as_secs_f64();
    say(&Answer::Opened(Opened { seconds, cpu_seconds, memory: Memory::now()? }))?;
    for line in std::io::stdin().lines() {
        match serde_json::from_str(&line?)? {
            Order::Publish(load) => {
                let done = runtime.block_on(load.run(&store))?;
                say(&Answer::Published(done, Memory::now()?))?;
            }
            Order::PublishUnheard(load) => {
                say(&Answer::Begun)?;
                runtime.block_on(load.run(&store))?;
            }
            Order::Close => {
                let begun = Instant::now();
                runtime.block_on(store.close());
                return say(&Answer::Closed { seconds: begun.elapsed().as_secs_f64() });
            }
        }
    }
    Ok(())
}

fn say(answer: &Answer) -> Outcome {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(answer)?)?;
    Ok(output.flush()?)
}
