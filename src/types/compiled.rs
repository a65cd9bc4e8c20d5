//! Compiled schemas: compiled off the request threads, one at a time, and kept in RAM within a byte budget.
//!
//! - A schema comes from strangers. Compiling one may take long, so it never runs on a thread that serves requests, and a
//!   burst of registrations leaves the other cores alone. Whoever waits too long is told to come back.
//! - A schema is compiled once, whoever asks for it: at registration or, after a restart, by the first event. The same
//!   text in two versions is one compiled schema.
//! - The cache is bounded by an estimate of what compiled schemas take; the least recently used one goes first.

use super::schema::{Schema, SchemaSource};
use crate::ledger::TypeEntry;
use contract::{Error, Kind, Position, Result, SchemaVersion, Version, limits};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Every compiled schema of a broker.
#[derive(Clone)]
pub(crate) struct Schemas(Arc<Shared>);

struct Shared {
    cache: RwLock<SchemaCache>,
    /// Orders uses of schemas in time.
    uses: AtomicU64,
    /// One schema is compiled at a time.
    compiling: Arc<Semaphore>,
}

#[derive(Default)]
struct SchemaCache {
    /// By fingerprint of what was compiled.
    compiled: HashMap<u128, CachedSchema>,
    /// The sum of the estimates, in bytes.
    bytes: usize,
    /// Which of them a version of a type has: the type's tag, the version, and the entry that gave it this schema.
    versions: HashMap<(u64, SchemaVersion), (Position, u128)>,
}

struct CachedSchema {
    schema: Arc<Schema>,
    bytes: usize,
    last_use: AtomicU64,
}

impl Default for Schemas {
    fn default() -> Self {
        Self(Arc::new(Shared {
            cache: RwLock::default(),
            uses: AtomicU64::new(0),
            compiling: Arc::new(Semaphore::new(1)),
        }))
    }
}

impl Schemas {
    /// The schema of one of a type's versions, if it is compiled.
    pub(crate) fn cached(&self, known: &TypeEntry, version: &Version) -> Option<Arc<Schema>> {
        let number = version.definition.version;
        let cache = self.0.cache.read().unwrap_or_else(PoisonError::into_inner);
        let (defined_at, fingerprint) = cache.versions.get(&(known.tag, number))?;
        if *defined_at != known.schema_at(number) {
            return None;
        }
        let cached = cache.compiled.get(fingerprint)?;
        cached.last_use.store(self.0.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(Arc::clone(&cached.schema))
    }

    /// Compiles the schema of one of a type's versions, so that it is found by [`Self::cached`].
    pub(crate) async fn load(&self, known: Arc<TypeEntry>, version: SchemaVersion) -> Result<Arc<Schema>> {
        let schemas = self.clone();
        self.run(move || {
            let found = known.version(version).ok_or_else(|| Error::not_found("schema version"))?;
            let target = known.event_type.definition.schema_target;
            let source = SchemaSource::of_version("", &found.definition, target);
            let schema = schemas.compile(&source)?;
            let mut cache = schemas.0.cache.write().unwrap_or_else(PoisonError::into_inner);
            cache.versions.insert((known.tag, version), (known.schema_at(version), source.fingerprint()));
            Ok(schema)
        })
        .await
    }

    /// Compiles a schema, unless that was done before. Call it within [`Self::run`].
    pub(super) fn compile(&self, source: &SchemaSource<'_>) -> Result<Arc<Schema>> {
        let fingerprint = source.fingerprint();
        let use_number = self.0.uses.fetch_add(1, Ordering::Relaxed);
        {
            let cache = self.0.cache.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(cached) = cache.compiled.get(&fingerprint) {
                cached.last_use.store(use_number, Ordering::Relaxed);
                return Ok(Arc::clone(&cached.schema));
            }
        }
        let schema = Arc::new(Schema::compile(source)?);
        let cached = CachedSchema {
            schema: Arc::clone(&schema),
            bytes: source.compiled_bytes(),
            last_use: AtomicU64::new(use_number),
        };
        let mut cache = self.0.cache.write().unwrap_or_else(PoisonError::into_inner);
        cache.insert(fingerprint, cached, limits::COMPILED_SCHEMAS_BYTES_MAX);
        Ok(schema)
    }

    /// Runs work on schemas on a thread of its own, after all work that was begun before.
    pub(super) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let wait = Duration::from_secs(limits::SCHEMA_COMPILE_SECONDS_MAX);
        let turn = timeout(wait, Arc::clone(&self.0.compiling).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return Err(busy("Other schemas are being compiled; try again.")) };
        // The turn comes back with the outcome, so that who came first also goes on first. Where the caller has gone it is
        // held to the end all the same: an abandoned compilation still takes a core.
        let work = tokio::task::spawn_blocking(move || (work(), turn));
        match timeout(wait, work).await {
            Ok(Ok((outcome, _turn))) => outcome,
            Ok(Err(error)) => {
                tracing::error!(%error, "compiling a schema panicked");
                Err(Error::new(Kind::Unavailable, "The schema could not be compiled; see the server's log."))
            }
            Err(_) => Err(busy("Compiling the schema takes too long; try again, or make it smaller.")),
        }
    }
}

impl SchemaCache {
    fn insert(&mut self, fingerprint: u128, schema: CachedSchema, bytes_max: usize) {
        self.bytes = self.bytes.saturating_add(schema.bytes);
        if let Some(replaced) = self.compiled.insert(fingerprint, schema) {
            self.bytes = self.bytes.saturating_sub(replaced.bytes);
        }
        while self.bytes > bytes_max && self.compiled.len() > 1 {
            let oldest = self.compiled.iter().min_by_key(|(_, cached)| cached.last_use.load(Ordering::Relaxed));
            let Some(oldest) = oldest.map(|(fingerprint, _)| *fingerprint) else { return };
            let evicted = self.compiled.remove(&oldest);
            self.bytes = self.bytes.saturating_sub(evicted.map_or(0, |evicted| evicted.bytes));
            self.versions.retain(|_, (_, fingerprint)| *fingerprint != oldest);
        }
    }
}

fn busy(detail: &'static str) -> Error {
    Error::new(Kind::Overloaded, detail).with_retry_after(1)
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
        let schemas = Schemas::default();
        let one = schemas.compile(&source(&json!({"type": "object"}))).unwrap();
        let same = schemas.compile(&source(&json!({"type": "object"}))).unwrap();
        let other = schemas.compile(&source(&json!({"type": "string"}))).unwrap();
        assert!(Arc::ptr_eq(&one, &same));
        assert!(!Arc::ptr_eq(&one, &other));
    }

    #[test]
    fn the_least_recently_used_schema_leaves_a_full_cache() {
        let schema = Arc::new(Schema::compile(&source(&json!({}))).unwrap());
        let cached =
            |bytes, last_use| CachedSchema { schema: Arc::clone(&schema), bytes, last_use: AtomicU64::new(last_use) };
        let mut cache = SchemaCache::default();
        for (fingerprint, bytes, last_use, left) in [
            (1, 40, 7, &[1][..]),
            (2, 40, 3, &[1, 2]),
            (3, 40, 9, &[1, 3]),
            // The same again takes the place of the first.
            (3, 60, 9, &[1, 3]),
            // One that does not fit at all is kept alone: it is in use.
            (4, 500, 10, &[4]),
            (5, 1, 11, &[5]),
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
        let schemas = Schemas::default();
        let (release, held) = mpsc::channel::<()>();
        let (began, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
        let first = tokio::spawn({
            let schemas = schemas.clone();
            async move {
                schemas
                    .run(move || {
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
            async move { schemas.run(|| Ok(())).await }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        tokio::time::advance(Duration::from_secs(limits::SCHEMA_COMPILE_SECONDS_MAX + 1)).await;
        for waiting in [first, second] {
            assert_eq!(waiting.await.unwrap().unwrap_err().kind(), Kind::Overloaded);
        }
        release.send(()).unwrap();
        schemas.run(|| Ok(())).await.unwrap();
    }
}
