//! `event-broker serve`: opens the log, listens, and drains on SIGTERM.

use super::{failed, logging};
use event_broker::{Broker, Config, Storage, rest};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Address to listen on; port 0 picks a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8087")]
    listen: SocketAddr,
    /// Folder of the log; made when missing.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    data: PathBuf,
    /// Where the log is kept: `file` or `memory`.
    #[arg(long, default_value = "file")]
    storage: String,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    if let Err(error) = logging::start("info", logging::Format::Text) {
        return failed(&std::io::Error::other(error));
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: &Arguments) -> ExitCode {
    let mut config = Config { data_folder: Some(arguments.data.clone()), ..Config::default() };
    if arguments.storage == "file" {
        config.storage = Storage::folder(&arguments.data);
    }
    let broker = match Broker::open(config).await {
        Ok(broker) => Arc::new(broker),
        Err(error) => return failed(&error),
    };
    let listener = match TcpListener::bind(arguments.listen).await {
        Ok(listener) => listener,
        Err(error) => return failed(&error),
    };
    match listener.local_addr() {
        Ok(address) => println!("listening on http://{address}"),
        Err(error) => return failed(&error),
    }
    let outcome = rest::serve(listener, Arc::clone(&broker), rest::Options::default(), stopped()).await;
    if let Err(cut_off) = outcome {
        tracing::warn!(cut_off, "connections did not finish in time");
    }
    broker.close().await;
    tracing::info!("stopped");
    ExitCode::SUCCESS
}

/// Ends when somebody asks the process to stop.
async fn stopped() {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => (),
        _ = interrupt.recv() => (),
    }
    tracing::info!("draining");
}
