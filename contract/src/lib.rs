//! The contract of the event broker: the types and traits that clients, embedding programs and the broker share.
//!
//! - One type per concept: the type is the wire format, and there is no second copy to map to.
//! - Identifiers are parsed where they enter the program: every [`TopicId`] is valid.
//! - Numbers with a meaning are types: a [`Position`] cannot be used as a [`Sequence`].
//! - `data` is kept as the JSON text that was received; it is never printed again.
//! - Every refusal is an [`Error`] of one closed table ([`Kind`]).
//!
//! Nothing here does I/O or reads a clock: `log` stores, and the broker decides.

pub mod api;
mod breaker;
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
mod handler;
mod identifier;
mod json;
pub mod limits;
mod media_type;
mod object;
mod page;
mod patch;
mod projection;
mod read;
mod replay;
mod republish;
mod schema_version;
mod segment;
mod sequence;
mod subscription;
mod timestamp;
mod topic;

pub use api::{BoxFuture, EventBroker};
pub use breaker::{BreakerState, TargetBreaker};
pub use claim::{
    Claim, ClaimAnswer, ClaimAttempt, ClaimCompletion, ClaimError, ClaimFailure, ClaimOrder, ClaimOutcome, ClaimStatus,
    Completion, NewClaim,
};
pub use cloud_event::CloudEvent;
pub use consumer::{Consumer, ConsumerGroup, Distribution, GroupMember, GroupReset, GroupTopic, NewConsumer, ResetTo};
pub use dead_letter::{
    BulkResolveOutcome, BulkResolveRequest, DeadLetter, DeadLetterCount, DeadLetterFilter, DeadLetterResolution,
    DeadLetterSource, DeadLetterStatus, DeadLetterSummary, RedriveOverride, RedriveRequest,
};
pub use delivery_auth::DeliveryAuth;
pub use dispatch_job::{
    AttemptError, DispatchJob, JobAttempt, JobDeferral, JobFilter, JobKind, JobStatus, NewTask, Pool, PoolChange,
    default_retry_schedule,
};
pub use duration::IsoDuration;
pub use error::{Error, Kind, Result, Violation};
pub use event::{
    Actor, ActorType, Atomicity, BatchOutcome, Event, ExportedEvent, ExportedMembers, ExportedNumbers, NewEvent,
    ProducerId, PublishOutcome, PublishedEvent, StoredEvent, UnreadableEvent,
};
pub use event_type::{EventType, NewEventType, SchemaTarget};
pub use handler::{Handler, HandlerTopic, NewHandler};
pub use identifier::{EventTypeId, IdPattern, Identifier, IdentifierProfile, SubjectTypeId, TopicId, under_profile};
pub use json::{NUMBER_TOO_LARGE, StrictJson, digest_form, parse_strict};
pub use media_type::{MediaType, unquote};
pub use page::{Cursor, Page};
pub use projection::{NewCheckpoint, NewProjection, Projection, ProjectionLag};
pub use read::{
    Aggregate, AggregateEvents, AggregateRead, EventFilter, EventPage, LogPage, LogRead, ReadOffset, TopicRead,
};
pub use replay::{BlockedGroup, GroupActions, NewReplay, Replay, ReplayBound, ReplayOutcome};
pub use republish::{CompactRequest, EventCount, RepublishOutcome, RepublishRequest, RepublishTarget, TrimRequest};
pub use schema_version::{NewVersion, RegisteredVersion, SchemaType, SchemaVersion, VersionStatus};
pub use segment::{Segment, TopicSegments};
pub use sequence::{AggregateSequence, FencingToken, Generation, Offset, Position, Sequence};
pub use subscription::{
    DeliveryFormat, DispatchMode, NewSecret, NewSubscription, PauseDetails, SecretKind, SecretRotation, SigningKind,
    SigningSettings, StartFrom, Subscription, SubscriptionChange, SubscriptionStatus, SubscriptionWithSecret,
    TypeBinding,
};
pub use timestamp::Timestamp;
pub use topic::{
    CleanupPolicy, DeduplicateBy, DryRunReport, NewTopic, PayloadMismatch, RegisterOutcome, SecretPolicy,
    StreamingOptions, StreamingSetting, SubjectNormalisation, Topic, TopicChange,
};
