//! Decisions: commands run against the durable state plus an overlay of what was decided and is not durable yet.

pub(super) mod decision;
pub(super) mod growth;
pub(super) mod overlay;
pub(super) mod overlay_map;
pub(super) mod stored_reply;
pub(super) mod until_known;
