//! A real file system that loses power under load: every acknowledged event must already be on the disk.
//!
//! An ext4 image on a loop device holds the data folder of a process that publishes. Under load the test shuts the file
//! system down without further writes, as a power cut would; then it mounts and opens it again. The same run with a
//! process whose `fsync` and `fdatasync` do nothing must lose acknowledged events: otherwise the test would prove
//! nothing.
//!
//! The test needs root, loop devices, `mkfs.ext4` and a C compiler. If one of them is missing, it reports that and is
//! skipped.

use crate::kill::{AcknowledgedEvents, publisher};
use crate::skips::report_skip;
use contract::api::*;
use contract::{LogRead, Position};
use event_broker::{Broker, Config};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Cuts the power of the file system that contains its argument: EXT4_IOC_SHUTDOWN, without flushing the journal.
const CUT: &str = r#"
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
int main(int count, char **words) {
    uint32_t without_flush = 2;
    int folder = count == 2 ? open(words[1], O_RDONLY) : -1;
    if (folder < 0 || ioctl(folder, _IOR('X', 125, uint32_t), &without_flush)) { perror("shutdown"); return 1; }
    return 0;
}
"#;
/// Sync calls that report success and do nothing.
const NO_SYNC: &str = "int fsync(int f) { (void)f; return 0; }\nint fdatasync(int f) { (void)f; return 0; }\n";

/// The programs built for the test, and a mounted file system whose power it cuts.
struct TestFileSystem {
    folder: TempDir,
    device: Option<String>,
}

fn run(program: &str, arguments: &[&OsStr]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|cause| format!("{program}: {cause}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl TestFileSystem {
    /// Builds and mounts everything; if that fails, returns what is missing on this machine.
    fn prepare() -> Result<Self, String> {
        let folder = TempDir::new().map_err(|cause| cause.to_string())?;
        let mut bench = Self { folder, device: None };
        if run("id", &["-u".as_ref()])? != "0" {
            return Err("it needs root, to mount a file system".to_owned());
        }
        bench.compile("cut", CUT, &[])?;
        bench.compile("no_sync.so", NO_SYNC, &["-shared", "-fPIC"])?;
        fs::File::create(bench.path("image"))
            .and_then(|file| file.set_len(96 << 20))
            .map_err(|cause| cause.to_string())?;
        run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), bench.path("image").as_ref()])?;
        fs::create_dir(bench.path("mounted")).map_err(|cause| cause.to_string())?;
        bench.mount()?;
        Ok(bench)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.path("mounted").join("data")
    }

    fn compile(&self, name: &str, text: &str, flags: &[&str]) -> Result<(), String> {
        let source = self.path(name).with_extension("c");
        fs::write(&source, text).map_err(|cause| cause.to_string())?;
        let (output, flags) = (self.path(name), flags.iter().map(OsStr::new));
        let arguments: Vec<&OsStr> = flags.chain(["-o".as_ref(), output.as_ref(), source.as_ref()]).collect();
        run("cc", &arguments).map(drop)
    }

    /// The kernel starts no write-back of its own during the test.
    fn mount(&mut self) -> Result<(), String> {
        let device = run("losetup", &["--find".as_ref(), "--show".as_ref(), self.path("image").as_ref()])?;
        self.device = Some(device.clone());
        let mounted = self.path("mounted");
        run("mount", &["-o".as_ref(), "commit=300".as_ref(), device.as_ref(), mounted.as_ref()]).map(drop)
    }

    fn unmount(&mut self) {
        let Some(device) = self.device.take() else { return };
        let mounted = self.path("mounted");
        if run("umount", &[mounted.as_ref()]).is_err() {
            // A process still uses it, or it was never mounted.
            let _ = run("umount", &["-l".as_ref(), mounted.as_ref()]);
        }
        let _ = run("losetup", &["-d".as_ref(), device.as_ref()]);
    }

    fn cut_power(&self) {
        let cut = self.path("cut");
        run(cut.to_str().unwrap(), &[self.path("mounted").as_ref()]).unwrap();
    }

    /// Publishes until this many events are acknowledged, cuts the power, and mounts the file system again.
    fn publish_and_cut(&mut self, round: u32, enough: usize, syncs: bool) -> AcknowledgedEvents {
        let mut command = publisher(&self.data(), round);
        if !syncs {
            command.env("LD_PRELOAD", self.path("no_sync.so"));
        }
        // Every durable step happens: rolls, seals, trims, rewrites, checkpoints.
        command.args(["--keep", "300", "--checkpoint-rows", "500"]).stderr(Stdio::null());
        let mut child = KillOnDrop(command.spawn().unwrap());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let mut promises = AcknowledgedEvents::default();
        for _ in 0..enough {
            promises.note(&lines.next().expect("the publisher ended on its own").unwrap());
        }
        self.cut_power();
        child.0.kill().unwrap();
        // What it printed before it ended was acknowledged before the power cut: after the cut no write succeeds.
        let rest: Vec<_> = lines.map_while(Result::ok).collect();
        let whole = rest.iter().filter(|line| line.split_whitespace().count() == 4);
        whole.for_each(|line| promises.note(line));
        drop(child);
        self.unmount();
        self.mount().unwrap();
        promises
    }
}

impl Drop for TestFileSystem {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// A process that is killed when the test ends.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The ids of all remaining events, if the folder opens.
async fn left(folder: &Path) -> HashSet<String> {
    let Ok(broker) = Broker::open(Config::folder(folder)).await else { return HashSet::new() };
    let (mut ids, mut after) = (HashSet::new(), Position::ZERO);
    loop {
        let page = broker.read_log(LogRead { after, limit: 100, filter: Default::default() }).await.unwrap();
        ids.extend(page.items.iter().map(|event| event.id.to_string()));
        after = page.next_position;
        if after == page.tail {
            broker.close().await;
            return ids;
        }
    }
}

#[tokio::test]
async fn what_was_acknowledged_is_on_the_disk_when_the_power_goes() {
    let mut bench = match TestFileSystem::prepare() {
        Ok(bench) => bench,
        Err(why) => return report_skip("power_cut_real", &why),
    };
    let mut promises = AcknowledgedEvents::default();
    for (round, enough) in [40, 700, 1500].into_iter().enumerate() {
        let round = u32::try_from(round).unwrap();
        promises.acked.extend(bench.publish_and_cut(round, enough, true).acked);
        promises.hold_against(&bench.data()).await;
    }
}

#[tokio::test]
async fn without_syncs_a_power_cut_loses_what_was_acknowledged() {
    let mut bench = match TestFileSystem::prepare() {
        Ok(bench) => bench,
        Err(why) => return report_skip("power_cut_real", &why),
    };
    let promises = bench.publish_and_cut(0, 700, false);
    let left = left(&bench.data()).await;
    // Trimmed events may be missing; none of the last acknowledged ones may be.
    let lost = promises.acked.keys().filter(|id| !left.contains(*id)).count();
    assert!(lost > 300, "only {lost} of {} are lost: the test would not detect a missing sync", promises.acked.len());
}
