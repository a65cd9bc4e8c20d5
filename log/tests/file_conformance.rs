//! The file engine keeps the promises of every engine, whatever the size of its segments.

use contract::BoxFuture;
use log::Log;
use log::file::{FileLog, Options};
use log::testing::{Engine, in_time, model};
use std::sync::Arc;
use tempfile::TempDir;

/// A log in a temporary folder.
struct Folder {
    folder: TempDir,
    options: Options,
}

impl Folder {
    fn new(segment_bytes: u64, tail_cache_bytes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, options: Options { segment_bytes, tail_cache_bytes, repair: false } }
    }
}

impl Engine for Folder {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Log>> {
        Box::pin(async {
            let log = FileLog::open_folder(self.folder.path(), self.options.clone()).unwrap();
            assert_eq!(log.cuts(), [], "nothing is torn by closing");
            Arc::new(log) as Arc<dyn Log>
        })
    }
}

/// Everything in the growing segment and in the hot tail.
mod with_one_segment {
    use super::*;
    log::conformance!(Folder::new(1 << 26, 1 << 23));
}

/// A segment for every record or two, everything read from disk.
mod with_tiny_segments {
    use super::*;
    log::conformance!(Folder::new(512, 0));
}

/// The hot tail begins in the middle of a segment.
mod with_a_short_hot_tail {
    use super::*;
    log::conformance!(Folder::new(4096, 2000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agrees_with_the_model() {
    for (seed, (segment_bytes, tail_cache_bytes)) in
        (0..).zip([(512, 0), (4096, 2000), (65_536, 1 << 20), (1 << 26, 0)])
    {
        for seed in seed * 100..seed * 100 + 6 {
            in_time(model::agree(&Folder::new(segment_bytes, tail_cache_bytes), seed, 300)).await;
        }
    }
}
