//! A long history: up to ten million events, each of an aggregate of its own, in ten steps.
//!
//! It is published once per run and then looked at by several sections. The broker that holds it runs in a worker,
//! which comes and goes: [`History::crash`] and [`History::stop`] end it, [`History::open`] starts another.

use crate::Outcome;
use crate::events::Aggregates;
use crate::load::{Done, Load, Until};
use crate::place::{Place, remove};
use crate::raw::{self, Samples, Shape};
use crate::usage::Memory;
use crate::worker::{Opened, Worker};
use std::path::PathBuf;
use std::time::Duration;

/// Steps of publishing, with a look at the bare disk before each.
const STEPS: u64 = 10;
/// Callers of the history's own publishing, and events to a request.
pub(crate) const CALLERS: u64 = 64;
pub(crate) const BATCH: u64 = 100;
/// How long a worker that is to be killed publishes before.
const DOOMED_TIME: Duration = Duration::from_millis(1500);

/// A history on disk.
pub(crate) struct History {
    folder: PathBuf,
    pub(crate) events: u64,
    /// What each tenth of it took.
    pub(crate) steps: Vec<Step>,
    /// The bare disk meanwhile.
    pub(crate) bare: Samples,
    next: u64,
    worker: Option<Worker>,
}

/// One tenth of a history.
pub(crate) struct Step {
    pub(crate) done: Done,
    pub(crate) memory: Memory,
    /// Bytes per second of the bare disk just before, in synced pieces as large as the engine's.
    pub(crate) raw_bytes_per_second: f64,
}

impl History {
    /// Publishes `events` into a new folder.
    pub(crate) fn build(place: &Place, name: &str, events: u64) -> Outcome<Self> {
        let folder = place.fresh(name)?;
        let worker = Some(Worker::start(&folder)?);
        let (steps, bare) = (Vec::new(), Samples::default());
        let mut history = Self { folder, events, steps, bare, next: 0, worker };
        for number in 0..STEPS {
            eprintln!("  ... publishing {} of {events} events", events / STEPS * (number + 1));
            history.step(place, events / STEPS)?;
        }
        Ok(history)
    }

    fn step(&mut self, place: &Place, events: u64) -> Outcome {
        let time = Duration::from_millis(300);
        self.bare.take(place, time)?;
        let group_bytes = self.steps.last().map_or(raw::PIECE_BYTES, |step| step.done.bytes_per_sync() as usize);
        let raw_bytes_per_second = raw::sync_loop(place, group_bytes, Shape::Growing, time)?.bytes_per_second;
        let (done, memory) = self.publish(Until::Count(events), Aggregates::Distinct)?;
        self.steps.push(Step { done, memory, raw_bytes_per_second });
        Ok(())
    }

    /// Publishes more of it.
    pub(crate) fn publish(&mut self, until: Until, aggregates: Aggregates) -> Outcome<(Done, Memory)> {
        let load = self.load(until, aggregates);
        let worker = self.worker.as_mut().ok_or("the history's worker is gone")?;
        let (done, memory) = worker.publish(load)?;
        self.next = done.next;
        Ok((done, memory))
    }

    /// Opens it in a new process; answers how that went.
    pub(crate) fn open(&mut self) -> Outcome<Opened> {
        self.stop()?;
        let worker = Worker::start(&self.folder)?;
        let opened = worker.opened;
        self.worker = Some(worker);
        Ok(opened)
    }

    /// Kills its process while it publishes.
    pub(crate) fn crash(&mut self) -> Outcome {
        if self.worker.is_none() {
            self.open()?;
        }
        let load = self.load(Until::Count(u64::MAX), Aggregates::Distinct);
        // Which numbers the killed process got to is not known; surely not to these.
        self.next += 1_000_000_000;
        self.worker.take().map_or(Ok(()), |worker| worker.crash(load, DOOMED_TIME))
    }

    /// Closes it in good order, if it is open; answers how many seconds that took.
    pub(crate) fn stop(&mut self) -> Outcome<f64> {
        self.worker.take().map_or(Ok(0.0), Worker::close)
    }

    /// Removes the tables and checkpoints; the log is all there is.
    pub(crate) fn forget_state(&mut self) -> Outcome {
        self.stop()?;
        remove(&self.folder.join("state"))
    }

    pub(crate) fn folder(&self) -> &PathBuf {
        &self.folder
    }

    /// Ends it and gives its space back.
    pub(crate) fn remove(mut self) -> Outcome {
        self.stop()?;
        remove(&self.folder)
    }

    fn load(&self, until: Until, aggregates: Aggregates) -> Load {
        Load { callers: CALLERS, batch: BATCH, aggregates, first: self.next, until }
    }
}
