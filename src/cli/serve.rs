//! `event-broker serve`: opens the log, listens, and drains when it receives a signal to stop.

use super::config::refusal;
use super::output::{CliOutput, print_note};
use super::settings::SettingsArgs;
use super::{failed, logging};
use contract::ProducerId;
use contract::api::DispatchJobApi;
use event_broker::config::{Config, FileBudget, LoadedConfig, StorageEngine, TlsConfig, ValueSources};
use event_broker::rest::{ReloadCause, ServerTls};
use event_broker::{BrokerSlot, OpenError, Supervisor, opener, rest};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::net::SocketAddr;
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Runs the broker.
///
/// Without arguments it listens on 127.0.0.1:8087 and keeps its log in ./data. When it is ready it prints
/// `listening on http://HOST:PORT`. SIGTERM and Ctrl-C drain it: it accepts no new requests, ends open polls and streams,
/// finishes the requests in flight, and exits with 0. With `server.tls.certificate` and `server.tls.key` it serves https;
/// SIGHUP reads their files again, and so does a change of them.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker serve\n  \
    event-broker serve --listen 127.0.0.1:0 --data /var/lib/events\n  \
    event-broker serve --config config/quickstart.yaml\n  \
    EVENT_BROKER__LOGGING__FORMAT=json event-broker serve --storage memory\n  \
    EVENT_BROKER__SERVER__TLS='{certificate: server.pem, key: server.key}' event-broker serve\n\n\
    Try it:\n  \
    curl http://127.0.0.1:8087/v1/topics\n  \
    open http://127.0.0.1:8087/docs")]
pub(super) struct ServeArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    /// Resume deliveries, which are paused after `event-broker restore`.
    #[arg(long)]
    resume_dispatch: bool,
}

pub(super) fn run(arguments: &ServeArgs) -> ExitCode {
    let loaded = match arguments.settings.load() {
        Ok(loaded) => loaded,
        Err(error) => {
            error.problems.iter().for_each(|problem| print_note(problem));
            return ExitCode::from(2);
        }
    };
    if let Err(error) = logging::start(&loaded.config.logging) {
        return failed(&std::io::Error::other(error));
    }
    loaded.notes.iter().for_each(|note| tracing::warn!("{note}"));
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(threads(&loaded.config)).on_thread_park(allocator::give_back_when_idle);
    match runtime.enable_all().build() {
        Ok(runtime) => runtime.block_on(serve(loaded, arguments.resume_dispatch)),
        Err(error) => failed(&error),
    }
}

/// Threads that serve requests. Appending to a database keeps one core of its server busy, which is often this machine:
/// another thread on that core slows down both.
fn threads(config: &Config) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let left_over = usize::from(config.storage.engine == StorageEngine::Database);
    config.server.threads.unwrap_or(cores.saturating_sub(left_over).max(1))
}

async fn serve(loaded: LoadedConfig, resume_dispatch: bool) -> ExitCode {
    let LoadedConfig { config, sources, .. } = loaded;
    if let Err(reason) = check_exposure(config.server.listen, config.server.insecure) {
        return failed(&std::io::Error::other(reason));
    }
    let connections_max = match connections_max(config.server.max_connections) {
        Ok(connections_max) => connections_max,
        Err(reason) => return failed(&std::io::Error::other(reason)),
    };
    // Signals are caught from here on: one that arrives while the log is opened is not lost.
    let stop = match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(terminate), Ok(interrupt)) => stopped(terminate, interrupt),
        (Err(error), _) | (_, Err(error)) => return failed(&error),
    };
    let tls = match load_tls(&config, &sources) {
        Ok(tls) => tls,
        Err(reason) => return failed(&std::io::Error::other(reason)),
    };
    // Caught from here on, so that an early one does not end the program.
    let hangups = match tls.as_ref().map(|_| signal(SignalKind::hangup())).transpose() {
        Ok(hangups) => hangups,
        Err(error) => return failed(&error),
    };
    let (listen, mut options) = (config.server.listen, options(&config, connections_max));
    options.tls = tls.clone();
    let open = opener(config);
    let broker = match open().await {
        Ok(broker) => Arc::new(broker),
        Err(OpenError::Declared { path, error }) => {
            return failed(&std::io::Error::other(refusal(&sources, &path, &error)));
        }
        Err(error) => return failed(&error),
    };
    if resume_dispatch
        && let Err(error) = broker.resume_dispatch(Some(&ProducerId("serve --resume-dispatch".to_owned()))).await
    {
        return failed(&error);
    }
    let listener = match bind(listen) {
        Ok(listener) => listener,
        Err(error) => return failed(&std::io::Error::other(format!("cannot listen on {listen}: {error}"))),
    };
    match listener.local_addr() {
        // A closed standard output is no reason to stop the server.
        Ok(address) => {
            let scheme = if tls.is_some() { "https" } else { "http" };
            drop(CliOutput::new().line(&format!("listening on {scheme}://{address}")));
        }
        Err(error) => return failed(&error),
    }
    if let (Some(tls), Some(hangups)) = (tls, hangups) {
        tokio::spawn(reload_tls(tls, hangups));
    }
    let slot = Arc::new(BrokerSlot::new(broker));
    let supervisor = Supervisor::new(Arc::clone(&slot), open);
    let stopping = Arc::clone(&slot);
    let stop = async move {
        stop.await;
        stopping.broker().iter().for_each(|broker| broker.stop_dispatching());
    };
    // A separate task: reopening may take long, and the server responds meanwhile.
    let mut supervising = tokio::spawn(async move { supervisor.run().await });
    let served = tokio::select! {
        served = rest::serve_slot(listener, Arc::clone(&slot), options, stop) => served,
        ended = &mut supervising => return ended.map_or_else(|error| failed(&error), |error| failed(&error)),
    };
    if let Err(cut_off) = served {
        tracing::warn!(cut_off, "connections did not finish in time");
    }
    // The broker is no longer reopened, and a failed broker is not abandoned while it closes.
    supervising.abort();
    if let Some(broker) = slot.broker() {
        broker.close().await;
    }
    tracing::info!("stopped");
    ExitCode::SUCCESS
}

/// Reads the files of TLS; `Err` says which one is wrong.
pub(super) fn load_tls(config: &Config, sources: &ValueSources) -> Result<Option<Arc<ServerTls>>, String> {
    let tls = &config.server.tls;
    if !tls.is_enabled() {
        return Ok(None);
    }
    let loaded = ServerTls::load(TlsConfig::clone(tls), jiff::Timestamp::now());
    let loaded = loaded.map_err(|error| format!("{}: {error}", sources.of(error.key)))?;
    Ok(Some(Arc::new(loaded)))
}

/// Reads the files of TLS again when they change and on SIGHUP.
async fn reload_tls(tls: Arc<ServerTls>, mut hangups: Signal) {
    let mut looks = tokio::time::interval(rest::LOOK_INTERVAL);
    loop {
        let cause = tokio::select! {
            _ = looks.tick() => ReloadCause::Interval,
            Some(()) = hangups.recv() => ReloadCause::Request,
        };
        let tls = Arc::clone(&tls);
        // The files may be on a disk that is slow.
        let reloaded = tokio::task::spawn_blocking(move || tls.reload(cause, jiff::Timestamp::now())).await;
        if let Err(error) = reloaded {
            tracing::error!(%error, "the files of TLS could not be read again");
        }
    }
}

/// How many connections the system may queue until they are accepted; it lowers this to its limit (`net.core.somaxconn`).
const BACKLOG: u32 = 65_535;

/// Binds the address, with a queue for a burst of connections.
fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // So that the server can be restarted at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Raises the limit of open files as far as the system permits; returns how many connections that leaves beside the log.
fn connections_max(configured: usize) -> Result<usize, String> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If the system refuses, the limit stays as it is.
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of open files cannot be raised");
    }
    let budget = FileBudget::of_process();
    let connections = budget.connections_of(configured)?;
    let FileBudget { limit, log_files, deliveries, .. } = budget;
    if connections < configured {
        tracing::warn!(
            limit,
            configured,
            connections,
            "the limit of open files leaves fewer connections than server.max_connections; raise `ulimit -n`"
        );
    }
    tracing::info!(limit, connections, log_files, deliveries, "open files are divided");
    Ok(connections)
}

/// The broker does not authenticate callers yet, so it listens beyond loopback only if the operator declares it safe.
fn check_exposure(listen: SocketAddr, insecure: bool) -> Result<(), String> {
    if listen.ip().is_loopback() || insecure {
        return Ok(());
    }
    Err(format!(
        "refusing to listen on {listen}: callers are not authenticated, and anybody who reaches this address could \
        read and write everything. Listen on 127.0.0.1, or say --insecure if the network in front of it is trusted."
    ))
}

async fn stopped(mut terminate: Signal, mut interrupt: Signal) {
    tokio::select! {
        _ = terminate.recv() => (),
        _ = interrupt.recv() => (),
    }
    tracing::info!("draining");
}

fn options(config: &Config, connections_max: usize) -> rest::HttpOptions {
    let server = &config.server;
    rest::HttpOptions {
        connections_max,
        header_timeout: Duration::from_secs(server.header_timeout_secs),
        body_timeout: Duration::from_secs(server.body_timeout_secs),
        write_timeout: Duration::from_secs(server.write_timeout_secs),
        import_unread_timeout: Duration::from_secs(server.import_unread_timeout_secs),
        request_timeout: Duration::from_secs(server.request_timeout_secs),
        header_bytes_max: server.max_header_bytes,
        connections_per_address_max: FileBudget::connections_per_address(
            connections_max,
            server.max_connections,
            server.max_connections_per_address,
        ),
        waits_max: server.max_waits,
        waits_per_address_max: server.max_waits_per_address,
        inflight_bytes_max: server.max_inflight_bytes,
        answer_bytes_max: server.max_answer_bytes,
        connection_bytes_max: server.max_connection_bytes,
        address_share_percent: server.address_share_percent,
        drain_timeout: Duration::from_secs(server.drain_timeout_secs),
        batch_bytes_max: config.batch.max_payload_bytes,
        limit_default: config.consumer.default_limit,
        wait_default: Duration::from_secs(config.polling.default_timeout_secs),
        allowed_hosts: server.allowed_hosts.clone(),
        allowed_origins: server.cors.allowed_origins.clone(),
        compression: server.compression,
        tls: None,
    }
}
