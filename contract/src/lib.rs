//! The vocabulary of the event broker: what a client, an embedder and the broker itself agree on.
//!
//! - One word for one idea; the type here is the wire shape, there is no second copy to map to.
//! - Identifiers are parsed at the border: whoever holds a [`TopicId`] holds a valid one.
//! - Numbers that mean something are types: a [`Position`] never passes for a [`Sequence`].
//! - `data` is kept as the JSON text it arrived in, never parsed and printed again.
//! - Every refusal is an [`Error`] of one closed table ([`Kind`]).
//!
//! Nothing here does I/O or reads a clock; storage is `log`'s business, decisions are the broker's.

mod breaker;
mod broker;
mod claim;
mod cloud_event;
mod consumer;
mod dead_letter;
mod delivery_auth;
mod dispatch_job;
mod duration;
mod error;
mod event;
mod event_type;
mod given;
mod handler;
mod identifier;
mod json;
pub mod limits;
mod media_type;
mod numbers;
mod object;
mod projection;
mod query;
mod replay;
mod republish;
mod subscription;
mod timestamp;
mod topic;
mod version;

pub use breaker::{BreakerState, TargetBreaker};
pub use broker::{BoxFuture, EventBroker};
pub use claim::{
    Attempt, Claim, ClaimAnswer, ClaimCompletion, ClaimError, ClaimOrder, ClaimOutcome, ClaimStatus, Completion,
    Failure, NewClaim,
};
pub use cloud_event::CloudEvent;
pub use consumer::{Consumer, ConsumerGroup, Distribution, GroupReset, GroupTopic, Member, NewConsumer, ResetTo};
pub use dead_letter::{
    DeadLetter, LetterCount, LetterFilter, LetterOrder, LetterSource, LetterStatus, LetterSummary, LettersResolved,
    Redrive, RedriveOverride, Resolution,
};
pub use delivery_auth::DeliveryAuth;
pub use dispatch_job::{
    AttemptError, DispatchJob, JobAttempt, JobDeferral, JobFilter, JobKind, JobStatus, NewTask, Pool, PoolChange,
    usual_schedule,
};
pub use duration::Span;
pub use error::{Error, Kind, Result, Violation};
pub use event::{
    Actor, ActorType, Atomicity, BatchOutcome, Event, NewEvent, Outcome, ProducerId, Published, StoredEvent, Unread,
};
pub use event_type::{EventType, NewEventType, SchemaTarget};
pub use handler::{Handler, HandlerTopic, NewHandler};
pub use identifier::{
    EventTypeId, IdPattern, Identifier, Profile, SubjectTypeId, TopicId, encode_identifier, under_profile,
};
pub use json::{NUMBER_TOO_LARGE, StrictJson, digest_form, parse_strict};
pub use media_type::{MediaType, unquote};
pub use numbers::{AggregateSequence, Generation, Offset, Position, Sequence, Token};
pub use projection::{Lag, NewCheckpoint, NewProjection, Projection};
pub use query::{
    Aggregate, AggregateEvents, AggregateRead, Cursor, EventPage, Filter, LogPage, LogRead, Page, Read, ReadOffset,
    Segment, Segments,
};
pub use replay::{BlockedGroup, GroupVerbs, NewReplay, Replay, ReplayEdge, Replayed};
pub use republish::{Compact, Counted, Republish, RepublishTarget, Trim};
pub use subscription::{
    DeliveryFormat, DispatchMode, NewSecret, NewSubscription, Pause, Signing, SigningKind, StartFrom, Subscription,
    SubscriptionChange, SubscriptionMade, SubscriptionStatus, TypeBinding,
};
pub use timestamp::Timestamp;
pub use topic::{
    Cleanup, DeduplicateBy, DryRun, NewTopic, Normalisation, PayloadMismatch, Registered, Streaming, StreamingOptions,
    Topic, TopicChange,
};
pub use version::{NewVersion, SchemaType, SchemaVersion, Version, VersionStatus};
