//! Creates the parts of a broker from the configuration.

use super::OpenError;
use crate::clock::Clock;
use crate::config::{Config, FileBudget, StorageConfig, StorageEngine};
use crate::delivery::{DeliveryPolicy, WebhookDeliverer, roots};
use crate::dispatch::DispatchContext;
use crate::events::{CopyLock, PublishRules};
use crate::ledger::IncidentReporter;
use crate::logs::{FolderSettings, LogRoots, LogSettings, Logs};
use crate::secrets::SecretGuard;
use crate::subscriptions::SecretVault;
use crate::types::SchemaCompiler;
use contract::Result;
use log::file::OpenFiles;
use std::sync::Arc;
use std::time::Duration;

/// The rules for events. Callers cannot authenticate yet.
pub(super) fn publish_rules(config: Config) -> PublishRules {
    let requires_authentication = false;
    PublishRules {
        config,
        schemas: SchemaCompiler::default(),
        import_copies: CopyLock::default(),
        secrets: SecretGuard::new(requires_authentication),
    }
}

/// Creates what delivers events.
pub(super) fn dispatching(
    config: &Config,
    logs: &Logs,
    clock: &Arc<dyn Clock>,
    vault: &Arc<SecretVault>,
) -> Result<DispatchContext, OpenError> {
    let allow_private_targets = config.dispatch.allow_private_targets;
    let extra_roots = match &config.dispatch.ca_file {
        Some(path) => roots(path).map_err(|error| OpenError::declared("dispatch.ca_file".to_owned(), error))?,
        None => Vec::new(),
    };
    let sockets_max = FileBudget::of_process().deliveries;
    let policy = DeliveryPolicy::default();
    let connections_max = policy.connections_max.min(sockets_max / 2);
    let deliverer = WebhookDeliverer::new(DeliveryPolicy {
        allow_private_targets,
        allowed_hosts: config.dispatch.allowed_hosts.clone(),
        extra_roots,
        connections_max,
        sockets_max,
        ..policy
    });
    let (clock, vault) = (Arc::clone(clock), Arc::clone(vault));
    Ok(DispatchContext::new(Arc::new(deliverer), clock, vault, config.dispatch.clone(), logs.default_ledger()))
}

/// How far the clock may jump ahead at once.
pub(super) const fn max_clock_jump(config: &Config) -> Duration {
    Duration::from_secs(config.maintenance.max_clock_jump_secs)
}

/// Limits the open files of all logs to their share of the process's limit.
pub(super) fn open_files() -> Arc<OpenFiles> {
    OpenFiles::new(FileBudget::of_process().log_files)
}

/// The settings of logs in folders.
pub(super) fn folder_settings(config: &Config, open_files: Arc<OpenFiles>) -> FolderSettings {
    FolderSettings {
        segment_bytes: config.storage.segment_bytes,
        open_files,
        space_limits: config.storage.space_limits(),
        erase_within: Some(Duration::from_secs(config.maintenance.erase_within_secs)),
    }
}

/// The settings of all logs of a broker.
pub(super) fn log_settings(
    config: &Config,
    incidents: Arc<IncidentReporter>,
    open_files: Arc<OpenFiles>,
) -> LogSettings {
    let StorageConfig { engine, path, locations, side_logs, .. } = &config.storage;
    let default_log = (*engine == StorageEngine::File).then(|| path.clone());
    // A broker in memory has a folder for its topics' files too, if it was given one.
    let data = (!path.as_os_str().is_empty()).then(|| path.clone());
    let roots = LogRoots { default_log, data, locations: locations.clone() };
    let checkpoint_rows = config.maintenance.checkpoint_rows;
    let answers_millis = config.idempotency.key_retention_millis();
    LogSettings {
        default_type: engine.name(),
        roots,
        side_logs: *side_logs,
        side_folders_max: FileBudget::of_process().side_logs_max(),
        folders: folder_settings(config, open_files),
        checkpoint_rows,
        answers_millis,
        incidents,
    }
}
