//! The command line: the real program, run as users and scripts run it.

mod broker_requests;
mod data_folders;
mod dispatching;
mod export_import;
mod migration;
mod publishing;
mod registry;
mod tailing;

use crate::http::{CREATED, Server, TENANT};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// The time limit of a command; one that takes longer counts as hanging.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// The exit code and the output of a run.
pub(super) struct CliRun {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

impl CliRun {
    /// Checks the exit code, and that nothing panicked.
    pub(super) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "\nout: {}\nerr: {}", self.out, self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }

    /// Every line of output as JSON.
    pub(super) fn json(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"))).collect()
    }
}

/// The program, without the caller's environment settings.
pub(super) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_event-broker"));
    command.args(arguments).env_remove("EVENT_BROKER_URL").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program until it ends.
pub(super) fn run(arguments: &[&str]) -> CliRun {
    finish(program(arguments).spawn().unwrap())
}

/// Runs the program against a server.
pub(super) fn ask(server: &Server, arguments: &[&str]) -> CliRun {
    finish(program(arguments).env("EVENT_BROKER_URL", &server.url).spawn().unwrap())
}

/// The same, with text on standard input.
pub(super) fn feed(server: &Server, arguments: &[&str], input: &str) -> CliRun {
    let mut child = program(arguments).env("EVENT_BROKER_URL", &server.url).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || {
        // A program may close its input early; that is not an error in this test.
        let _ = stdin.write_all(input.as_bytes());
    });
    let run = finish(child);
    writer.join().unwrap();
    run
}

fn finish(child: Child) -> CliRun {
    let process = Pid::from_child(&child);
    let (ended, has_ended) = mpsc::channel::<()>();
    // A command that hangs is killed, so that its test fails.
    let guard = thread::spawn(move || {
        if has_ended.recv_timeout(COMMAND_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            kill_process(process, Signal::KILL).unwrap();
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(ended);
    guard.join().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    CliRun { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs the program, takes the first `count` lines of its output and closes the pipe, as `| head -n` does.
pub(super) fn first_lines(server: &Server, arguments: &[&str], count: usize) -> (Vec<String>, CliRun) {
    let mut child = program(arguments).env("EVENT_BROKER_URL", &server.url).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(count).map(Result::unwrap).collect();
    (lines, finish(child))
}

/// Runs the program, takes one line of its output and closes the pipe, as `| head -1` does.
pub(super) fn first_line(server: &Server, arguments: &[&str]) -> (String, CliRun) {
    let (lines, run) = first_lines(server, arguments, 1);
    (lines.concat(), run)
}

/// A server with a registered event type.
pub(super) fn server() -> Server {
    let server = Server::start(&[]);
    feed(&server, &["types", "register"], &json!({"id": CREATED}).to_string()).expect(0);
    server
}

/// An event as one line of a file.
pub(super) fn line(subject: &str) -> String {
    event_with(subject, &json!({"n": 1}))
}

pub(super) fn event_with(subject: &str, data: &Value) -> String {
    let event = json!({"type": CREATED, "source": "test", "subject": subject, "tenant": TENANT, "data": data});
    event.to_string()
}

/// The given number of events, one per line.
pub(super) fn lines(count: usize) -> String {
    (0..count).map(|number| line(&format!("s-{number}")) + "\n").collect()
}

/// The subjects of a topic's events, in order.
pub(super) fn subjects(server: &Server) -> Vec<String> {
    let events = ask(server, &["tail", "--no-follow", "--json"]).expect(0).json();
    events.iter().map(|event| event["subject"].as_str().unwrap().to_owned()).collect()
}

/// A fake HTTP server: each request goes to `answer`, which returns the response, and then to the test.
pub(super) fn pretend(
    answer: impl Fn(usize, &str) -> Option<String> + Send + 'static,
) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let request = request(&mut stream);
            if let Some(text) = answer(number, &request) {
                let _ = stream.write_all(text.as_bytes());
            }
            if sender.send(request).is_err() {
                return;
            }
        }
    });
    (url, requests)
}

/// Reads a request: head and body.
fn request(stream: &mut TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let start = head.len();
        if reader.read_line(&mut head).unwrap() == 0 || &head[start..] == "\r\n" {
            break;
        }
        let line = head[start..].to_lowercase();
        length = line.strip_prefix("content-length: ").map_or(length, |text| text.trim().parse().unwrap());
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    head + std::str::from_utf8(&body).unwrap()
}

/// A response with this status and body; the connection closes after it.
pub(super) fn response(status: &str, headers: &str, body: &str) -> Option<String> {
    let length = body.len();
    Some(format!("HTTP/1.1 {status}\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"))
}
