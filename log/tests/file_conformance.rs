//! The file engine keeps the promises of every engine, whatever the size of its segments.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a panic is how a test fails, in its helpers too"
)]

use contract::BoxFuture;
use log::Log;
use log::file::{Disk, FileLog, FileLogOptions};
use log::testing::fault_disk::FaultDisk;
use log::testing::{Engine, in_time, model};
use std::sync::Arc;
use tempfile::TempDir;

/// A log in a temporary folder.
struct Folder {
    folder: TempDir,
    options: FileLogOptions,
}

/// A log on a disk in RAM, where a thousand syncs cost nothing.
struct Ram {
    disk: Arc<dyn Disk>,
    options: FileLogOptions,
}

fn options(segment_bytes: u64, tail_cache_bytes: usize) -> FileLogOptions {
    FileLogOptions { segment_bytes, tail_cache_bytes, ..FileLogOptions::default() }
}

fn folder(segment_bytes: u64, tail_cache_bytes: usize) -> Folder {
    Folder { folder: tempfile::tempdir().unwrap(), options: options(segment_bytes, tail_cache_bytes) }
}

fn ram(segment_bytes: u64, tail_cache_bytes: usize) -> Ram {
    Ram { disk: Arc::new(FaultDisk::new()), options: options(segment_bytes, tail_cache_bytes) }
}

impl Engine for Folder {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Log>> {
        Box::pin(async { whole(FileLog::open_folder(self.folder.path(), self.options.clone()).unwrap()) })
    }
}

impl Engine for Ram {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Log>> {
        Box::pin(async { whole(FileLog::open(Arc::clone(&self.disk), self.options.clone()).unwrap()) })
    }
}

fn whole(log: FileLog) -> Arc<dyn Log> {
    assert_eq!(log.cuts(), [], "nothing is torn by closing");
    Arc::new(log)
}

/// Everything in the growing segment and in the hot tail.
mod in_a_folder {
    log::conformance!(crate::folder(1 << 26, 1 << 23));
}

/// A segment for every record or two, everything read from disk.
mod with_tiny_segments {
    log::conformance!(crate::ram(512, 0));
}

/// The hot tail begins in the middle of a segment.
mod with_a_short_hot_tail {
    log::conformance!(crate::ram(4096, 2000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agrees_with_the_model() {
    for (number, (segment_bytes, tail_cache_bytes)) in
        (1..).zip([(512, 0), (4096, 2000), (65_536, 1 << 20), (1 << 26, 0)])
    {
        for seed in number * 100..number * 100 + 8 {
            let engine = ram(segment_bytes, tail_cache_bytes);
            in_time(model::agree(&engine, seed, 300)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agrees_with_the_model_in_a_folder_of_tiny_segments() {
    let engine = folder(512, 2000);
    in_time(model::agree(&engine, 1, 200)).await;
}
