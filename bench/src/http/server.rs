//! A server in a process of its own: started on a free port, watched through `/proc`, killed at the end.

use super::connection::Connection;
use super::programs::Programs;
use super::text::{self, Topics};
use super::tls::{self, Endpoint};
use crate::place::remove;
use crate::sections::Run;
use crate::usage::{self, Memory};
use crate::{Failure, Outcome};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use tokio_rustls::TlsConnector;

/// How long a server may take to come to rest.
const SETTLE_MAX: Duration = Duration::from_secs(10);
const SETTLE_STEP: Duration = Duration::from_millis(100);

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Ours, in files: every answer is synced.
    File,
    /// Ours, in a database.
    Postgres,
    /// Ours, in memory.
    Memory,
    /// Ours, in files and with TLS.
    FileTls,
    /// Ours, in memory and with TLS.
    MemoryTls,
    /// A bare axum handler ([`super::bare`]).
    Bare,
    /// The `durable-streams` server with its write-ahead log synced.
    DurableStreams,
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    /// Held open, so that it may go on printing.
    _output: BufReader<ChildStdout>,
    folder: PathBuf,
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    tls: Option<TlsConnector>,
    /// Number of the next event or request.
    pub(crate) next: Arc<AtomicU64>,
}

impl Server {
    /// Starts one with a folder of its own on the measured disk, and registers what is published to it.
    pub(crate) async fn start(run: &Run<'_>, kind: Kind, name: &str, topics: Topics) -> Outcome<Self> {
        let folder = run.place.fresh(name)?;
        let command = kind.command(&run.programs, &folder)?;
        Self::launch(kind, command, folder, topics).await
    }

    /// Starts ours in files, and lets it call receivers on this machine.
    pub(crate) async fn start_calling(run: &Run<'_>, name: &str, topics: Topics) -> Outcome<Self> {
        let folder = run.place.fresh(name)?;
        let mut command = Kind::File.command(&run.programs, &folder)?;
        command.env("EVENT_BROKER__DISPATCH__ALLOW_PRIVATE_TARGETS", "true");
        Self::launch(Kind::File, command, folder, topics).await
    }

    /// Starts ours on a database; its tables are in a folder on the measured disk.
    pub(crate) async fn start_on(run: &Run<'_>, database: &str, name: &str) -> Outcome<Self> {
        let folder = run.place.fresh(name)?;
        let mut command = Kind::Postgres.command(&run.programs, &folder)?;
        command.args(["--storage", database]);
        Self::launch(Kind::Postgres, command, folder, Topics::ONE).await
    }

    async fn launch(kind: Kind, mut command: Command, folder: PathBuf, topics: Topics) -> Outcome<Self> {
        std::fs::create_dir_all(&folder)?;
        let tls = match kind {
            Kind::FileTls | Kind::MemoryTls => Some(tls::encrypt(&mut command, &folder.join("tls"))?),
            _ => None,
        };
        let complaints = File::create(folder.join("stderr.txt"))?;
        // All readers come from one address, and more streams at a time than the default has memory for.
        for (name, value) in [
            ("ADDRESS_SHARE_PERCENT", "100"),
            ("MAX_CONNECTIONS_PER_ADDRESS", "25000"),
            ("MAX_WAITS_PER_ADDRESS", "25000"),
            ("MAX_CONNECTION_BYTES", "536870912"),
        ] {
            command.env(format!("EVENT_BROKER__SERVER__{name}"), value);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(complaints).spawn()?;
        let output = child.stdout.take().ok_or("a server has no output")?;
        let mut output = BufReader::new(output);
        let address = address(&mut output).map_err(|error| {
            let complaints = std::fs::read_to_string(folder.join("stderr.txt")).unwrap_or_default();
            Failure::from(format!("{command:?}: {error}: {complaints}"))
        })?;
        let server = Self { child, _output: output, folder, kind, address, tls, next: Arc::default() };
        if !matches!(kind, Kind::Bare | Kind::DurableStreams) {
            server.register(topics).await?;
        }
        Ok(server)
    }

    async fn register(&self, topics: Topics) -> Outcome {
        let mut connection = Connection::open(self.endpoint()).await?;
        for number in 0..=topics.0 {
            connection.expect(201, &text::post("/v1/topics", &text::new_topic(number))).await?;
            connection.expect(201, &text::post("/v1/event-types", &text::new_event_type(number))).await?;
        }
        Ok(())
    }

    /// Where it listens, and how connections to it are encrypted.
    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint { address: self.address, tls: self.tls.clone() }
    }

    /// Processor time so far, all threads together, in seconds.
    pub(crate) fn cpu_seconds(&self) -> Outcome<f64> {
        usage::cpu_seconds_of(self.child.id())
    }

    pub(crate) fn memory(&self) -> Outcome<Memory> {
        Memory::of(self.child.id())
    }

    /// Waits until it does nothing any more.
    pub(crate) async fn settle(&self) -> Outcome {
        let (begun, mut before, mut quiet) = (Instant::now(), self.cpu_seconds()?, 0);
        while quiet < 3 && begun.elapsed() < SETTLE_MAX {
            tokio::time::sleep(SETTLE_STEP).await;
            let now = self.cpu_seconds()?;
            quiet = if now - before < 0.011 { quiet + 1 } else { 0 };
            before = now;
        }
        Ok(())
    }

    /// Bytes of its segment files; up to 1 MiB of zeros may be written ahead of the last event.
    pub(crate) fn segment_bytes(&self) -> Outcome<u64> {
        let mut bytes = 0;
        for entry in std::fs::read_dir(self.folder.join("data/log"))? {
            let entry = entry?;
            if entry.path().extension().is_some_and(|extension| extension == "log") {
                bytes += entry.metadata()?.len();
            }
        }
        Ok(bytes)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let ended = self.child.kill().and_then(|()| self.child.wait());
        if let Err(error) = ended {
            eprintln!("bench: a server was left behind: {error}");
        }
        if let Err(error) = remove(&self.folder) {
            eprintln!("bench: {} was left behind: {error}", self.folder.display());
        }
    }
}

impl Kind {
    fn command(self, programs: &Programs, folder: &Path) -> Outcome<Command> {
        let data = folder.join("data");
        let mut command = match self {
            Self::File | Self::Postgres | Self::Memory | Self::FileTls | Self::MemoryTls => {
                Command::new(programs.broker()?)
            }
            Self::Bare => Command::new(std::env::current_exe()?),
            Self::DurableStreams => Command::new(programs.durable_streams()?),
        };
        match self {
            Self::File | Self::FileTls | Self::Postgres => {
                command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data)
            }
            Self::Memory | Self::MemoryTls => command.args(["serve", "--listen", "127.0.0.1:0", "--storage", "memory"]),
            Self::Bare => command.arg("bare"),
            Self::DurableStreams => {
                command.args(["--durability", "wal", "--port", &free_port()?.to_string(), "--data-dir"]).arg(data)
            }
        };
        Ok(command)
    }
}

/// The address it says it listens on.
fn address(output: &mut impl BufRead) -> Outcome<SocketAddr> {
    let mut line = String::new();
    while output.read_line(&mut line)? > 0 {
        let listening = line.split_once("listening on ").map(|(_, rest)| rest);
        if let Some(("http" | "https", rest)) = listening.and_then(|rest| rest.split_once("://")) {
            let address = rest.split_whitespace().next().unwrap_or_default();
            return Ok(address.parse()?);
        }
        line.clear();
    }
    Err("ended before it listened".into())
}

/// A port nobody listens on, for a program that cannot pick one.
fn free_port() -> Outcome<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
