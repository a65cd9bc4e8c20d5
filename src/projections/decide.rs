//! The decisions about projections, in the order of the log that they are in.

use crate::ledger::{Command, Decision, Entry, ProjectionRow};
use contract::{Error, Generation, Kind, NewCheckpoint, NewProjection, Offset, RegisterOutcome, Result};

pub(super) struct PutProjection {
    pub(super) name: String,
    pub(super) definition: NewProjection,
    /// The last generation of a projection of this name that was in another log.
    pub(super) floor: Generation,
}

impl Command for PutProjection {
    type Answer = RegisterOutcome<ProjectionRow>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<RegisterOutcome<ProjectionRow>> {
        let known = decision.projections().known(&self.name).ok();
        if let Some(known) = known {
            return self.change(decision, known).map(RegisterOutcome::Unchanged);
        }
        if let Some(topic) = &self.definition.topic {
            decision.registry().topic(topic).ok_or_else(not_registered)?;
        }
        if !decision.projections().has_room() {
            let detail = "This broker has its maximum of projections; delete some.";
            return Err(Error::new(Kind::Overloaded, detail).with_retry_after(60));
        }
        let generation = decision.projections().next_generation(&self.name, self.floor);
        let made = self.put(decision)?;
        if generation == made.generation {
            return Ok(RegisterOutcome::Created(made));
        }
        // One of this name was deleted: clients that still work for it are of an older generation.
        let (name, offset) = (self.name.clone(), Offset::ZERO);
        decision.add_entry(Entry::ProjectionReset { name, offset, generation })?;
        decision.projections().known(&self.name).map(RegisterOutcome::Created)
    }

    fn bytes(&self) -> usize {
        self.name.len() + self.definition.filter.as_ref().map_or(0, String::len)
    }
}

impl PutProjection {
    fn change(&self, decision: &mut Decision<'_>, known: ProjectionRow) -> Result<ProjectionRow> {
        let NewProjection { topic, log, filter } = &*known.definition;
        if (topic, log) != (&self.definition.topic, &self.definition.log) {
            return Err(reads_something_else());
        }
        if *filter == self.definition.filter {
            return Ok(known);
        }
        self.put(decision)
    }

    fn put(&self, decision: &mut Decision<'_>) -> Result<ProjectionRow> {
        let Self { name, definition, .. } = self;
        decision.add_entry(Entry::ProjectionPut { name: name.clone(), definition: definition.clone() })?;
        decision.projections().known(name)
    }
}

pub(super) struct DeleteProjection {
    pub(super) name: String,
}

impl Command for DeleteProjection {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        decision.projections().known(&self.name)?;
        decision.add_entry(Entry::ProjectionDeleted { name: self.name.clone() })?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.name.len()
    }
}

pub(super) struct MoveCheckpoint {
    pub(super) name: String,
    pub(super) to: NewCheckpoint,
}

impl Command for MoveCheckpoint {
    type Answer = ProjectionRow;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<ProjectionRow> {
        let known = decision.projections().known(&self.name)?;
        let NewCheckpoint { offset, expected, generation } = self.to;
        if generation.is_some_and(|generation| generation != known.generation) {
            return Err(refused(
                &known,
                "The projection was reset, or deleted and registered again: this generation is no longer the current one.",
            ));
        }
        // Before `expected` is compared, so that a repeated request is not refused for its own effect.
        if offset == known.checkpoint {
            return Ok(known);
        }
        if expected.is_some_and(|expected| expected != known.checkpoint) {
            return Err(refused(&known, "The checkpoint is not at `expected`; it is at `actual`."));
        }
        if offset < known.checkpoint {
            return Err(refused(&known, "A checkpoint never moves back; reset the projection to rebuild it."));
        }
        check_offset(decision, &known, offset)?;
        decision.add_entry(Entry::CheckpointMoved { name: self.name.clone(), offset })?;
        decision.projections().known(&self.name)
    }

    fn bytes(&self) -> usize {
        self.name.len()
    }
}

pub(super) struct ResetProjection {
    pub(super) name: String,
    pub(super) offset: Offset,
}

impl Command for ResetProjection {
    type Answer = ProjectionRow;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<ProjectionRow> {
        let known = decision.projections().known(&self.name)?;
        check_offset(decision, &known, self.offset)?;
        let (name, offset, generation) = (self.name.clone(), self.offset, known.generation.next());
        decision.add_entry(Entry::ProjectionReset { name, offset, generation })?;
        decision.projections().known(&self.name)
    }

    fn bytes(&self) -> usize {
        self.name.len()
    }
}

/// A view cannot have applied events that are not stored.
fn check_offset(decision: &Decision<'_>, known: &ProjectionRow, offset: Offset) -> Result<()> {
    let tail = match &known.definition.topic {
        Some(topic) => decision.tail(decision.registry().topic(topic).ok_or_else(not_registered)?.number).into(),
        None => Offset(decision.position().get()),
    };
    match offset <= tail {
        true => Ok(()),
        false => Err(Error::invalid("/offset", "is greater than the tail of what the projection reads")),
    }
}

fn refused(known: &ProjectionRow, detail: &'static str) -> Error {
    Error::new(Kind::InvalidState, detail).with_actual(known.checkpoint.get())
}

pub(super) fn not_registered() -> Error {
    Error::invalid("/topic", "is not registered")
}

pub(super) fn reads_something_else() -> Error {
    let detail = "A projection of this name reads another topic or log; choose another name, or delete that one.";
    Error::new(Kind::AlreadyExists, detail)
}
