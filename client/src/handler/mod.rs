//! Handlers: work that is done once per event, by any number of programs ([`HandlerRunner`]).
//!
//! - The work starts only under a live claim, and receives the claim with its fencing token. If the claim is lost or cannot be
//!   kept alive, the work is cancelled.
//! - Events of one aggregate are worked on one after another, in order; several aggregates at the same time, up to a limit.
//! - The result is reported to the broker: done, with the produced events and the offset in the same append; or failed, with
//!   the error's class and message. The broker decides when a failed event is tried again.
//! - While the broker is unavailable no work is started; the runner's state is `Paused`, and it resumes by itself.
//! - After the stop signal it finishes the work in flight, or releases its claims.
//!
//! A worker may die after its effect and before its report. Then the event is worked on again, and the effect itself must
//! prevent a second effect: it stores the event's id (or the token) with the effect, or it produces events, which are stored
//! with the completion or not at all. `docs/clients.md` has the recipes.

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
