//! The ledger's files beside the log: on-disk tables and checkpoints. All of them can be rebuilt from the log.

pub(super) mod checkpoint;
pub(super) mod row_codec;
pub(super) mod table;
