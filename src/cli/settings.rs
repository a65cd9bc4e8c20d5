//! The settings of several subcommands: a file, the environment, and flags, which override both.

use event_broker::config::{self, ConfigError, FlagSetting, LoadedConfig};
use std::path::PathBuf;

/// The sources of the configuration. Flags override the environment, and the environment overrides the file.
#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct SettingsArgs {
    /// The YAML file with the configuration, below `modules.event_broker`. No file is read by default.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The address on which the server listens (`server.listen`); port 0 chooses a free port.
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Keep the log in this folder (`storage.path`, and `storage.type: file` unless `--storage` says otherwise).
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The engine of the log (`storage.type`): file, memory, or the URL of a database (`storage.url`), `postgres://…`.
    #[arg(long, value_name = "ENGINE")]
    storage: Option<String>,
    /// Listen beyond loopback without authentication (`server.insecure`).
    #[arg(long)]
    insecure: bool,
}

impl SettingsArgs {
    /// The configuration in force.
    pub(super) fn load(&self) -> Result<LoadedConfig, ConfigError> {
        // A variable that is not Unicode is refused when its value is parsed, not by a panic here.
        let environment = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
        config::load(self.config.as_deref(), environment, self.flags())
    }

    fn flags(&self) -> Vec<FlagSetting> {
        let mut flags = Vec::new();
        let mut set = |flag, key, value: String| flags.push(FlagSetting { flag, key, value });
        if let Some(listen) = &self.listen {
            set("--listen", "server.listen", listen.clone());
        }
        if let Some(data) = &self.data {
            set("--data", "storage.path", data.to_string_lossy().into_owned());
            set("--data", "storage.type", "file".to_owned());
        }
        if let Some(storage) = &self.storage {
            let is_database = storage.starts_with("postgres://") || storage.starts_with("postgresql://");
            if is_database {
                set("--storage", "storage.url", storage.clone());
            }
            set("--storage", "storage.type", if is_database { "database".to_owned() } else { storage.clone() });
        }
        if self.insecure {
            set("--insecure", "server.insecure", "true".to_owned());
        }
        flags
    }
}
