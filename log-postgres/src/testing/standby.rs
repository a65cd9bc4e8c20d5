//! Streaming standbys of a test server, fail-over to them, and a restored older copy of a server.
//!
//! ```text
//!  primary ──WAL──▶ standby        require_standbys("one"): commits of the primary wait for the standby "one"
//!     │                │           stop(Immediate), pause(): it is gone, or hangs; commits wait
//!     └─ stopped       └─ promote() ──▶ an independent server, with what it had received
//! ```
//!
//! Every call blocks until it is done; an async test uses `spawn_blocking` or `block_in_place`.

use super::{ShutdownMode, TestServer};
use std::path::Path;
use std::process::Stdio;

/// How often a query is repeated before the test fails; each takes a process and a connection of its own.
const QUESTIONS_MAX: usize = 5000;

impl TestServer {
    /// Starts a standby that streams from this server under `name`, and waits until it streams. It is asynchronous until
    /// [`TestServer::require_standbys`] names it. Its databases have the same names: [`TestServer::url`].
    #[must_use]
    pub fn start_standby(&self, name: &str) -> Self {
        let folder = self.programs.folder(self.options.place.as_deref());
        let data = folder.path().join("data");
        self.base_backup(&data);
        let settings = data.join("postgresql.auto.conf");
        let text = std::fs::read_to_string(&settings).expect("the settings of a base backup");
        // After a promotion the copy must not wait for standbys of its own.
        let kept: String = text.lines().filter(|line| !line.starts_with("synchronous_standby_names")).fold(
            String::new(),
            |mut kept, line| {
                kept.push_str(line);
                kept.push('\n');
                kept
            },
        );
        let source = format!("host=127.0.0.1 port={} user=postgres application_name={name}", self.port);
        std::fs::write(&settings, format!("{kept}primary_conninfo = '{source}'\n")).expect("its settings are written");
        std::fs::write(data.join("standby.signal"), "").expect("the file that makes it a standby");
        self.programs.hand_over(&data.join("standby.signal"));
        let standby = Self::launch_in(super::PgPrograms::find(), folder, self.options.clone());
        self.wait_for_standby(name);
        standby
    }

    /// Sets `synchronous_standby_names` (`one`, `ANY 1 (one, two)`, empty for none). Every commit that begins after this returns
    /// waits for these standbys.
    pub fn require_standbys(&self, names: &str) {
        self.set_system("synchronous_standby_names", names);
        // The checkpointer informs the sessions; it reads its settings before it begins a requested checkpoint. One that was
        // about to begin may not have seen them yet.
        self.sql("postgres", "CHECKPOINT");
        self.sql("postgres", "CHECKPOINT");
    }

    /// Changes a setting for the whole server (`ALTER SYSTEM`), and waits until new sessions have it.
    pub fn set_system(&self, setting: &str, value: &str) {
        self.sql("postgres", &format!("ALTER SYSTEM SET {setting} = '{value}'"));
        self.sql("postgres", "SELECT pg_reload_conf()");
        self.wait_until(&format!("SELECT current_setting('{setting}') = '{value}'"));
    }

    /// Waits until the standby `name` streams.
    pub fn wait_for_standby(&self, name: &str) {
        let streams = "state = 'streaming'";
        self.wait_until(&format!(
            "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = '{name}' AND {streams})"
        ));
    }

    /// Waits until this standby has replayed everything that `primary` has written so far.
    pub fn wait_for_all_of(&self, primary: &Self) {
        let written = primary.sql("postgres", "SELECT pg_current_wal_flush_lsn()");
        self.wait_until(&format!("SELECT pg_last_wal_replay_lsn() >= '{written}'"));
    }

    /// Promotes this standby, with what it has received, and waits until it accepts writes.
    pub fn promote(&self) {
        let promoted = self.sql("postgres", "SELECT pg_promote(true, 60)");
        assert_eq!(promoted, "t", "the standby was not promoted");
        self.wait_until("SELECT NOT pg_is_in_recovery()");
    }

    /// Copies the data folder as it is now, for [`TestServer::restore_copy`].
    pub fn keep_copy(&self) {
        self.base_backup(&self.folder().join("copy"));
    }

    /// Restores the last copy, on the same port: what was written since is gone.
    pub fn restore_copy(&self) {
        self.stop(ShutdownMode::Immediate);
        let (copy, data) = (self.folder().join("copy"), self.data());
        std::fs::remove_dir_all(&data).expect("the data folder can be removed");
        std::fs::rename(copy, data).expect("the copy takes its place");
        self.start_again();
    }

    /// Waits until a query, each time in a new session of the superuser, returns true.
    pub fn wait_until(&self, question: &str) {
        let mut answer = Ok(String::new());
        for _ in 0..QUESTIONS_MAX {
            answer = self.psql("postgres", question);
            if answer.as_deref() == Ok("t") {
                return;
            }
        }
        panic!("{question}\n{answer:?}");
    }

    fn base_backup(&self, data: &Path) {
        let mut backup = self.programs.as_user(self.programs.path("pg_basebackup"));
        backup.args(["--checkpoint=fast", "--no-sync", "--wal-method=stream", "-D"]).arg(data);
        backup.args(["-d", &self.url("postgres")]).current_dir("/");
        let output = backup.stdin(Stdio::null()).output().expect("pg_basebackup runs");
        assert!(output.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&output.stderr));
    }
}
