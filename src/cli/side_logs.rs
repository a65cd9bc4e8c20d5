//! Side logs in a copy of a data folder: does each of them know the topics that the default log places there?
//!
//! - The logs of a running broker are copied one after the other. A topic that was deleted in between is in the copy of the
//!   default log and not in the copy of its own log; no broker opens such a folder, since a disk may be missing.

use super::data_folders::{self, StagedFolder};
use super::error::{CliError, CliResult};
use contract::TopicId;
use contract::limits::{CHECKPOINT_ROWS_DEFAULT, CLOCK_JUMP_SECONDS_DEFAULT, KEY_HOURS_MAX};
use event_broker::ledger::{Ledger, LogLocation};
use event_broker::{LogClock, STATE_FOLDER, SystemClock, TrustedClock, open_folder};
use log::file::{FileLogOptions, LOG_FOLDER, SIDE_LOGS_FOLDER};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Opens the log of a folder and folds all of it.
pub(super) async fn open_ledger(folder: &Path) -> CliResult<Ledger> {
    let failed = |error: log::LogError| CliError::caused_by(folder.display(), error);
    let log = open_folder(folder, FileLogOptions::default().segment_bytes).map_err(failed)?;
    let state = Some(folder.join(STATE_FOLDER));
    // How long keys are remembered is the broker's setting; nothing is forgotten here.
    let key_millis = i64::from(KEY_HOURS_MAX) * 3_600_000;
    let clock = TrustedClock::new(Arc::new(SystemClock), Duration::from_secs(CLOCK_JUMP_SECONDS_DEFAULT));
    let clock = LogClock::new(Arc::new(clock));
    Ledger::open(Arc::new(log), clock, state, CHECKPOINT_ROWS_DEFAULT, key_millis, Arc::default()).await.map_err(failed)
}

/// Topics that the default log of a data folder places in a log of the folder that does not know them.
pub(super) async fn unknown_topics(data: &Path) -> CliResult<Vec<TopicId>> {
    let mut placed: BTreeMap<PathBuf, Vec<TopicId>> = BTreeMap::new();
    let default = open_ledger(data).await?;
    for known in default.registry().placed_topics() {
        // A log that has not numbered the topic yet, or deletes it, need not know it.
        let must_know = known.placed.numbered && !known.placed.deleting;
        if let LogLocation::DataFolder(name) = &known.placed.location
            && must_know
        {
            let folder = data.join(SIDE_LOGS_FOLDER).join(name);
            placed.entry(folder).or_default().push(known.placed.topic.definition.id.clone());
        }
    }
    default.close().await;
    let mut unknown = Vec::new();
    for (folder, topics) in placed {
        if !folder.join(LOG_FOLDER).is_dir() {
            unknown.extend(topics);
            continue;
        }
        let side = open_ledger(&folder).await?;
        let registry = side.registry();
        unknown.extend(topics.into_iter().filter(|id| registry.topic(id).is_none()));
        side.close().await;
    }
    Ok(unknown)
}

/// The same for a copy that must stay as it is: opening a log may merge, rewrite and add files, so a second copy is opened.
pub(super) async fn unknown_topics_of_copy(copy: &Path) -> CliResult<Vec<TopicId>> {
    let folders = data_folders::log_folders(copy).map_err(|cause| CliError::caused_by(copy.display(), cause))?;
    if folders.iter().all(|folder| folder == copy) {
        return Ok(Vec::new());
    }
    // Removed when it is dropped.
    let scratch = StagedFolder::begin(&copy.with_extension("check"))?;
    data_folders::copy_logs(copy, scratch.path())?;
    unknown_topics(scratch.path()).await
}

/// The topics as a list for people.
pub(super) fn names(topics: &[TopicId]) -> String {
    topics.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
