//! Projections and their checkpoints, as folded from the log.
//!
//! - One fold ([`ProjectionsFold`]) serves both the durable rows and the overlay of rows that are not durable yet.
//! - A durable row publishes its checkpoint to waiting callers; deleting the row ends their wait.
//! - A reset begins a new generation. Generations count from 1 and never go back, not even when a projection is deleted
//!   and another one is registered under its name ([`DeletedProjections`]).

pub(in crate::ledger) mod deleted_projections;

use crate::ledger::decide::overlay_map::OverlayMap;
use crate::ledger::facts::entry::Entry;
use crate::ledger::state::table::{DecidedTable, OverlayWriter, StateTable, overlay_of};
use contract::{Error, Generation, NewProjection, Offset, Result, TopicId, limits};
use deleted_projections::DeletedProjections;
use log::RecordHeader;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::watch;

/// Projections by name.
#[derive(Default)]
pub struct ProjectionRows {
    rows: BTreeMap<String, WatchedProjection>,
    deleted: DeletedProjections,
}

/// A projection as the log knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectionRow {
    /// The definition of the last request.
    pub definition: Arc<NewProjection>,
    /// The last sequence that its view has applied.
    pub checkpoint: Offset,
    /// 1, and one more for every reset.
    pub generation: Generation,
    /// The offset that this generation began with.
    pub start: Offset,
    /// When it was registered, in milliseconds.
    pub created_at: i64,
    /// When it last changed, in milliseconds.
    pub updated_at: i64,
}

/// A durable row, and the channel that callers wait on for its checkpoint.
struct WatchedProjection {
    entry: ProjectionRow,
    checkpoint: watch::Sender<Offset>,
}

impl ProjectionRow {
    /// A projection that was just registered.
    fn new(definition: &NewProjection, time: i64) -> Self {
        Self {
            definition: Arc::new(definition.clone()),
            checkpoint: Offset::ZERO,
            generation: Generation(1),
            start: Offset::ZERO,
            created_at: time,
            updated_at: time,
        }
    }
}

impl ProjectionRows {
    /// One projection.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ProjectionRow> {
        self.rows.get(name).map(|row| &row.entry)
    }

    /// Projections in order of their names.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = (&str, &ProjectionRow)> {
        self.rows.iter().map(|(name, row)| (name.as_str(), &row.entry))
    }

    /// A projection's checkpoint, to wait on; the channel closes when the projection is deleted.
    #[must_use]
    pub fn checkpoint(&self, name: &str) -> Option<watch::Receiver<Offset>> {
        self.rows.get(name).map(|row| row.checkpoint.subscribe())
    }

    /// The last generation of a projection under this name; a new one must have a higher generation.
    #[must_use]
    pub fn last_generation(&self, name: &str) -> Generation {
        let known = self.get(name).map_or(Generation::ZERO, |known| known.generation);
        self.deleted.last(name).max(known)
    }
}

impl StateTable for ProjectionRows {
    type Overlay = ProjectionsOverlay;
    type Snapshot = (ProjectionsSnapshot, DeletedProjections);

    fn apply(&mut self, entry: &Entry, header: &RecordHeader) {
        ProjectionsFold::apply(self, entry, header.time);
    }

    fn decide(&self, overlay: &mut ProjectionsOverlay, entry: &Entry, header: &RecordHeader) {
        OverlayWriter { durable: self, overlay, at: header.position }.apply(entry, header.time);
    }

    fn snapshot(&self) -> Self::Snapshot {
        (self.all().map(|(name, entry)| (name.to_owned(), entry.clone())).collect(), self.deleted.clone())
    }

    fn restore((snapshot, deleted): Self::Snapshot) -> Self {
        let mut projections = Self { deleted, ..Self::default() };
        for (name, entry) in snapshot {
            projections.put(&name, entry);
        }
        projections
    }
}

/// Projections in a checkpoint.
pub(in crate::ledger) type ProjectionsSnapshot = Vec<(String, ProjectionRow)>;

/// The fold of facts about projections.
pub(in crate::ledger) trait ProjectionsFold {
    fn known(&self, name: &str) -> Option<ProjectionRow>;
    fn put(&mut self, name: &str, entry: ProjectionRow);
    fn delete(&mut self, name: &str, generation: Generation);

    /// Folds one fact stored at `time`. Total: a fact about an unknown projection, or something else, changes nothing.
    fn apply(&mut self, entry: &Entry, time: i64) {
        match entry {
            Entry::ProjectionPut { name, definition } => {
                let known = self.known(name);
                let known = known.unwrap_or_else(|| ProjectionRow::new(definition, time));
                let definition = Arc::new(definition.clone());
                self.put(name, ProjectionRow { definition, updated_at: time, ..known });
            }
            Entry::ProjectionDeleted { name } => {
                if let Some(known) = self.known(name) {
                    self.delete(name, known.generation);
                }
            }
            Entry::CheckpointMoved { name, offset } => {
                if let Some(known) = self.known(name) {
                    self.put(name, ProjectionRow { checkpoint: *offset, updated_at: time, ..known });
                }
            }
            Entry::ProjectionReset { name, offset, generation } => {
                if let Some(known) = self.known(name) {
                    let (checkpoint, start, generation) = (*offset, *offset, *generation);
                    let begun = ProjectionRow { checkpoint, start, generation, updated_at: time, ..known };
                    self.put(name, begun);
                }
            }
            _ => (),
        }
    }
}

impl ProjectionsFold for ProjectionRows {
    fn known(&self, name: &str) -> Option<ProjectionRow> {
        self.get(name).cloned()
    }

    fn delete(&mut self, name: &str, generation: Generation) {
        self.rows.remove(name);
        self.deleted.add(name, generation);
    }

    fn put(&mut self, name: &str, entry: ProjectionRow) {
        let checkpoint = entry.checkpoint;
        match self.rows.get_mut(name) {
            Some(row) => {
                row.entry = entry;
                row.checkpoint.send_if_modified(|shown| std::mem::replace(shown, checkpoint) != checkpoint);
            }
            None => {
                let row = WatchedProjection { entry, checkpoint: watch::Sender::new(checkpoint) };
                self.rows.insert(name.to_owned(), row);
            }
        }
    }
}

/// Projections decided but not durable yet.
#[derive(Default)]
pub struct ProjectionsOverlay {
    rows: OverlayMap<String, ProjectionRow>,
    /// The generations of deleted projections.
    deleted: OverlayMap<String, Generation>,
}

overlay_of!(ProjectionsOverlay { rows, deleted });

fn known(durable: &ProjectionRows, overlay: &ProjectionsOverlay, name: &str) -> Option<ProjectionRow> {
    overlay.rows.get(&name.to_owned()).unwrap_or_else(|| durable.get(name)).cloned()
}

impl ProjectionsFold for OverlayWriter<'_, ProjectionRows> {
    fn known(&self, name: &str) -> Option<ProjectionRow> {
        known(self.durable, self.overlay, name)
    }

    fn put(&mut self, name: &str, entry: ProjectionRow) {
        self.overlay.rows.set(self.at, name.to_owned(), Some(entry));
    }

    fn delete(&mut self, name: &str, generation: Generation) {
        self.overlay.rows.set(self.at, name.to_owned(), None);
        let decided = self.overlay.deleted.get(&name.to_owned()).flatten().copied().unwrap_or_default();
        self.overlay.deleted.set(self.at, name.to_owned(), Some(generation.max(decided)));
    }
}

/// Projections as a decision sees them: durable or decided.
pub type DecidedProjections<'a> = DecidedTable<'a, ProjectionRows>;

impl DecidedProjections<'_> {
    /// One projection.
    pub fn known(&self, name: &str) -> Result<ProjectionRow> {
        known(&self.durable, self.overlay, name).ok_or_else(|| Error::not_found("projection"))
    }

    /// The projections of a topic, in order of their names.
    #[must_use]
    pub fn of_topic(&self, topic: &TopicId) -> Vec<String> {
        let durable = self.durable.rows.keys();
        let names: BTreeSet<_> = durable.chain(self.overlay.rows.iter().map(|(name, _)| name)).collect();
        let reads = |name: &&String| self.known(name).is_ok_and(|it| it.definition.topic.as_ref() == Some(topic));
        names.into_iter().filter(reads).cloned().collect()
    }

    /// The generation of a projection that is registered under this name now; it is above `floor`.
    #[must_use]
    pub fn next_generation(&self, name: &str, floor: Generation) -> Generation {
        let decided = self.overlay.deleted.get(&name.to_owned()).flatten().copied().unwrap_or_default();
        self.durable.last_generation(name).max(decided).max(floor).next()
    }

    /// Whether the limit allows one more projection.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let is_durable = |name: &String| self.durable.rows.contains_key(name);
        self.overlay.rows.has_room(self.durable.rows.len(), is_durable, limits::PROJECTIONS_MAX)
    }
}
