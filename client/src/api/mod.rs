//! The methods of the contract over HTTP: each is one request, except the lists that the contract returns whole.
//!
//! - Frequent writes that have the same effect when they are repeated (publishing under an id, committing, checkpoints,
//!   heartbeats, done, failed) are sent as they are. Every other write carries an `Idempotency-Key`, one per call.

mod claims;
mod consumers;
mod dead_letters;
mod dispatch_jobs;
mod event_types;
mod events;
mod handlers;
mod pools;
mod projections;
mod subscriptions;
mod topics;
