//! Subscriptions: standing orders to deliver matching events of a topic to a target.
//!
//! - A definition is plain values. Secrets are part of a request and are never returned again.
//! - An optional member has one default, which its field documents.

use crate::object::object;
use crate::patch::{nullable, required};
use crate::{DeliveryAuth, IdPattern, IsoDuration, Offset, TargetBreaker, Timestamp, TopicId, limits};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use uuid::Uuid;

/// A definition of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct NewSubscription {
    /// Its unique name for programs.
    pub code: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The topic whose events are delivered.
    pub topic: TopicId,
    /// The event types; empty: all types of the topic.
    #[serde(default)]
    pub event_types: Vec<TypeBinding>,
    /// Only events for which this CEL expression is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Only events of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Uuid>,
    /// The URL to which they are posted.
    pub target: String,
    /// The order of deliveries.
    #[serde(default)]
    pub mode: DispatchMode,
    /// The pool whose concurrency and rate it shares; `default` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The time-out of one whole attempt, in seconds.
    #[serde(default = "thirty")]
    pub timeout_seconds: u32,
    /// The maximum age of a job in seconds, from the arrival of its event, or from the creation of the subscription if that is
    /// later. An older job is not delivered.
    #[serde(default = "a_day")]
    pub max_age_seconds: u32,
    /// How long an event waits before it is delivered, in seconds; less than the maximum age.
    #[serde(default)]
    pub delay_seconds: u32,
    /// The priority if several subscriptions wait for one pool: the lowest number is first.
    #[serde(default = "ninety_nine")]
    pub sequence: u32,
    /// The maximum number of attempts; one more than the number of waits in the schedule when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The waits between attempts; the last one repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_schedule: Option<Vec<IsoDuration>>,
    /// Whether only `data` is sent.
    #[serde(default)]
    pub data_only: bool,
    /// The format of deliveries.
    #[serde(default)]
    pub format: DeliveryFormat,
    /// Additional headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// How deliveries are signed; with a new secret when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing: Option<SigningSettings>,
    /// Additional credentials of deliveries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<DeliveryAuth>,
    /// Whether the receiver must consent first, by the handshake of the CloudEvents webhook specification.
    #[serde(default)]
    pub handshake: bool,
    /// Values for other programs; the broker does not use them.
    #[serde(default)]
    pub custom_config: BTreeMap<String, String>,
    /// Where it starts.
    #[serde(default)]
    pub start_from: StartFrom,
}

object!(NewSubscription TypeBinding SigningSettings);

const fn thirty() -> u32 {
    30
}

const fn a_day() -> u32 {
    limits::JOB_AGE_SECONDS_DEFAULT
}

const fn ninety_nine() -> u32 {
    99
}

impl NewSubscription {
    /// A subscription to all new events of a topic, delivered to this target without order.
    #[must_use]
    pub fn new(code: impl Into<String>, topic: TopicId, target: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            name: None,
            description: None,
            topic,
            event_types: Vec::new(),
            filter: None,
            tenant: None,
            target: target.into(),
            mode: DispatchMode::default(),
            pool: None,
            timeout_seconds: thirty(),
            max_age_seconds: a_day(),
            delay_seconds: 0,
            sequence: ninety_nine(),
            max_attempts: None,
            retry_schedule: None,
            data_only: false,
            format: DeliveryFormat::default(),
            headers: BTreeMap::new(),
            signing: None,
            auth: None,
            handshake: false,
            custom_config: BTreeMap::new(),
            start_from: StartFrom::default(),
        }
    }
}

/// An event type of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct TypeBinding {
    /// The type, or a pattern of types.
    #[serde(rename = "type")]
    pub event_type: IdPattern,
    /// Only events of this schema version, `MAJOR.MINOR`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_version: Option<String>,
}

/// The order of the jobs of one message group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DispatchMode {
    /// No order.
    #[default]
    Immediate,
    /// One at a time. A failed job is retried by itself, and later jobs continue.
    NextOnError,
    /// One at a time. No later job passes a job that failed or waits for a retry.
    BlockOnError,
}

/// The format of deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeliveryFormat {
    /// The event as it is stored.
    #[default]
    Event,
    /// A CloudEvent as JSON.
    #[serde(rename = "cloudevents-structured")]
    CloudEventsStructured,
    /// A CloudEvent with its attributes in headers.
    #[serde(rename = "cloudevents-binary")]
    CloudEventsBinary,
}

/// How deliveries are signed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct SigningSettings {
    /// The standard.
    #[serde(rename = "type", default)]
    pub kind: SigningKind,
    /// The secrets, which all sign: `whsec_…` signs v1, `whsk_…` signs v1a. When absent, the broker makes one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

impl fmt::Debug for SigningSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signing({} secrets)", self.secrets.len())
    }
}

/// The standard of signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SigningKind {
    /// Standard Webhooks 1.0.
    #[default]
    StandardWebhooks,
}

/// Where a subscription starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StartFrom {
    /// With the next event.
    #[default]
    Latest,
    /// With the first stored event.
    Earliest,
    /// After this sequence.
    Offset(Offset),
    /// With the first event stored at this time or later.
    Time(Timestamp),
}

/// A change of a subscription. Absent members stay as they are; optional members can be removed by null.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SubscriptionChange {
    /// For people.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub name: Option<Option<String>>,
    /// For people.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub description: Option<Option<String>>,
    /// The event types.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub event_types: Option<Vec<TypeBinding>>,
    /// A CEL expression.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub filter: Option<Option<String>>,
    /// Only events of this tenant.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Option<Uuid>>,
    /// The URL.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The order.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub mode: Option<DispatchMode>,
    /// The pool.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub pool: Option<Option<String>>,
    /// The time-out of one attempt, in seconds.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// The maximum age of a job.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub max_age_seconds: Option<u32>,
    /// The wait before delivery.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<u32>,
    /// The priority.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u32>,
    /// The maximum number of attempts.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<Option<u32>>,
    /// The waits between attempts.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub retry_schedule: Option<Option<Vec<IsoDuration>>>,
    /// Whether only `data` is sent.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub data_only: Option<bool>,
    /// The format of deliveries.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub format: Option<DeliveryFormat>,
    /// Additional headers.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// The secrets, which replace all previous ones.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub signing: Option<SigningSettings>,
    /// The credentials of deliveries.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub auth: Option<Option<DeliveryAuth>>,
    /// Whether the receiver must consent first.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub handshake: Option<bool>,
    /// Values for other programs.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub custom_config: Option<BTreeMap<String, String>>,
}

impl SubscriptionChange {
    /// The definition with this change applied.
    #[must_use]
    pub fn applied_to(self, mut to: NewSubscription) -> NewSubscription {
        macro_rules! set {
            ($($member:ident)*) => {$( if let Some(value) = self.$member { to.$member = value; } )*};
        }
        set!(name description event_types filter tenant target mode pool timeout_seconds max_age_seconds delay_seconds
            sequence max_attempts retry_schedule data_only format headers handshake custom_config auth);
        if let Some(signing) = self.signing {
            to.signing = Some(signing);
        }
        to
    }
}

/// A subscription and its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subscription {
    /// Its id, assigned by the broker.
    pub id: Uuid,
    /// The definition, without its secrets.
    #[serde(flatten)]
    pub definition: NewSubscription,
    /// The kind of its credentials.
    #[serde(rename = "authType", skip_serializing_if = "Option::is_none")]
    pub auth_type: Option<String>,
    /// Its status.
    pub status: SubscriptionStatus,
    /// Why it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<PauseDetails>,
    /// The offset up to which all jobs are finished, except open ones.
    pub settled_through: Offset,
    /// The number of open jobs: those that failed and wait, or were given up.
    pub open_jobs: u64,
    /// Why new jobs wait although it is active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// Replays that are still running.
    pub replays: u64,
    /// The circuit breaker of its target; absent if another broker delivers, or none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<TargetBreaker>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// The status of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum SubscriptionStatus {
    /// It delivers.
    Active,
    /// Its jobs wait.
    Paused,
}

/// Why a subscription is paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PauseDetails {
    /// Since when.
    pub since: Timestamp,
    /// Who paused it; `broker` after a 410.
    pub by: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A new subscription with its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionWithSecret {
    /// The subscription.
    pub subscription: Subscription,
    /// The secret, if the broker made one.
    pub secret: Option<NewSecret>,
}

/// A secret, which is returned only once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewSecret {
    /// The secret. Empty in a stored reply that is returned again: the broker does not keep the secret.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub secret: String,
    /// What a receiver verifies signatures with, if that is not the secret itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// Until when the previous secrets sign as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_until: Option<Timestamp>,
}

impl fmt::Debug for NewSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewSecret(…)")
    }
}

/// How a subscription gets a new secret.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SecretRotation {
    /// For how many seconds the previous secrets sign as well; a day when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<u32>,
    /// Which kind of secret the broker makes; a symmetric one when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<SecretKind>,
}

/// Which kind of secret signs deliveries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretKind {
    /// Shared with the receiver.
    #[default]
    Symmetric,
    /// Kept by the broker; the receiver gets the public key.
    Asymmetric,
}
