//! Random histories against a hash map.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use tiering::TieringPolicy;

#[derive(Debug, Clone)]
enum TableStep {
    /// Puts `count` rows of a time, from key number `first` on.
    Put { first: u64, count: u64, time: i64 },
    /// Freezes, with the expiry moved on.
    Freeze { expire_by: i64 },
    /// Runs the job that was frozen.
    Run,
    /// Installs the result of the job.
    Install,
    /// Drops the job or its result.
    Lose,
    /// Closes and opens.
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<TableStep>> {
    let step = prop_oneof![
        4 => (0..300u64, 1..4u64, 0..100i64).prop_map(|(first, count, time)| TableStep::Put { first, count, time }),
        2 => (0..300u64, 1..200u64, 0..100i64).prop_map(|(first, count, time)| TableStep::Put { first, count, time }),
        6 => (0..12i64).prop_map(|expire_by| TableStep::Freeze { expire_by }),
        6 => Just(TableStep::Run),
        6 => Just(TableStep::Install),
        2 => Just(TableStep::Lose),
        2 => Just(TableStep::Reopen),
    ];
    prop::collection::vec(step, 1..120)
}

/// Mostly uniform keys, but also some that share a half: fences and filters must handle them, too.
fn mixed_key(n: u64) -> u128 {
    match n % 5 {
        0 => u128::from(n) | 7 << 64,
        1 => u128::from(n) << 64 | 7,
        _ => key(n),
    }
}

/// The expected content of the tables: values by key number, and the expiry time.
#[derive(Debug, Clone, Default)]
struct TableModel {
    values: HashMap<u64, (i64, u64)>,
    expire_before: i64,
    puts: u64,
}

struct TableFixture {
    folder: TempDir,
    tables: Option<DiskTables>,
    job: Option<CheckpointJob>,
    done: Option<WrittenCheckpoint>,
    now: TableModel,
    frozen: TableModel,
    on_disk: Option<TableModel>,
}

impl TableFixture {
    fn new() -> Self {
        let (folder, tables) = fresh();
        let (now, frozen) = (TableModel::default(), TableModel::default());
        let mut world = Self { folder, tables: Some(tables), job: None, done: None, now, frozen, on_disk: None };
        world.make_tiers_small();
        world
    }

    fn tables(&mut self) -> &mut DiskTables {
        self.tables.as_mut().unwrap()
    }

    /// So that a few hundred rows reach several tiers.
    fn make_tiers_small(&mut self) {
        let policy = TieringPolicy { factor: 2, small_rows: 4, runs_max: 4 };
        self.tables().heads.policy = policy;
        self.tables().keys.policy = policy;
    }

    fn step(&mut self, step: &TableStep) {
        match *step {
            TableStep::Put { first, count, time } => (first..first + count).for_each(|n| self.put(n, time)),
            TableStep::Freeze { expire_by } => self.freeze(expire_by),
            TableStep::Run => self.run(),
            TableStep::Install => {
                if let Some(done) = self.done.take() {
                    self.tables().install(done);
                }
            }
            TableStep::Lose => (self.job, self.done) = (None, None),
            TableStep::Reopen => self.reopen(),
        }
    }

    fn put(&mut self, n: u64, time: i64) {
        self.now.puts += 1;
        let puts = self.now.puts;
        self.now.values.insert(n, (time, puts));
        self.tables().heads.put(mixed_key(n), head(puts));
        self.tables().keys.put(mixed_key(n), at_time(time, puts));
    }

    fn freeze(&mut self, expire_by: i64) {
        let (puts, expire_before) = (self.now.puts, self.now.expire_before + expire_by);
        let busy = self.job.is_some() || self.done.is_some();
        let job = self.tables().freeze(payload(puts), expire_before);
        assert_eq!(job.is_none(), busy);
        if job.is_some() {
            self.now.expire_before = expire_before;
            self.frozen = self.now.clone();
            self.job = job;
        }
    }

    fn run(&mut self) {
        if let Some(job) = self.job.take() {
            self.done = Some(job.run(&|_| {}).unwrap());
            self.on_disk = Some(self.frozen.clone());
        }
    }

    fn reopen(&mut self) {
        (self.job, self.done, self.tables) = (None, None, None);
        self.tables = Some(match &self.on_disk {
            Some(model) => reopen(&self.folder, model.puts),
            None => DiskTables::open(self.folder.path(), time_of).unwrap().0,
        });
        self.now = self.on_disk.clone().unwrap_or_default();
        self.make_tiers_small();
    }

    fn check(&self) {
        let tables = self.tables.as_ref().unwrap();
        assert!(tables.heads.runs.len() <= 4 && tables.keys.runs.len() <= 4);
        for n in 0..500 {
            let (got_head, got_key) = (tables.heads.get(mixed_key(n)).unwrap(), tables.keys.get(mixed_key(n)).unwrap());
            let Some((time, puts)) = self.now.values.get(&n) else {
                assert_eq!((got_head, got_key), (None, None));
                continue;
            };
            assert_eq!(got_head, Some(head(*puts)));
            let gone = got_key.is_none() && *time < self.now.expire_before;
            assert!(gone || got_key == Some(at_time(*time, *puts)), "key {n}: {got_key:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_history_reads_as_a_hash_map_would(steps in steps()) {
        let mut world = TableFixture::new();
        for step in &steps {
            world.step(step);
            world.check();
        }
        world.reopen();
        world.check();
    }
}
