//! The file engine under torn writes, flipped bits, failing disks and power cuts.

mod damage;
mod faults;
mod index;
mod power_cut;
mod recovery;
mod rewriting;
mod support;
