//! One way to publish, measured several times in turns with the bare disk.

use crate::Outcome;
use crate::events::Aggregates;
use crate::figures::median;
use crate::load::{Done, Load, Until};
use crate::place::{Place, remove};
use crate::raw::{self, Pace, Shape, SyncLoop};
use crate::sections::Run;
use crate::store::Store;
use std::time::Duration;
use tokio::runtime::Runtime;

/// As many aggregates as a middling system has alive.
const AGGREGATES: Aggregates = Aggregates::Among(100_000);

/// So many callers with requests of so many events, and what came of it.
pub(super) struct Case {
    pub(super) callers: u64,
    pub(super) batch: u64,
    rounds: Vec<Done>,
    /// The bare disk before each round, and after the last.
    bare: Vec<Bare>,
    /// Number of the next event.
    next: u64,
    /// How fast the disk may be.
    pace: Pace,
}

/// The bare disk with pieces as large as the engine's groups.
pub(super) struct Bare {
    growing: SyncLoop,
    ahead: SyncLoop,
    /// Bytes per second with one sync at the end.
    through: f64,
}

impl Case {
    pub(super) fn new(callers: u64, batch: u64) -> Self {
        Self { callers, batch, rounds: Vec::new(), bare: Vec::new(), next: 0, pace: Pace::default() }
    }

    /// The same on a disk that is no faster than this.
    pub(super) fn at(self, pace: Pace) -> Self {
        Self { pace, ..self }
    }

    /// Measured without a disk.
    pub(super) fn in_memory(mut self, run: &Run<'_>, runtime: &Runtime) -> Outcome<Self> {
        let store = runtime.block_on(Store::memory())?;
        for _ in 0..run.rounds() {
            self.publish(runtime, &store, Duration::from_millis(if run.quick { 200 } else { 500 }))?;
        }
        runtime.block_on(store.close());
        Ok(self)
    }

    /// Measured in files: bare, ours, bare, ours, bare.
    pub(super) fn in_files(mut self, run: &Run<'_>, runtime: &Runtime) -> Outcome<Self> {
        let folder = run.place.fresh("publish")?;
        let store = runtime.block_on(Store::files_at(&folder, self.pace))?;
        // The first round only tells how large the groups are.
        let mut group = self.publish(runtime, &store, Duration::from_millis(300))?;
        self.rounds.clear();
        for _ in 0..run.rounds() {
            self.bare.push(Bare::measure(run.place, group, self.pace, run.raw_time())?);
            group = self.publish(runtime, &store, Duration::from_millis(if run.quick { 500 } else { 1500 }))?;
        }
        self.bare.push(Bare::measure(run.place, group, self.pace, run.raw_time())?);
        runtime.block_on(store.close());
        remove(&folder)?;
        Ok(self)
    }

    /// One round; answers how many bytes the engine wrote per sync.
    pub(super) fn publish(&mut self, runtime: &Runtime, store: &Store, time: Duration) -> Outcome<usize> {
        let Self { callers, batch, next, .. } = *self;
        let load = Load { callers, batch, aggregates: AGGREGATES, first: next, until: Until::Elapsed(time) };
        let done = runtime.block_on(load.run(store))?;
        let group = done.bytes_per_sync() as usize;
        self.next = done.next;
        self.rounds.push(done);
        Ok(group.max(1))
    }

    pub(super) fn name(&self) -> String {
        let callers = if self.callers == 1 { "1 caller".to_owned() } else { format!("{} callers", self.callers) };
        match self.batch {
            1 => format!("{callers}, single"),
            batch => format!("{callers}, batches of {batch}"),
        }
    }

    /// The median of our rounds.
    pub(super) fn ours(&self, figure: impl Fn(&Done) -> f64) -> f64 {
        median(self.rounds.iter().map(figure))
    }

    /// The median of the bare disk.
    pub(super) fn bare(&self, figure: impl Fn(&Bare) -> f64) -> f64 {
        median(self.bare.iter().map(figure))
    }

    /// Ours in parts of the bare disk's just before and after: the median of the rounds' ratios.
    pub(super) fn ratio(&self, ours: impl Fn(&Done) -> f64, bare: impl Fn(&Bare) -> f64) -> f64 {
        let around = self.bare.iter().zip(self.bare.iter().skip(1));
        let ratios = self.rounds.iter().zip(around).map(|(done, (before, after))| {
            let raw = f64::midpoint(bare(before), bare(after));
            ours(done) / raw
        });
        median(ratios)
    }
}

impl Bare {
    fn measure(place: &Place, group_bytes: usize, pace: Pace, time: Duration) -> Outcome<Self> {
        Ok(Self {
            growing: raw::sync_loop_at(pace, place, group_bytes, Shape::Growing, time)?,
            ahead: raw::sync_loop_at(pace, place, group_bytes, Shape::WrittenAhead, time)?,
            through: raw::write_through(place, 256 * raw::PIECE_BYTES)?,
        })
    }

    pub(super) fn growing_rate(&self) -> f64 {
        self.growing.syncs_per_second
    }

    pub(super) fn growing_speed(&self) -> f64 {
        self.growing.bytes_per_second
    }

    pub(super) fn ahead_rate(&self) -> f64 {
        self.ahead.syncs_per_second
    }

    pub(super) fn through(&self) -> f64 {
        self.through
    }
}
