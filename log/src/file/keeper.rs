//! The keeper: the background thread that writes indexes of sealed segments and gives space back.
//!
//! - Everything it does can be done again: a chore that fails is tried anew with the next one, and nothing depends on it.
//! - It alone replaces and drops sealed segments, one at a time.

use super::disk::discard;
use super::index::{Index, LiveIndex, PagedIndex, encode_index};
use super::retention::{Choice, choose};
use super::rewrite;
use super::segment::SegmentHead;
use super::state::{Sealed, Shared};
use super::{Disk, index::Miss};
use crate::crash_point;
use contract::Position;
use std::collections::HashSet;
use std::io;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, PoisonError};

/// What the keeper is asked to do.
pub(crate) enum Chore {
    /// Write missing indexes and give space back.
    Tidy,
    /// Look whether there is room again.
    FillReserve,
    /// Say when everything asked before is done.
    Settle(Sender<()>),
    /// Finish.
    Stop,
}

/// Does chores until told to stop.
pub(crate) fn run(shared: Arc<Shared>, chores: &Receiver<Chore>) {
    let mut keeper = Keeper { shared, damaged: HashSet::new() };
    while let Ok(chore) = chores.recv() {
        match chore {
            Chore::Tidy => keeper.tidy(),
            Chore::FillReserve => keeper.shared.reserve.fill(&*keeper.shared.disk),
            Chore::Settle(done) => {
                // Who asked may have left.
                let _ = done.send(());
            }
            Chore::Stop => break,
        }
    }
}

/// Writes the index of a sealed segment and opens it.
pub(crate) fn write_index(disk: &dyn Disk, head: &SegmentHead, live: &LiveIndex) -> Result<PagedIndex, Miss> {
    let Some(index) = encode_index(live, head) else { return Err(Miss::BadIndex) };
    let file = head.name.index_file();
    discard(disk, &file)?;
    crash_point("seal.before_index");
    disk.write(&file, index.head.len() as u64, &index.body)?;
    disk.sync(Some(&file))?;
    disk.write(&file, 0, &index.head)?;
    crash_point("seal.after_index_write");
    disk.sync(Some(&file))?;
    disk.sync(None)?;
    crash_point("seal.after_index_sync");
    PagedIndex::open(disk, head)
}

/// A chore that failed is tried again, and told meanwhile: a full disk is somebody's business.
fn told(outcome: Result<(), Miss>, what: &str, segment: &Sealed) {
    if let Err(Miss::Failed(error)) = outcome {
        tracing::warn!(segment = segment.name().base.get(), %error, "{what}; it is tried again");
    }
}

struct Keeper {
    shared: Arc<Shared>,
    /// Segments that cannot be rewritten because a record to keep is damaged.
    damaged: HashSet<Position>,
}

impl Keeper {
    fn tidy(&mut self) {
        let segments = self.shared.state().sealed.clone();
        for segment in &segments {
            // On failure the index stays in RAM, which serves as well; the next chore tries again.
            told(self.seal(segment), "the index of a segment was not written", segment);
        }
        self.reclaim();
        self.shared.reserve.fill(&*self.shared.disk);
    }

    fn seal(&self, segment: &Arc<Sealed>) -> Result<(), Miss> {
        let Index::Live(live) = &segment.index else { return Ok(()) };
        let disk = &*self.shared.disk;
        // Zeros that were written ahead of the next append are not needed any more.
        disk.truncate(&segment.name().file(), segment.summary.bytes)?;
        let paged = write_index(disk, &segment.head, live)?;
        let sealed = Sealed { head: segment.head, summary: segment.summary.clone(), index: Index::Paged(paged) };
        self.shared.state_mut().replace(segment, Arc::new(sealed));
        Ok(())
    }

    /// Carries out what retention chooses. A segment that fails stays as it is.
    fn reclaim(&mut self) {
        let (segments, marks) = {
            let state = self.shared.state();
            (state.sealed.clone(), Arc::clone(&state.marks))
        };
        for segment in &segments {
            let base = segment.name().base;
            match choose(&segment.summary, &marks) {
                Choice::Keep => {}
                Choice::Drop => {
                    told(self.drop_segment(segment).map_err(Miss::from), "a segment was not dropped", segment);
                }
                Choice::Rewrite if self.damaged.contains(&base) => {}
                Choice::Rewrite => match rewrite::rewrite(&self.shared, segment, &marks) {
                    Ok(Some(rewritten)) => {
                        told(self.seal(&rewritten), "the index of a segment was not written", &rewritten);
                    }
                    Ok(None) => {
                        tracing::error!(segment = base.get(), "a damaged record keeps a segment from being rewritten");
                        self.damaged.insert(base);
                    }
                    Err(Miss::BadIndex) => _ = self.shared.heal(segment),
                    missed => told(missed.map(drop), "a segment was not rewritten", segment),
                },
            }
        }
    }

    /// Notes durably that the segment is meant to be missing, then takes it away.
    fn drop_segment(&self, segment: &Sealed) -> io::Result<()> {
        let name = segment.name();
        {
            let mut file = self.shared.marks_file.lock().unwrap_or_else(PoisonError::into_inner);
            let marks = self.shared.state().marks.with_dropped(name.base, segment.through());
            let disk = &*self.shared.disk;
            self.shared.reserve.spend_if_full(disk, || file.store(disk, &marks))?;
            let mut state = self.shared.state_mut();
            state.marks = Arc::new(marks);
            state.drop_sealed(name.base);
        }
        let disk = &*self.shared.disk;
        discard(disk, &name.file())?;
        discard(disk, &name.index_file())?;
        disk.sync(None)
    }
}
