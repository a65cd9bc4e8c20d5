//! The program's memory allocator, and how soon it gives back what was freed.
//!
//! - What a request allocates on one thread another one frees; the system's allocator takes a lock for that.
//!   `bench alone --callers 256 --batch 1` shows the difference when it is built without this: about a third.
//! - A program that uses this crate has the allocator; there is nothing to switch on.

use libmimalloc_sys::{mi_option_get, mi_option_set, mi_option_t};
use std::ffi::c_long;

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
}
