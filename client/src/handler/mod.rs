//! Handlers: a piece of work done once per event, by any number of programs ([`Runner`]).
//!
//! - The work is begun only under a live claim, and is given the claim with its fencing token. A claim that is lost, or
//!   that could not be kept alive, cancels the work where it stands.
//! - Events of one aggregate are worked on one after another, in order; many aggregates at a time, up to a bound.
//! - What came of the work is said to the broker: done, with the events it produced and the offset in the same append; or
//!   failed, with the error's class and message. What failed is tried again when the broker says so.
//! - While the broker is away nothing is begun; the runner says that it is paused, and goes on by itself.
//! - Asked to stop, it finishes what it is at, or hands it back.
//!
//! A worker may die after its effect and before it could say so. Then the event is worked on again, and whether the effect
//! happens twice is up to the effect: it keeps the event's id (or the token) where the effect is, or produces events, which
//! are stored with the completion or not at all. `docs/clients.md` has the recipes.

mod availability;
mod error;
mod event_handler;
mod heartbeat;
mod lanes;
mod once;
mod options;
mod progress;
mod runner;
mod shared_group_source;
mod source;
mod sweep;
mod work;

pub use error::HandlerError;
pub use event_handler::{EventHandler, WorkError, WorkOutput};
pub use once::{WorkOutcome, once};
pub use options::{HandlerOptions, RunnerState, StartPosition, WorkDivision};
pub use runner::{HandlerRunner, run};
