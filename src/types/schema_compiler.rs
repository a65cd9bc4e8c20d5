//! Compiled schemas: compiled off the request threads, one at a time, and kept in RAM within a byte budget.
//!
//! - Schemas are untrusted input. Compiling one may take long, so it never runs on a thread that serves requests, and a
//!   burst of registrations uses only one core. [`super::compile_queue`] has the order. A caller that waits too long is
//!   refused as retryable.
//! - A schema is compiled once: at registration or, after a restart, by the first event. The same text in two versions
//!   is one compiled schema.
//! - The cache is bounded by an estimate of the size of compiled schemas. A registration never evicts schemas that
//!   events use. An event may: old and large schemas are evicted first, so that large ones do not evict all small ones.

use super::busy;
use super::compile_queue::{CompileQueue, CompileWork, WAITING};
use super::schema::{CheckLimiter, CompiledSchema, SchemaOrigin, SchemaSource};
use crate::ledger::RegisteredType;
use contract::{Error, Kind, Position, RegisteredVersion, Result, SchemaVersion, limits};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Every compiled schema of a broker.
#[derive(Clone)]
pub(crate) struct SchemaCompiler(Arc<CompilerState>);

struct CompilerState {
    cache: RwLock<SchemaCache>,
    /// A logical clock of the uses of schemas.
    uses: AtomicU64,
    /// One schema is compiled at a time.
    queue: Arc<CompileQueue>,
    /// One schema is measured at a time, before it waits to be compiled.
    measuring: Semaphore,
    checks: CheckLimiter,
}

#[derive(Default)]
struct SchemaCache {
    /// By the fingerprint of the source.
    compiled: HashMap<u128, CachedSchema>,
    /// The sum of the estimates, in bytes.
    bytes: usize,
    /// The schema of each version: the type's tag and the version; the entry that set the schema, and its fingerprint.
    versions: HashMap<(u64, SchemaVersion), (Position, u128)>,
}

struct CachedSchema {
    schema: Arc<CompiledSchema>,
    bytes: usize,
    /// [`NEVER`] until an event uses it.
    last_use: AtomicU64,
}

const NEVER: u64 = 0;

impl Default for SchemaCompiler {
    fn default() -> Self {
        Self(Arc::new(CompilerState {
            cache: RwLock::default(),
            uses: AtomicU64::new(NEVER + 1),
            queue: Arc::default(),
            checks: CheckLimiter::default(),
            measuring: Semaphore::new(1),
        }))
    }
}

impl SchemaCompiler {
    /// Limits how many large events are checked at the same time.
    pub(crate) fn checks(&self) -> &CheckLimiter {
        &self.0.checks
    }

    /// The schema of one of a type's versions, if it is compiled.
    pub(crate) fn cached(&self, known: &RegisteredType, version: &RegisteredVersion) -> Option<Arc<CompiledSchema>> {
        let number = version.definition.version;
        let cache = self.0.cache.read().unwrap_or_else(PoisonError::into_inner);
        let (defined_at, fingerprint) = cache.versions.get(&(known.tag, number))?;
        if *defined_at != known.schema_at(number) {
            return None;
        }
        let cached = cache.compiled.get(fingerprint)?;
        cached.last_use.store(self.0.next_use(), Ordering::Relaxed);
        Some(Arc::clone(&cached.schema))
    }

    /// Compiles the schema of one of a type's versions, so that it is found by [`Self::cached`].
    pub(crate) async fn load(&self, known: Arc<RegisteredType>, version: SchemaVersion) -> Result<Arc<CompiledSchema>> {
        let bytes = self.measure(Arc::clone(&known), version).await?;
        let schemas = self.clone();
        self.run(CompileWork::FirstUse { bytes }, move || {
            let source = source_of(&known, version)?;
            let fingerprint = source.fingerprint();
            let schema = schemas.find_or_compile(&source, SchemaOrigin::Log, fingerprint)?;
            schema.complete(&source);
            let mut cache = schemas.0.cache.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(cached) = cache.compiled.get(&fingerprint) {
                cached.last_use.store(schemas.0.next_use(), Ordering::Relaxed);
            }
            cache.versions.insert((known.tag, version), (known.schema_at(version), fingerprint));
            Ok(schema)
        })
        .await
    }

    /// Compiles a schema for a registration, unless it is in the cache. Call it within [`Self::run`].
    pub(super) fn compile(&self, source: &SchemaSource<'_>) -> Result<Arc<CompiledSchema>> {
        self.find_or_compile(source, SchemaOrigin::Request, source.fingerprint())
    }

    /// Runs work on one schema on a blocking thread, when it gets its turn.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        purpose: CompileWork,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let wait = Duration::from_secs(limits::SCHEMA_COMPILE_SECONDS_MAX);
        let Ok(turn) = timeout(wait, self.0.queue.turn(purpose)).await else { return Err(busy(WAITING)) };
        let turn = turn?;
        // If the caller has left, the turn is held to the end nevertheless: the compilation still uses a core.
        let work = tokio::task::spawn_blocking(move || {
            let outcome = work();
            drop(turn);
            outcome
        });
        match timeout(wait, work).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => Err(panicked(&error)),
            Err(_) => Err(busy("Compiling the schema takes too long; try again, or make it smaller.")),
        }
    }

    /// The approximate size of a version's compiled schema; refused if that is too much. The queue needs it, so it is
    /// computed before.
    async fn measure(&self, known: Arc<RegisteredType>, version: SchemaVersion) -> Result<usize> {
        let _permit = self.0.measuring.acquire().await;
        let measured =
            tokio::task::spawn_blocking(move || source_of(&known, version)?.measure(SchemaOrigin::Log)).await;
        measured.unwrap_or_else(|error| Err(panicked(&error)))
    }

    fn find_or_compile(
        &self,
        source: &SchemaSource<'_>,
        origin: SchemaOrigin,
        fingerprint: u128,
    ) -> Result<Arc<CompiledSchema>> {
        {
            let cache = self.0.cache.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(cached) = cache.compiled.get(&fingerprint) {
                return Ok(Arc::clone(&cached.schema));
            }
        }
        let bytes = source.measure(origin)?;
        let schema = Arc::new(CompiledSchema::compile(source)?);
        let last_use = if origin == SchemaOrigin::Log { self.0.next_use() } else { NEVER };
        let cached = CachedSchema { schema: Arc::clone(&schema), bytes, last_use: AtomicU64::new(last_use) };
        let mut cache = self.0.cache.write().unwrap_or_else(PoisonError::into_inner);
        cache.insert(fingerprint, cached, limits::COMPILED_SCHEMAS_BYTES_MAX);
        Ok(schema)
    }
}

impl CompilerState {
    fn next_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }
}

impl SchemaCache {
    /// Adds a schema. Others are evicted to make room: first those that no event has used; then, if events use this
    /// one, those with the largest product of size and time since their last use. Without room it is not added.
    fn insert(&mut self, fingerprint: u128, schema: CachedSchema, bytes_max: usize) {
        self.remove(fingerprint);
        let now = schema.last_use.load(Ordering::Relaxed);
        while self.bytes.saturating_add(schema.bytes) > bytes_max && !self.compiled.is_empty() {
            let weight = |cached: &CachedSchema| match cached.last_use.load(Ordering::Relaxed) {
                NEVER => u128::MAX,
                last_use => u128::from(now.saturating_sub(last_use)) * cached.bytes as u128,
            };
            let heaviest = self.compiled.iter().map(|(known, cached)| (weight(cached), *known)).max();
            let Some((weight, heaviest)) = heaviest else { return };
            if now == NEVER && weight != u128::MAX {
                return;
            }
            self.remove(heaviest);
        }
        self.bytes = self.bytes.saturating_add(schema.bytes);
        self.compiled.insert(fingerprint, schema);
    }

    fn remove(&mut self, fingerprint: u128) {
        if let Some(removed) = self.compiled.remove(&fingerprint) {
            self.bytes = self.bytes.saturating_sub(removed.bytes);
            self.versions.retain(|_, (_, known)| *known != fingerprint);
        }
    }
}

fn source_of(known: &RegisteredType, version: SchemaVersion) -> Result<SchemaSource<'_>> {
    let found = known.version(version).ok_or_else(|| Error::not_found("schema version"))?;
    Ok(SchemaSource::of_version("", &found.definition, known.event_type.definition.schema_target))
}

fn panicked(error: &tokio::task::JoinError) -> Error {
    tracing::error!(%error, "compiling a schema panicked");
    Error::new(Kind::Unavailable, "The schema could not be compiled; see the server's log.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::mpsc;

    fn source(schema: &Value) -> SchemaSource<'_> {
        SchemaSource::json("/dataSchema", schema, None)
    }

    #[test]
    fn the_same_schema_is_compiled_once() {
        let schemas = SchemaCompiler::default();
        let one = schemas.compile(&source(&json!({"type": "object"}))).unwrap();
        let same = schemas.compile(&source(&json!({"type": "object"}))).unwrap();
        let other = schemas.compile(&source(&json!({"type": "string"}))).unwrap();
        assert!(Arc::ptr_eq(&one, &same));
        assert!(!Arc::ptr_eq(&one, &other));
    }

    #[test]
    fn old_and_large_schemas_leave_a_full_cache_and_registrations_take_no_room_from_schemas_in_use() {
        let schema = Arc::new(CompiledSchema::compile(&source(&json!({}))).unwrap());
        let cached =
            |bytes, last_use| CachedSchema { schema: Arc::clone(&schema), bytes, last_use: AtomicU64::new(last_use) };
        let mut cache = SchemaCache::default();
        for (fingerprint, bytes, last_use, left) in [
            (1, 40, 1, &[1][..]),
            (2, 40, 3, &[1, 2]),
            (3, 40, 9, &[2, 3]),
            // The same schema replaces itself.
            (3, 60, 9, &[2, 3]),
            // A registration evicts no schema in use.
            (4, 1, NEVER, &[2, 3]),
            (5, 30, 10, &[3, 5]),
            (6, 10, NEVER, &[3, 5, 6]),
            // It evicts another registration.
            (7, 5, NEVER, &[3, 5, 7]),
            (8, 35, 11, &[5, 8]),
            (9, 5, 12, &[5, 8, 9]),
            (10, 70, 20, &[9, 10]),
            // A large schema is evicted before a small one that was not used for longer.
            (11, 30, 21, &[9, 11]),
            // A schema that does not fit at all is kept alone: it is in use.
            (12, 500, 22, &[12]),
            (13, 1, 23, &[13]),
        ] {
            cache.insert(fingerprint, cached(bytes, last_use), 100);
            let mut there: Vec<_> = cache.compiled.keys().copied().collect();
            there.sort_unstable();
            assert_eq!(there, left, "after {fingerprint}");
            assert_eq!(cache.bytes, cache.compiled.values().map(|cached| cached.bytes).sum::<usize>());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_on_schemas_waits_for_its_turn_and_gives_up_when_it_takes_too_long() {
        let schemas = SchemaCompiler::default();
        let (release, held) = mpsc::channel::<()>();
        let (began, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
        let first = tokio::spawn({
            let schemas = schemas.clone();
            async move {
                schemas
                    .run(CompileWork::Registration, move || {
                        began.send(()).unwrap();
                        held.recv().unwrap();
                        Ok(())
                    })
                    .await
            }
        });
        has_begun.recv().await.unwrap();
        let second = tokio::spawn({
            let schemas = schemas.clone();
            async move { schemas.run(CompileWork::Registration, || Ok(())).await }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        tokio::time::advance(Duration::from_secs(limits::SCHEMA_COMPILE_SECONDS_MAX + 1)).await;
        for waiting in [first, second] {
            assert_eq!(waiting.await.unwrap().unwrap_err().kind(), Kind::Overloaded);
        }
        release.send(()).unwrap();
        schemas.run(CompileWork::Registration, || Ok(())).await.unwrap();
    }
}
