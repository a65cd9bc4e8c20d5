//! Projections: the checkpoints of views that are kept outside the broker, so that others can read them and wait for them.
//!
//! - A projection is in the log of its topic, or in the default log if it reads the whole log. A name is used once over all
//!   logs.
//! - A checkpoint moves only forward and never beyond the tail. Moving it to where it is changes nothing, so a repeated request
//!   gets the response of the first.
//! - A reset begins a new generation, and so does registering a deleted name again; requests with an older one are refused.
//! - Waiting requests are woken by the fold that moves the checkpoint; nothing polls on an interval.
//!
//! The view itself belongs to its owner (the runner in `client` keeps one up to date).

mod decide;
mod lag;
mod waiting;

pub(crate) use waiting::AwaitedProjection;

use crate::events::CallerContext;
use crate::filters;
use crate::ledger::{Command, Ledger, ProjectionRow, ReplyRecorder};
use contract::{
    Cursor, Error, EventFilter, Generation, Kind, NewCheckpoint, NewProjection, Offset, Page, Projection,
    ProjectionLag, RegisterOutcome, Result, Timestamp, Violation, limits,
};
use decide::{DeleteProjection, MoveCheckpoint, PutProjection, ResetProjection};
use std::sync::Arc;
use std::time::Duration;

/// The projections of all logs, on behalf of callers.
pub(crate) struct Projections<'a> {
    pub(crate) context: CallerContext<'a>,
}

/// A projection, and the log that has it.
struct LocatedProjection {
    ledger: Arc<Ledger>,
    entry: ProjectionRow,
}

impl Projections<'_> {
    /// Registers a projection, or changes its filter.
    pub(crate) async fn put(
        &self,
        name: &str,
        definition: NewProjection,
        recorder: ReplyRecorder<RegisterOutcome<Projection>>,
    ) -> Result<RegisterOutcome<Projection>> {
        check(name, &definition)?;
        let ledger = self.ledger_of(&definition)?;
        // Each side log decides by itself; the lock keeps a name from being registered in two of them at the same time.
        let placement = self.context.logs.lock_placement().await;
        let known = self.find(name).ok();
        if known.as_ref().is_some_and(|known| !Arc::ptr_eq(&known.ledger, &ledger)) {
            return Err(decide::reads_something_else());
        }
        let checkpoint = known.map_or(Offset::ZERO, |known| known.entry.checkpoint);
        let shown = self.renderer_for(&recorder, &ledger, name, (&definition, checkpoint)).await?;
        let recorder = match shown.clone() {
            None => ReplyRecorder::disabled(),
            Some(shown) => recorder.map_answer(move |outcome: &RegisterOutcome<ProjectionRow>| {
                Some(Ok(match outcome {
                    RegisterOutcome::Created(entry) => RegisterOutcome::Created(shown(entry)),
                    RegisterOutcome::Unchanged(entry) => RegisterOutcome::Unchanged(shown(entry)),
                }))
            }),
        };
        let floor = self.last_generation_elsewhere(name, &ledger);
        let outcome =
            ledger.submit_recording(PutProjection { name: name.to_owned(), definition, floor }, recorder).await?;
        drop(placement);
        Ok(match outcome {
            RegisterOutcome::Created(entry) => {
                RegisterOutcome::Created(self.view_after(&ledger, name, entry, shown).await?)
            }
            RegisterOutcome::Unchanged(entry) => {
                RegisterOutcome::Unchanged(self.view_after(&ledger, name, entry, shown).await?)
            }
        })
    }

    /// One projection.
    pub(crate) async fn get(&self, name: &str) -> Result<Projection> {
        self.view(name, self.find(name)?).await
    }

    /// Projections in order of their names, the page at `cursor`.
    pub(crate) async fn list(&self, cursor: Option<&Cursor>, limit: usize) -> Result<Page<Projection>> {
        self.context.reader.check_limit(limit)?;
        let mut names = Vec::new();
        for ledger in self.context.logs.ledgers() {
            names.extend(ledger.projections().all().map(|(name, _)| name.to_owned()));
        }
        names.sort_unstable();
        let Page { items, next, prev } = Page::of(names.into_iter(), cursor, limit, Clone::clone);
        let mut page = Page { items: Vec::with_capacity(items.len()), next, prev };
        for name in items {
            // One that was just deleted is left out.
            if let Ok(known) = self.find(&name) {
                page.items.push(self.view(&name, known).await?);
            }
        }
        Ok(page)
    }

    /// Deletes a projection.
    pub(crate) async fn delete(&self, name: &str, recorder: ReplyRecorder<()>) -> Result<()> {
        self.find(name)?.ledger.submit_recording(DeleteProjection { name: name.to_owned() }, recorder).await
    }

    /// Moves a projection's checkpoint.
    pub(crate) async fn checkpoint(
        &self,
        name: &str,
        to: NewCheckpoint,
        recorder: ReplyRecorder<Projection>,
    ) -> Result<Projection> {
        self.advance_to(to.offset, name, MoveCheckpoint { name: name.to_owned(), to }, recorder).await
    }

    /// Begins the next generation after `offset`.
    pub(crate) async fn reset(
        &self,
        name: &str,
        offset: Offset,
        recorder: ReplyRecorder<Projection>,
    ) -> Result<Projection> {
        self.advance_to(offset, name, ResetProjection { name: name.to_owned(), offset }, recorder).await
    }

    /// Submits a command that moves a projection to `offset`.
    async fn advance_to(
        &self,
        offset: Offset,
        name: &str,
        command: impl Command<Answer = ProjectionRow>,
        recorder: ReplyRecorder<Projection>,
    ) -> Result<Projection> {
        let LocatedProjection { ledger, entry } = self.find(name)?;
        let shown = self.renderer_for(&recorder, &ledger, name, (&entry.definition, offset)).await?;
        let recorder = match shown.clone() {
            None => ReplyRecorder::disabled(),
            Some(shown) => recorder.map_answer(move |entry| Some(Ok(shown(entry)))),
        };
        let entry = ledger.submit_recording(command, recorder).await?;
        self.view_after(&ledger, name, entry, shown).await
    }

    /// Waits until a projection's checkpoint has reached `offset`.
    pub(crate) async fn wait(&self, name: &str, offset: Offset, timeout: Duration) -> Result<Projection> {
        self.context.reader.check_timeout(timeout)?;
        let ledger = self.find(name)?.ledger;
        waiting::wait_until_reached(&ledger, name, offset, tokio::time::Instant::now() + timeout).await?;
        self.get(name).await
    }

    fn find(&self, name: &str) -> Result<LocatedProjection> {
        let known = self.context.logs.ledgers().into_iter().find_map(|ledger| {
            let entry = ledger.projections().get(name).cloned()?;
            Some(LocatedProjection { ledger, entry })
        });
        known.ok_or_else(|| Error::not_found("projection"))
    }

    /// The last generation of a projection of this name in any other log than `home`.
    fn last_generation_elsewhere(&self, name: &str, home: &Arc<Ledger>) -> Generation {
        let others = self.context.logs.ledgers().into_iter().filter(|ledger| !Arc::ptr_eq(ledger, home));
        others.map(|ledger| ledger.projections().last_generation(name)).max().unwrap_or_default()
    }

    /// The log that has a projection.
    fn ledger_of(&self, definition: &NewProjection) -> Result<Arc<Ledger>> {
        let Some(topic) = &definition.topic else { return Ok(Arc::clone(self.context.logs.default_ledger())) };
        let found = self.context.logs.find(topic).map_err(|error| match error.kind() {
            Kind::NotFound => decide::not_registered(),
            _ => error,
        })?;
        Ok(Arc::clone(self.context.logs.ledger(&found.log)))
    }

    /// A projection with its lag.
    async fn view(&self, name: &str, LocatedProjection { ledger, entry }: LocatedProjection) -> Result<Projection> {
        let lag = lag::of(&ledger, &entry.definition, entry.checkpoint, ledger.now()).await?;
        Ok(projection_view(name, &entry, lag))
    }

    /// A projection with this checkpoint as the API shows it, for a reply that is stored with the decision. The lag needs the log,
    /// which a decision cannot read: it is the lag just before.
    async fn renderer_for<A: 'static>(
        &self,
        recorder: &ReplyRecorder<A>,
        ledger: &Ledger,
        name: &str,
        (definition, checkpoint): (&NewProjection, Offset),
    ) -> Result<Option<ProjectionRenderer>> {
        if !recorder.is_enabled() {
            return Ok(None);
        }
        let lag = lag::of(ledger, definition, checkpoint, ledger.now()).await?;
        let name = name.to_owned();
        Ok(Some(Arc::new(move |entry| projection_view(&name, entry, lag))))
    }

    /// The response to a decision: the stored one, or the projection as it is now.
    async fn view_after(
        &self,
        ledger: &Arc<Ledger>,
        name: &str,
        entry: ProjectionRow,
        shown: Option<ProjectionRenderer>,
    ) -> Result<Projection> {
        match shown {
            Some(shown) => Ok(shown(&entry)),
            None => self.view(name, LocatedProjection { ledger: Arc::clone(ledger), entry }).await,
        }
    }
}

/// A projection as shown in a stored reply.
type ProjectionRenderer = Arc<dyn Fn(&ProjectionRow) -> Projection + Send + Sync>;

/// A projection with this lag, as the API shows it.
fn projection_view(name: &str, entry: &ProjectionRow, lag: ProjectionLag) -> Projection {
    Projection {
        name: name.to_owned(),
        lag,
        definition: NewProjection::clone(&entry.definition),
        checkpoint: entry.checkpoint,
        generation: entry.generation,
        start: entry.start,
        created_at: Timestamp::from_millis(entry.created_at),
        updated_at: Timestamp::from_millis(entry.updated_at),
    }
}

/// Checks a projection, and reports everything that is wrong with it.
fn check(name: &str, definition: &NewProjection) -> Result<()> {
    let mut violations = Vec::new();
    violations.extend(check_name(name));
    violations.extend(match (&definition.topic, definition.log) {
        (None, false) => Some(Violation::new("/topic", "is missing: say which topic, or that it reads the `log`")),
        (Some(_), true) => Some(Violation::new("/log", "must not be used with `topic`; give one of them")),
        _ => None,
    });
    let filter = EventFilter { cel: definition.filter.clone(), ..EventFilter::default() };
    if let Err(error) = filters::compile(&filter) {
        violations.push(Violation::new("/filter", error.detail()));
    }
    if violations.is_empty() {
        return Ok(());
    }
    Err(Error::new(Kind::Validation, "The projection breaks the rules; see `errors`.").with_violations(violations))
}

/// What is wrong with a name, if anything. A comma separates the names in `waitFor`, a colon precedes a custom method.
fn check_name(name: &str) -> Option<Violation> {
    let detail = match name {
        "" => "must not be empty".to_owned(),
        _ if name.len() > limits::LABEL_BYTES_MAX => format!("may have at most {} bytes", limits::LABEL_BYTES_MAX),
        _ if name.chars().any(char::is_control) => "must not hold control characters".to_owned(),
        _ if name.contains([',', ':']) => "must not hold commas or colons".to_owned(),
        _ => return None,
    };
    Some(Violation::new("/name", detail))
}
