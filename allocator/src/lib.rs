//! The program's memory allocator, and how soon it gives back what was freed.
//!
//! - What a request allocates on one thread another one frees; the system's allocator takes a lock for that.
//!   `bench alone --callers 256 --batch 1` shows the difference when it is built without this: about a third.
//! - A program that uses this crate has the allocator; there is nothing to switch on.

use libmimalloc_sys::{mi_collect, mi_option_get, mi_option_set, mi_option_t};
use std::cell::Cell;
use std::ffi::c_long;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long freed memory is kept, in milliseconds. The library names no constant for it; see [`give_back_soon`].
const PURGE_DELAY: mi_option_t = 15;
/// What that is where nobody has said otherwise.
const PURGE_DELAY_DEFAULT: c_long = 1000;
/// What it is to be: long enough that what the next request needs is not given away first. A busy broker frees tens of
/// megabytes a second: its tables' rows when they go to disk, its indexes when a segment is sealed.
/// `MIMALLOC_PURGE_DELAY=1000 bench dispatch` shows what it takes to keep them for a second.
const PURGE_DELAY_WANTED: c_long = 100;

/// Has freed memory given back to the system after a moment instead of a second. Call it first thing in `main`.
///
/// An operator's `MIMALLOC_PURGE_DELAY` stands; and should a later version of the library number its options in another
/// way, nothing is changed, because the default is not found where it is looked for.
pub fn give_back_soon() {
    if std::env::var_os("MIMALLOC_PURGE_DELAY").is_none() && option(PURGE_DELAY) == PURGE_DELAY_DEFAULT {
        set_option(PURGE_DELAY, PURGE_DELAY_WANTED);
    }
}

/// How often a thread looks for memory to give back.
const COLLECT_EVERY: Duration = Duration::from_secs(5);

/// Gives back what this thread keeps and has no use for, at most once in five seconds. Call it when a thread has nothing to
/// do: by itself the allocator gives memory back only while it is asked for more, so a server that ten thousand
/// connections have left would keep what they had for as long as nobody comes.
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
