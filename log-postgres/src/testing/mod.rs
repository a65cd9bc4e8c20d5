//! A temporary PostgreSQL server for a test, from the installed programs.
//!
//! - It has its own folder, port and processes. Debian's cluster is neither needed nor changed.
//! - It does not run as root: if the test does, the server runs as `postgres` or `nobody`.
//! - It ends with the test process, however that ends. A watchdog shell reads from a pipe that only the test process holds; when
//!   the pipe closes, it stops the server and removes its folder.
//! - It can have streaming standbys (`standby`), each a server of the same kind.
//! - Everything here fails by panicking, with the call and its result.
//!
//! ```text
//!  test process ──pipe──▶ sh ──▶ postgres          stop(), drop: a signal to postgres, and sh ends after it
//!               ◀─stderr─        (its own user)    killed: the pipe closes, sh sends the signal
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test support: a panic is how a test fails"
)]

mod programs;
mod standby;

use programs::PgPrograms;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Duration;
use tempfile::TempDir;

/// How often another port is tried if one is taken.
const PORTS_TRIED: usize = 20;
/// How long a server may take to come up or to go down.
const PATIENCE: Duration = Duration::from_secs(60);

/// The log line of a server that accepts connections, and that of a standby.
const READY: [&str; 2] =
    ["database system is ready to accept connections", "database system is ready to accept read-only connections"];

/// Runs the server as its child, and stops it when the pipe on standard input closes. Arguments: the folder to remove
/// then, and the server's command line.
const WATCHDOG: &str = r#"
folder=$1; shift
exec 3<&0
"$@" </dev/null 3<&- & server=$!
{ read -r line <&3; kill -QUIT "$server"; } 2>/dev/null & watcher=$!
exec 3<&-
wait "$server"
if kill "$watcher" 2>/dev/null; then exit 0; fi
rm -rf -- "$folder"
"#;

/// The options of a server.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// Whether it syncs to disk. Only a test that crashes the machine needs that.
    pub fsync: bool,
    /// A disk of this many bytes that only the server can use, at [`TestServer::small_disk`].
    pub small_disk: Option<u64>,
    /// Where its folder is created; default: the system's temporary folder. The server's user must have access.
    pub place: Option<PathBuf>,
    /// Further settings, as in `postgresql.conf`.
    pub settings: Vec<(String, String)>,
}

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownMode {
    /// Connections are closed, and everything is written to disk.
    Fast,
    /// Processes end at once, as in a crash; the next start recovers.
    Immediate,
}

/// A PostgreSQL server that only this test program uses.
pub struct TestServer {
    programs: PgPrograms,
    folder: TempDir,
    port: u16,
    options: ServerOptions,
    /// The watchdog, while the server runs.
    running: Mutex<Option<Child>>,
    databases: AtomicU64,
}

impl TestServer {
    /// Starts a server without syncs.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(ServerOptions::default())
    }

    /// Starts a server.
    #[must_use]
    pub fn start_with(options: ServerOptions) -> Self {
        let programs = PgPrograms::find();
        let folder = programs.folder(options.place.as_deref());
        programs.initialise(&folder.path().join("data"));
        Self::launch_in(programs, folder, options)
    }

    /// Starts a server on the data in `folder`, on a port of its own.
    fn launch_in(programs: PgPrograms, folder: TempDir, options: ServerOptions) -> Self {
        let mut server =
            Self { programs, folder, port: 0, options, running: Mutex::new(None), databases: AtomicU64::new(0) };
        let mut refused = String::new();
        for _ in 0..PORTS_TRIED {
            server.port = free_port();
            match server.launch() {
                Ok(()) => return server,
                Err(text) => refused = text,
            }
        }
        panic!("PostgreSQL does not start:\n{refused}");
    }

    /// The server that all tests of a program share. It ends with the program.
    #[must_use]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<TestServer> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// The URL of `database` for the superuser.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.url_as("postgres", database)
    }

    /// The URL of `database` for `role`; no password is needed.
    #[must_use]
    pub fn url_as(&self, role: &str, database: &str) -> String {
        format!("postgres://{role}@127.0.0.1:{}/{database}", self.port)
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Creates an empty database with a unique name; returns its URL.
    #[must_use]
    pub fn create_database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed) + 1);
        self.sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE template0"));
        self.url(&name)
    }

    /// The output of `psql` for `text`, as the superuser in `database` (a name or a URL): rows as lines, columns separated by
    /// `|`. Fails if PostgreSQL refuses.
    pub fn sql(&self, database: &str, text: &str) -> String {
        self.psql(database, text).unwrap_or_else(|refusal| panic!("{text}\n{refusal}"))
    }

    /// The output of `psql`, or its error output if PostgreSQL refuses.
    pub fn psql(&self, database: &str, text: &str) -> Result<String, String> {
        let url = if database.contains("://") { database.to_owned() } else { self.url(database) };
        let mut psql = self.programs.client("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &url, "-c", text]);
        let output = psql.stdin(Stdio::null()).output().expect("psql runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Runs a file of statements with `psql`; fails if PostgreSQL refuses.
    pub fn run_file(&self, database: &str, file: &Path, variables: &[(&str, &str)]) {
        let url = if database.contains("://") { database.to_owned() } else { self.url(database) };
        let mut psql = self.programs.client("psql");
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &url]);
        for (name, value) in variables {
            psql.args(["-v", &format!("{name}={value}")]);
        }
        let output = psql.arg("-f").arg(file).stdin(Stdio::null()).output().expect("psql runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Terminates all client connections to all databases.
    pub fn kill_connections(&self) {
        self.cut("true");
    }

    /// Terminates all connections to one database (a name or a URL).
    pub fn kill_connections_to(&self, database: &str) {
        let name = database.rsplit('/').next().unwrap_or(database);
        self.cut(&format!("datname = '{name}'"));
    }

    fn cut(&self, which: &str) {
        let ours = "pid <> pg_backend_pid() AND backend_type = 'client backend'";
        self.sql(
            "postgres",
            &format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {ours} AND {which}"),
        );
    }

    /// Stops the server and waits until it has ended. A stopped server stays stopped.
    pub fn stop(&self, how: ShutdownMode) {
        if let Some(watchdog) = self.running().take() {
            self.end(watchdog, how);
        }
    }

    /// Starts the server again after [`TestServer::stop`], on the same port and data.
    pub fn start_again(&self) {
        let mut refused = String::new();
        for _ in 0..PORTS_TRIED {
            match self.launch() {
                Ok(()) => return,
                Err(text) => refused = text,
            }
        }
        panic!("PostgreSQL does not start again:\n{refused}");
    }

    /// Stops every process of the server with SIGSTOP, until [`TestServer::resume`].
    pub fn pause(&self) {
        let postmaster = self.postmaster();
        send("STOP", &[&postmaster]);
        // After that it creates no more processes, so those that exist can be listed.
        while state(&postmaster).is_some_and(|state| state != 'T') {
            std::thread::yield_now();
        }
        send("STOP", &children(&postmaster));
        assert_eq!(state(&postmaster), Some('T'), "the server is not stopped");
    }

    /// Ends [`TestServer::pause`].
    pub fn resume(&self) {
        continue_processes(&self.postmaster());
    }

    /// Stops one session's process with SIGSTOP, until [`TestServer::wake_backend`]. Statements sent to it wait, even after its
    /// client is gone.
    pub fn stop_backend(&self, pid: &str) {
        send("STOP", &[pid]);
        while state(pid).is_some_and(|state| state != 'T') {
            std::thread::yield_now();
        }
    }

    /// Ends [`TestServer::stop_backend`], and waits until the process has ended, as it does after its client is gone.
    pub fn wake_backend(&self, pid: &str) {
        send("CONT", &[pid]);
        while state(pid).is_some() {
            std::thread::yield_now();
        }
    }

    /// Whether this machine permits a small disk; a container may not.
    #[must_use]
    pub fn can_have_small_disk() -> bool {
        let programs = PgPrograms::find();
        let folder = programs.folder(None);
        let mut nothing = programs.as_user_with_disk(1 << 20, &folder.path().join("small"), "true");
        nothing.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// The path of the small disk, for a tablespace.
    #[must_use]
    pub fn small_disk(&self) -> PathBuf {
        self.folder.path().join("small")
    }

    /// The server's folder. It belongs to the user that the server runs as.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn running(&self) -> MutexGuard<'_, Option<Child>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn postmaster(&self) -> String {
        let file = std::fs::read_to_string(self.data().join("postmaster.pid")).expect("the server runs");
        file.lines().next().expect("a process id").to_owned()
    }

    fn end(&self, mut watchdog: Child, how: ShutdownMode) {
        let postmaster = self.postmaster();
        send(if how == ShutdownMode::Fast { "INT" } else { "QUIT" }, &[&postmaster]);
        // A stopped process does not end.
        continue_processes(&postmaster);
        // Waiting would close the pipe, and the watchdog would remove the folder.
        let pipe = watchdog.stdin.take();
        watchdog.wait().expect("the watchdog can be waited for");
        drop(pipe);
    }

    fn settings(&self) -> Vec<String> {
        let switch = if self.options.fsync { "on" } else { "off" };
        let sockets = self.folder.path().display().to_string();
        let mut settings: Vec<(String, String)> = [
            ("listen_addresses", "127.0.0.1"),
            ("port", &self.port.to_string()),
            ("unix_socket_directories", &sockets),
            ("fsync", switch),
            ("full_page_writes", switch),
            ("max_connections", "300"),
            // A standby that was stopped for a while still finds the WAL that it missed.
            ("wal_keep_size", "128MB"),
            ("logging_collector", "off"),
            ("log_destination", "stderr"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
        settings.extend(self.options.settings.iter().cloned());
        settings.into_iter().flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")]).collect()
    }

    /// Starts the server and waits until it accepts connections; the error is its output.
    fn launch(&self) -> Result<(), String> {
        let mut command = match self.options.small_disk {
            Some(bytes) => self.programs.as_user_with_disk(bytes, &self.small_disk(), "sh"),
            None => self.programs.as_user("sh"),
        };
        command.args(["-c", WATCHDOG, "watchdog"]).arg(self.folder.path());
        command.arg(self.programs.path("postgres")).arg("-D").arg(self.data()).args(self.settings());
        command.env("LC_ALL", "C").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // A group of its own, so that an interrupt from the keyboard does not reach the watchdog.
        command.process_group(0).current_dir(self.folder.path());
        let mut watchdog = command.spawn().expect("a shell runs");
        let said = listen(watchdog.stderr.take().expect("standard error is piped"));
        match said.recv_timeout(PATIENCE) {
            Ok(Ok(())) => {
                *self.running() = Some(watchdog);
                Ok(())
            }
            Ok(Err(refused)) => {
                let pipe = watchdog.stdin.take();
                let _ = watchdog.wait();
                drop(pipe);
                Err(refused)
            }
            Err(timeout) => panic!("PostgreSQL logs nothing: {timeout}"),
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop(ShutdownMode::Immediate);
    }
}

/// Reads the server's log to its end. Sends one message: that the server is ready, or its output if it ended before.
fn listen(stderr: impl std::io::Read + Send + 'static) -> mpsc::Receiver<Result<(), String>> {
    let (sender, outcome) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let mut ready = false;
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if !ready && READY.iter().any(|text| line.contains(text)) {
                ready = true;
                let _ = sender.send(Ok(()));
            }
            if !ready {
                text.push_str(&line);
                text.push('\n');
            }
        }
        if !ready {
            let _ = sender.send(Err(text));
        }
    });
    outcome
}

/// Sends a signal to processes, some of which may be gone already.
fn send(signal: &str, pids: &[impl AsRef<std::ffi::OsStr>]) {
    let _ = Command::new("kill").arg(format!("-{signal}")).args(pids).stderr(Stdio::null()).status();
}

fn continue_processes(postmaster: &str) {
    send("CONT", &children(postmaster));
    send("CONT", &[postmaster]);
}

/// The child processes of a process; none if it has ended.
fn children(pid: &str) -> Vec<String> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().map(str::to_owned).collect()
}

/// The state letter of a process; `T` if it is stopped, `None` if it has ended.
fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it has an address").port()
}
