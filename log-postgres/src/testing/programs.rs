//! PostgreSQL's programs: their folder, and the user that runs them.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The programs, and the user they run as.
pub(super) struct PgPrograms {
    /// Empty if they are on the search path.
    folder: PathBuf,
    /// Absent if the test's own user is not root.
    user: Option<SystemUser>,
}

struct SystemUser {
    name: &'static str,
    uid: u32,
    gid: u32,
}

impl PgPrograms {
    /// Searches for them where Debian installs them, then on the search path.
    pub(super) fn find() -> Self {
        let user = if is_root() { Some(SystemUser::find()) } else { None };
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let mut folders: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
        folders.retain(|folder| folder.join("initdb").exists() && folder.join("postgres").exists());
        // The newest of those whose names are numbers.
        folders.sort_by_key(|folder| {
            let version = folder.parent().and_then(|version| version.file_name()?.to_str()?.parse().ok());
            version.unwrap_or(0_u32)
        });
        let folder = folders.pop().unwrap_or_default();
        let programs = Self { folder, user };
        let found = programs.client("initdb").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(
            found.is_ok_and(|status| status.success()),
            "PostgreSQL's server programs (initdb, postgres) are neither under /usr/lib/postgresql nor on the search \
             path. Install them with scripts/install-test-servers."
        );
        programs
    }

    pub(super) fn path(&self, program: &str) -> PathBuf {
        self.folder.join(program)
    }

    /// A program that runs as the test's own user.
    pub(super) fn client(&self, program: &str) -> Command {
        Command::new(self.path(program))
    }

    /// A program that runs as the server's user.
    pub(super) fn as_user(&self, program: impl AsRef<Path>) -> Command {
        let Some(user) = &self.user else { return Command::new(program.as_ref()) };
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user.name, "--regid", &user.gid.to_string(), "--clear-groups", "--"]);
        command.arg(program.as_ref());
        command
    }

    /// The same, with a disk of `bytes` at `place` that only it and its children can use, and that is gone after them.
    pub(super) fn as_user_with_disk(&self, bytes: u64, place: &Path, program: &str) -> Command {
        std::fs::create_dir_all(place).expect("a folder for the small disk");
        let mut command = Command::new("unshare");
        let mount = "mount -t tmpfs -o \"$1,mode=0700\" tmpfs \"$2\" && shift 2 && exec \"$@\"";
        match &self.user {
            Some(user) => {
                let size_and_owner = format!("size={bytes},uid={},gid={}", user.uid, user.gid);
                command.args(["--mount", "sh", "-c", mount, "mount", &size_and_owner]).arg(place);
                command.args(["setpriv", "--reuid", user.name, "--regid", &user.gid.to_string(), "--clear-groups"]);
            }
            // A user other than root may mount in a user namespace, and gets its own id back in a second one.
            None => {
                let own = std::fs::metadata("/proc/self").expect("this process");
                command.args(["--map-root-user", "--mount", "sh", "-c", mount, "mount", &format!("size={bytes}")]);
                command.arg(place);
                command.args(["unshare", "--user"]).arg(format!("--map-user={}", own.uid()));
                command.arg(format!("--map-group={}", own.gid()));
            }
        }
        command.arg(program);
        command
    }

    /// An empty folder of the server's user, below `place`.
    pub(super) fn folder(&self, place: Option<&Path>) -> TempDir {
        let mut named = tempfile::Builder::new();
        named.prefix("event-broker-postgres-");
        let folder = place.map_or_else(|| named.tempdir(), |place| named.tempdir_in(place));
        let folder = folder.expect("a temporary folder");
        self.hand_over(folder.path());
        folder
    }

    /// Makes the server's user the owner of a file or folder.
    pub(super) fn hand_over(&self, path: &Path) {
        if let Some(user) = &self.user {
            chown(path, Some(user.uid), Some(user.gid)).expect("it can change hands");
        }
    }

    pub(super) fn initialise(&self, data: &Path) {
        let mut initdb = self.as_user(self.path("initdb"));
        initdb.args(["--locale=C", "--encoding=UTF8", "--auth=trust", "--username=postgres", "--no-sync", "-D"]);
        let parent = data.parent().expect("the data folder lies in the server's");
        let output = initdb.arg(data).current_dir(parent).stdin(Stdio::null()).output().expect("initdb runs");
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl SystemUser {
    /// `postgres` if Debian's package created it, otherwise `nobody`.
    fn find() -> Self {
        let accounts = std::fs::read_to_string("/etc/passwd").expect("the list of users");
        for name in ["postgres", "nobody"] {
            let mut named = accounts.lines().map(|line| line.split(':').collect::<Vec<_>>());
            if let Some(account) = named.find(|account| account[0] == name) {
                let number = |at: usize| account[at].parse().expect("a user's number");
                return Self { name, uid: number(2), gid: number(3) };
            }
        }
        panic!("PostgreSQL does not run as root, and there is neither a user `postgres` nor `nobody`");
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}
