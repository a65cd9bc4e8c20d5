//! The programs under test: where they are, or how they are built.

use crate::{Failure, Outcome};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The version of the `durable-streams` crate that ours is measured against.
const PEER_VERSION: &str = "=0.1.5";
const PEER_PROGRAM: &str = "target/peers/bin/durable-streams-server";

/// Paths of programs; absent ones are built.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Paths {
    /// The `event-broker` program to measure; unless named, it is built from this repository.
    #[arg(long, value_name = "PATH", global = true)]
    broker: Option<PathBuf>,
    /// The `durable-streams-server` program to measure beside ours; unless named, cargo installs it below target.
    #[arg(long, value_name = "PATH", global = true)]
    durable_streams: Option<PathBuf>,
}

/// The programs, each found or built when it is first asked for.
#[derive(Debug)]
pub(crate) struct Programs {
    paths: Paths,
    broker: OnceCell<PathBuf>,
    durable_streams: OnceCell<Result<PathBuf, String>>,
}

impl Programs {
    pub(crate) fn new(paths: Paths) -> Self {
        Self { paths, broker: OnceCell::new(), durable_streams: OnceCell::new() }
    }

    pub(crate) fn broker(&self) -> Outcome<&Path> {
        if let Some(path) = self.broker.get() {
            return Ok(path);
        }
        let found = self.paths.broker.clone().map_or_else(build_broker, Ok)?;
        Ok(self.broker.get_or_init(|| found))
    }

    /// The peer, or why it is not there.
    pub(crate) fn durable_streams(&self) -> Result<&Path, &str> {
        let named = self.paths.durable_streams.clone();
        let found = self
            .durable_streams
            .get_or_init(|| named.map_or_else(|| install_peer().map_err(|error| error.to_string()), Ok));
        found.as_deref().map_err(String::as_str)
    }
}

/// The folder of the benchmark's own manifest; cargo names it to what it runs.
fn home() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from)
}

fn build_broker() -> Outcome<PathBuf> {
    let root = home().join("..");
    let target = root.join("target");
    eprintln!("  ... building the broker");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--bin", "event-broker", "--manifest-path"]).arg(root.join("Cargo.toml"));
    carry_out(cargo.arg("--target-dir").arg(&target))?;
    Ok(target.join("release/event-broker"))
}

fn install_peer() -> Outcome<PathBuf> {
    let program = home().join(PEER_PROGRAM);
    if program.is_file() {
        return Ok(program);
    }
    eprintln!("  ... installing durable-streams {PEER_VERSION}");
    let mut cargo = Command::new("cargo");
    cargo.args(["install", "durable-streams", "--version", PEER_VERSION, "--locked", "--root"]);
    let root = program.parent().and_then(Path::parent).ok_or("no folder for peers")?;
    carry_out(cargo.arg(root).arg("--target-dir").arg(root.join("build")))?;
    Ok(program)
}

/// Runs cargo as if it had been called by hand: what it told us about ourselves would make it build things anew.
fn carry_out(command: &mut Command) -> Outcome {
    let own = ["CARGO_MANIFEST", "CARGO_PKG", "CARGO_BIN", "CARGO_CRATE", "CARGO_PRIMARY"];
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| own.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(Failure::from(format!("{command:?} ended with {status}"))) }
}
