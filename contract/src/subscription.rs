//! Subscriptions: standing orders to push matching events of a topic to a target.
//!
//! - A definition is plain values. Secrets come in with it and are never shown again.
//! - What may be absent has one default, said at its field.

use crate::object::object;
use crate::patch::{nullable, required};
use crate::{DeliveryAuth, IdPattern, IsoDuration, Offset, TargetBreaker, Timestamp, TopicId, limits};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use uuid::Uuid;

/// A subscription as one asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct NewSubscription {
    /// Its name for programs; no other subscription has it.
    pub code: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The topic whose events are pushed.
    pub topic: TopicId,
    /// Which types; none: all of the topic's.
    #[serde(default)]
    pub event_types: Vec<TypeBinding>,
    /// A CEL expression over the event's members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Only events of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Uuid>,
    /// The URL they are posted to.
    pub target: String,
    /// What order they keep.
    #[serde(default)]
    pub mode: DispatchMode,
    /// Whose concurrency and rate they share; `default` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// For one attempt as a whole, in seconds.
    #[serde(default = "thirty")]
    pub timeout_seconds: u32,
    /// A job that old is not delivered any more, in seconds from the event's arrival.
    #[serde(default = "a_day")]
    pub max_age_seconds: u32,
    /// How long an event waits before it is delivered, in seconds.
    #[serde(default)]
    pub delay_seconds: u32,
    /// Who goes first where several wait for one pool: the lower.
    #[serde(default = "ninety_nine")]
    pub sequence: u32,
    /// All tries of a job; one more than the schedule has waits when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The waits between tries; the last one repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_schedule: Option<Vec<IsoDuration>>,
    /// Whether `data` alone is sent.
    #[serde(default)]
    pub data_only: bool,
    /// What an event is sent as.
    #[serde(default)]
    pub format: DeliveryFormat,
    /// Headers of its own.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// How deliveries are signed; with a new secret when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing: Option<SigningSettings>,
    /// How deliveries are authorised besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<DeliveryAuth>,
    /// Whether the receiver is asked for its consent first, by the handshake of the CloudEvents webhook specification.
    #[serde(default)]
    pub handshake: bool,
    /// For whoever reads it; the broker does not.
    #[serde(default)]
    pub custom_config: BTreeMap<String, String>,
    /// Where it begins.
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
    /// Everything that arrives in a topic from now on, to this target, as fast as it goes.
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

/// Event types a subscription wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct TypeBinding {
    /// A type, or a pattern of types.
    #[serde(rename = "type")]
    pub event_type: IdPattern,
    /// Only events of this schema version, `MAJOR.MINOR`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_version: Option<String>,
}

/// What order the jobs of one message group keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DispatchMode {
    /// None.
    #[default]
    Immediate,
    /// One at a time; one that failed is tried again on its own while later ones go.
    NextOnError,
    /// One at a time; nothing passes one that failed or waits to be tried again.
    BlockOnError,
}

/// What an event is sent as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeliveryFormat {
    /// As it is stored.
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
    /// By which standard.
    #[serde(rename = "type", default)]
    pub kind: SigningKind,
    /// `whsec_…` signs v1, `whsk_…` signs v1a; every one signs. Absent: one is made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

impl fmt::Debug for SigningSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signing({} secrets)", self.secrets.len())
    }
}

/// By which standard deliveries are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SigningKind {
    /// Standard Webhooks 1.0.
    #[default]
    StandardWebhooks,
}

/// Where a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StartFrom {
    /// With what arrives from now on.
    #[default]
    Latest,
    /// With the first event there is.
    Earliest,
    /// Behind this sequence.
    Offset(Offset),
    /// With the first event stored at this time or later.
    Time(Timestamp),
}

/// What is to be different about a subscription. What is absent stays; what may be absent can be set to null.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SubscriptionChange {
    /// For people.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub name: Option<Option<String>>,
    /// For people.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub description: Option<Option<String>>,
    /// Which types.
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
    /// What order.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub mode: Option<DispatchMode>,
    /// Which pool.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub pool: Option<Option<String>>,
    /// For one attempt.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// The oldest that is delivered.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub max_age_seconds: Option<u32>,
    /// The wait before delivery.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<u32>,
    /// Who goes first.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u32>,
    /// All tries.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<Option<u32>>,
    /// The waits between tries.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub retry_schedule: Option<Option<Vec<IsoDuration>>>,
    /// Whether `data` alone is sent.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub data_only: Option<bool>,
    /// What an event is sent as.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub format: Option<DeliveryFormat>,
    /// Headers of its own.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// The secrets, all of them anew.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub signing: Option<SigningSettings>,
    /// How deliveries are authorised.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    pub auth: Option<Option<DeliveryAuth>>,
    /// Whether the receiver is asked first.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub handshake: Option<bool>,
    /// For whoever reads it.
    #[serde(deserialize_with = "required", skip_serializing_if = "Option::is_none")]
    pub custom_config: Option<BTreeMap<String, String>>,
}

impl SubscriptionChange {
    /// What it makes of a definition.
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

/// A subscription as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subscription {
    /// Made by the broker.
    pub id: Uuid,
    /// What was asked for, without its secrets.
    #[serde(flatten)]
    pub definition: NewSubscription,
    /// How it is authorised, in one word.
    #[serde(rename = "authType", skip_serializing_if = "Option::is_none")]
    pub auth_type: Option<String>,
    /// Whether it delivers.
    pub status: SubscriptionStatus,
    /// Why it does not, where the broker or a person said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<PauseDetails>,
    /// Everything up to here is settled, but for jobs that are listed as open.
    pub settled_through: Offset,
    /// Jobs that failed and wait, or were given up.
    pub open_jobs: u64,
    /// Why jobs that were not tried yet wait though it delivers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// Replays that are still running.
    pub replays: u64,
    /// Whether its target is called; absent where another broker delivers, or none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<TargetBreaker>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// Whether a subscription delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum SubscriptionStatus {
    /// It does.
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

/// A subscription that was made or given a new secret, with what is shown once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionWithSecret {
    /// The subscription.
    pub subscription: Subscription,
    /// The secret the broker made, if it made one.
    pub secret: Option<NewSecret>,
}

/// A secret that is shown once.
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
