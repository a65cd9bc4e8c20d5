//! The broker's interface for Rust programs: the same traits for a broker in this process and for one over HTTP.
//!
//! - One trait per noun; [`EventBroker`] is all of them. Every trait is object safe.
//! - `Ok` of a method that writes means that the effect is durable. `Err` means that nothing was changed, unless the
//!   method says otherwise.
//! - A method that waits ends after its time-out with what there is then.
//! - Lists are pages: `cursor` continues a list where the page before it ended.
//! - `by` names the caller, for the record of who did it.
//!
//! `use contract::api::*;` brings all methods into scope.

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

pub use claims::ClaimApi;
pub use consumers::ConsumerApi;
pub use dead_letters::DeadLetterApi;
pub use dispatch_jobs::DispatchJobApi;
pub use event_types::EventTypeApi;
pub use events::EventApi;
pub use handlers::HandlerApi;
pub use pools::PoolApi;
pub use projections::ProjectionApi;
pub use subscriptions::SubscriptionApi;
pub use topics::TopicApi;

use std::pin::Pin;

/// A future that can be moved to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Everything that a program can request from the broker. Hold it as `Arc<dyn EventBroker>`.
pub trait EventBroker:
    TopicApi
    + EventTypeApi
    + EventApi
    + ConsumerApi
    + ProjectionApi
    + ClaimApi
    + HandlerApi
    + DeadLetterApi
    + SubscriptionApi
    + PoolApi
    + DispatchJobApi
{
}

impl<B> EventBroker for B where
    B: TopicApi
        + EventTypeApi
        + EventApi
        + ConsumerApi
        + ProjectionApi
        + ClaimApi
        + HandlerApi
        + DeadLetterApi
        + SubscriptionApi
        + PoolApi
        + DispatchJobApi
        + ?Sized
{
}
