//! A broker to be measured, with the log under it and the counters under that.

use crate::counting::{Counters, CountingDisk, Counts};
use crate::raw::Pace;
use crate::{Outcome, events};
use event_broker::{Broker, Config, SystemClock};
use log::file::{FileLog, FileLogOptions};
use log::{Log, MemoryLog};
use std::path::Path;
use std::sync::Arc;

/// An open broker.
pub(crate) struct Store {
    pub(crate) broker: Arc<Broker>,
    pub(crate) log: Arc<dyn Log>,
    /// Absent where there is no disk.
    counters: Option<Arc<Counters>>,
}

impl Store {
    /// A broker without a disk.
    pub(crate) async fn memory() -> Outcome<Self> {
        let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
        let broker = Broker::on_log(Config::default(), Arc::clone(&log), None, Arc::new(SystemClock)).await?;
        Self::ready(broker, log, None).await
    }

    /// What `Broker::open` does with a folder, with counters at the disk.
    pub(crate) async fn files(folder: &Path) -> Outcome<Self> {
        Self::files_at(folder, Pace::default()).await
    }

    /// The same on a disk that is no faster than this.
    pub(crate) async fn files_at(folder: &Path, pace: Pace) -> Outcome<Self> {
        let disk = CountingDisk::open_at(&folder.join("log"), pace)?;
        let counters = disk.counters();
        let log: Arc<dyn Log> = Arc::new(FileLog::open(Arc::new(disk), FileLogOptions::default())?);
        let (config, state) = (Config::folder(folder), folder.join("state"));
        let broker = Broker::on_log(config, Arc::clone(&log), Some(state), Arc::new(SystemClock)).await?;
        Self::ready(broker, log, Some(counters)).await
    }

    /// What went to the disk so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counters.as_ref().map(|counters| counters.total()).unwrap_or_default()
    }

    pub(crate) async fn close(self) {
        self.broker.close().await;
    }

    async fn ready(broker: Broker, log: Arc<dyn Log>, counters: Option<Arc<Counters>>) -> Outcome<Self> {
        events::register(&broker).await?;
        Ok(Self { broker: Arc::new(broker), log, counters })
    }
}
