//! The program's memory allocator, and how soon it returns freed memory to the system.
//!
//! - Memory that a request allocates on one thread is often freed on another; the system's allocator takes a lock for that.
//!   `bench alone --callers 256 --batch 1` is about a third slower without this crate.
//! - A program that uses this crate has the allocator; nothing has to be enabled.

use libmimalloc_sys::{mi_collect, mi_option_get, mi_option_set, mi_option_t};
use std::cell::Cell;
use std::ffi::c_long;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long freed memory is kept, in milliseconds. The library names no constant for it; see [`give_back_soon`].
const PURGE_DELAY: mi_option_t = 15;
/// The library's default.
const PURGE_DELAY_DEFAULT: c_long = 1000;
/// The value that is set: long enough that memory which the next request needs is not returned first. A busy broker frees tens
/// of megabytes per second: rows of its tables when they are written to disk, indexes when a segment is sealed.
/// `MIMALLOC_PURGE_DELAY=1000 bench dispatch` shows the cost of keeping them for a second.
const PURGE_DELAY_WANTED: c_long = 100;

/// Returns freed memory to the system after a moment instead of a second. Call it first in `main`.
///
/// An operator's `MIMALLOC_PURGE_DELAY` takes precedence. If a later version of the library numbers its options differently,
/// nothing is changed, because the default is not found at the expected index.
pub fn give_back_soon() {
    if std::env::var_os("MIMALLOC_PURGE_DELAY").is_none() && option(PURGE_DELAY) == PURGE_DELAY_DEFAULT {
        set_option(PURGE_DELAY, PURGE_DELAY_WANTED);
    }
}

/// The interval at which a thread looks for memory to return.
const COLLECT_EVERY: Duration = Duration::from_secs(5);

/// Returns memory that this thread keeps unused, at most once in five seconds. Call it when a thread is idle: by itself the
/// allocator returns memory only during allocations, so a server whose ten thousand connections have closed would keep their
/// memory until new requests arrive.
pub fn give_back_when_idle() {
    thread_local! {
        static LAST: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    let now = Instant::now();
    if LAST.get().is_none_or(|last| now.duration_since(last) >= COLLECT_EVERY) {
        LAST.set(Some(now));
        collect();
    }
}

#[allow(unsafe_code)]
fn collect() {
    // SAFETY: looks through the calling thread's own heap and through what belongs to no thread, under the library's own
    // locks, and gives back pages in which nothing is allocated. It takes no pointer, and no allocation moves or ends.
    unsafe { mi_collect(true) }
}

#[allow(unsafe_code)]
fn option(option: mi_option_t) -> c_long {
    // SAFETY: reads one of a fixed table of numbers, by an index the library checks itself: it answers 0 for one that is
    // out of range, and touches nothing else.
    unsafe { mi_option_get(option) }
}

#[allow(unsafe_code)]
fn set_option(option: mi_option_t, value: c_long) {
    // SAFETY: writes one number of the same table, by an index that was just read there: an aligned word, which the
    // library itself fills in from whatever thread asks for it first. Whoever reads it meanwhile has the old number or
    // the new one; either only says when memory goes back to the system, never which memory.
    unsafe { mi_option_set(option, value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_memory_is_given_back_soon() {
        assert_eq!(option(PURGE_DELAY), PURGE_DELAY_DEFAULT, "the library has changed: look at its options again");
        give_back_soon();
        assert_eq!(option(PURGE_DELAY), PURGE_DELAY_WANTED);
    }

    #[test]
    fn an_idle_thread_gives_back_what_it_freed() {
        let before = resident_kib();
        let pieces: Vec<Vec<u8>> = (0..16 * 1024).map(|_| vec![1; 8 * 1024]).collect();
        let with = resident_kib();
        assert!(with > before + 100 * 1024, "{before} KiB before, {with} KiB with 128 MiB allocated");
        drop(pieces);
        give_back_when_idle();
        let after = resident_kib();
        assert!(after < before + 50 * 1024, "{before} KiB before, {after} KiB after everything was freed");
    }

    /// What the process has in memory.
    fn resident_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }
}
