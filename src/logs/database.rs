//! Opens a log in a database, and this process's own tables of it.

use super::data_folder::warn_of_readers;
use crate::config::{DatabaseUrl, StorageConfig};
use log::LogError;
use log::file::FolderLock;
use log_postgres::{PostgresLog, PostgresOptions};
use std::path::{Path, PathBuf};

/// The most processes that have tables of the same log below the same folder.
const TABLES_FOLDERS_MAX: u32 = 64;

/// The folder with this process's tables of a shared log. It is locked while it is used.
pub(crate) struct TablesFolder {
    path: PathBuf,
    _lock: FolderLock,
}

impl TablesFolder {
    /// Locks the first folder that no other process has locked.
    fn take(below: &Path, log: &str) -> Result<Self, LogError> {
        for number in 1..=TABLES_FOLDERS_MAX {
            let path = below.join(format!("tables-{log}-{number}"));
            match FolderLock::acquire(&path) {
                Ok(lock) => return Ok(Self { path, _lock: lock }),
                Err(LogError::Locked(_)) => (),
                Err(error) => return Err(error),
            }
        }
        Err(LogError::Locked(below.to_owned()))
    }

    /// The path of the tables.
    pub(crate) fn state(&self) -> PathBuf {
        self.path.join("state")
    }
}

/// Opens the database that `storage` names, and locks a folder for the tables below `storage.path`; if that is empty,
/// they stay in memory.
pub(crate) async fn open_database(storage: &StorageConfig) -> Result<(PostgresLog, Option<TablesFolder>), LogError> {
    let StorageConfig { url, owner_url, maintenance_url, path, require_tls, .. } = storage;
    let text = |url: &Option<DatabaseUrl>| url.as_ref().map(|url| url.0.clone());
    let (owner_url, maintenance_url) = (text(owner_url), text(maintenance_url));
    let options =
        PostgresOptions { owner_url, maintenance_url, require_tls: *require_tls, ..PostgresOptions::default() };
    let log = PostgresLog::open(&text(url).unwrap_or_default(), options).await?;
    log.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    let tables = match path.as_os_str().is_empty() {
        true => None,
        false => {
            warn_of_readers(path);
            Some(TablesFolder::take(path, log.identity())?)
        }
    };
    Ok((log, tables))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn every_process_has_tables_of_its_own_and_finds_free_ones_again() {
        let folder = TempDir::new().unwrap();
        let first = TablesFolder::take(folder.path(), "a1").unwrap();
        let second = TablesFolder::take(folder.path(), "a1").unwrap();
        assert_ne!(first.state(), second.state());
        let freed = first.state();
        drop(first);
        assert_eq!(TablesFolder::take(folder.path(), "a1").unwrap().state(), freed);
        assert_ne!(TablesFolder::take(folder.path(), "b2").unwrap().state(), freed);
    }
}
