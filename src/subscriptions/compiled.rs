//! Compiled subscriptions, ready to match events and to deliver them.
//!
//! - Compiled from a definition that was validated. If it fails, the secrets were sealed with another key, or another
//!   version wrote the definition.
//! - The cheapest check comes first: the type by its pattern (once per type, in the feeder's index), then tenant and
//!   CEL.

use super::vault::{SecretVault, SubscriptionSecrets};
use crate::delivery::{
    AuthMethod, ClientIdentity, CustomHeaders, DeliveryTarget, EventFormat, OAuthGrant, WebhookSecret, check_headers,
    check_secrets,
};
use crate::filters::{self, CompiledFilter, FilterStats};
use crate::ledger::SubscriptionRow;
use contract::{
    DeliveryAuth, DeliveryFormat, DispatchMode, EventFilter, Identifier, IsoDuration, NewSubscription, Result,
    TypeBinding, default_retry_schedule,
};
use log::{Record, RecordHeader};
use serde::Deserialize;
use std::time::Duration;
use uuid::Uuid;

/// The pool of subscriptions and tasks that name none.
pub(crate) const DEFAULT_POOL: &str = "default";

/// A compiled subscription.
pub(crate) struct CompiledSubscription {
    pub(crate) id: Uuid,
    pub(crate) code: String,
    pub(crate) topic: String,
    types: Vec<TypeBinding>,
    filter: CompiledFilter,
    pub(crate) mode: DispatchMode,
    pub(crate) pool: String,
    pub(crate) priority: u32,
    pub(crate) max_age_millis: i64,
    pub(crate) delay_millis: i64,
    pub(crate) delivery: DeliverySettings,
    secrets: Vec<(WebhookSecret, Option<i64>)>,
}

/// The settings of deliveries.
pub(crate) struct DeliverySettings {
    pub(crate) target: DeliveryTarget,
    pub(crate) format: EventFormat,
    pub(crate) headers: CustomHeaders,
    pub(crate) auth: AuthMethod,
    pub(crate) identity: Option<ClientIdentity>,
    pub(crate) timeout: Duration,
    pub(crate) retry: RetrySchedule,
}

impl DeliverySettings {
    /// Default settings for a URL: unsigned, without credentials.
    pub(crate) fn to(target: &str) -> Result<Self> {
        Ok(Self {
            target: DeliveryTarget::parse("/target", target)?,
            format: EventFormat::Envelope,
            headers: CustomHeaders::default(),
            auth: AuthMethod::None,
            identity: None,
            timeout: Duration::from_secs(30),
            retry: RetrySchedule::of(None, None),
        })
    }
}

/// How often a job is attempted, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RetrySchedule {
    /// The waits, in milliseconds; the last one repeats.
    pub(crate) schedule: Vec<i64>,
    pub(crate) attempts_max: u32,
}

impl RetrySchedule {
    /// The schedule of a subscription, or the default.
    pub(crate) fn of(schedule: Option<&[IsoDuration]>, attempts_max: Option<u32>) -> Self {
        let usual = default_retry_schedule();
        let schedule: Vec<i64> = schedule.unwrap_or(&usual).iter().map(IsoDuration::millis).collect();
        let tries = u32::try_from(schedule.len()).unwrap_or(u32::MAX).saturating_add(1);
        Self { schedule, attempts_max: attempts_max.unwrap_or(tries) }
    }
}

/// A definition with every default filled in, as callers see it.
pub(super) fn effective(stored: &NewSubscription) -> NewSubscription {
    let mut shown = stored.clone();
    let retry = RetrySchedule::of(stored.retry_schedule.as_deref(), stored.max_attempts);
    shown.pool.get_or_insert_with(|| DEFAULT_POOL.to_owned());
    shown.max_attempts = Some(retry.attempts_max);
    shown.retry_schedule.get_or_insert_with(default_retry_schedule);
    shown
}

/// What matching and sending need of an event besides its header.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventSummary {
    #[serde(rename = "type")]
    pub(crate) event_type: String,
    pub(crate) data_version: Option<String>,
    pub(crate) message_group: Option<String>,
    pub(crate) subject: Option<String>,
    pub(crate) subject_type: Option<String>,
    pub(crate) trace_parent: Option<String>,
}

impl EventSummary {
    pub(crate) fn at(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// The message group that it names, or its aggregate.
    pub(crate) fn group(&self) -> Option<String> {
        let aggregate = || {
            let subject = self.subject.as_ref()?;
            Some(match &self.subject_type {
                Some(subject_type) => format!("{subject_type}/{subject}"),
                None => subject.clone(),
            })
        };
        self.message_group.clone().or_else(aggregate)
    }
}

impl CompiledSubscription {
    /// Compiles a stored subscription, with its secrets.
    pub(crate) fn of(row: &SubscriptionRow, vault: &SecretVault) -> Result<Self> {
        let secrets = vault.unseal(row.id, row.sealed.as_deref())?;
        Self::compile(row.id, &row.definition, &secrets, true)
    }

    /// Compiles a stored subscription to match events only: without secrets it signs and authorises nothing.
    pub(crate) fn without_secrets(row: &SubscriptionRow) -> Result<Self> {
        Self::compile(row.id, &row.definition, &SubscriptionSecrets::default(), true)
    }

    /// Compiles a definition; an error names the invalid member.
    pub(crate) fn compile(
        id: Uuid,
        it: &NewSubscription,
        secrets: &SubscriptionSecrets,
        allow_private: bool,
    ) -> Result<Self> {
        let filter =
            EventFilter { tenants: it.tenant.into_iter().collect(), cel: it.filter.clone(), ..EventFilter::default() };
        let (auth, identity) = authorised(secrets.auth.as_ref(), allow_private)?;
        let texts: Vec<_> = secrets.signing.iter().map(|secret| secret.text.as_str()).collect();
        let signing = check_secrets("/signing/secrets", &texts)?;
        let until = secrets.signing.iter().map(|secret| secret.until);
        Ok(Self {
            id,
            code: it.code.clone(),
            topic: it.topic.to_string(),
            types: it.event_types.clone(),
            filter: filters::compile(&filter)?,
            mode: it.mode,
            pool: it.pool.clone().unwrap_or_else(|| DEFAULT_POOL.to_owned()),
            priority: it.sequence,
            max_age_millis: i64::from(it.max_age_seconds) * 1000,
            delay_millis: i64::from(it.delay_seconds) * 1000,
            delivery: DeliverySettings {
                target: DeliveryTarget::parse("/target", &it.target)?,
                format: event_format(it),
                headers: headers(it, secrets.auth.as_ref())?,
                auth,
                identity,
                timeout: Duration::from_secs(it.timeout_seconds.into()),
                retry: RetrySchedule::of(it.retry_schedule.as_deref(), it.max_attempts),
            },
            secrets: signing.into_iter().zip(until).collect(),
        })
    }

    /// Whether events of this type may match.
    pub(crate) fn matches_type(&self, event_type: &str) -> bool {
        let Ok(id) = Identifier::parse(event_type) else { return false };
        self.types.is_empty() || self.types.iter().any(|binding| binding.event_type.matches(&id))
    }

    /// Whether this event, whose type matches, matches the rest of the filter.
    pub(crate) fn matches_filter(&self, record: &Record, failures: &mut FilterStats) -> bool {
        (self.filter.is_empty() && record.header.facets.is_some() || self.filter.matches(record, failures))
            && (self.types.iter().all(|binding| binding.data_version.is_none()) || self.matches_version(&record.body))
    }

    /// Whether an event matches.
    pub(crate) fn matches(&self, record: &Record, failures: &mut FilterStats) -> bool {
        let by_type = || EventSummary::at(&record.body).is_some_and(|summary| self.matches_type(&summary.event_type));
        (self.types.is_empty() || by_type()) && self.matches_filter(record, failures)
    }

    /// Whether a damaged event may match, by its header and its type, if that is known: whatever the body decides counts as
    /// met, so that no event is passed over because it is damaged.
    pub(crate) fn may_match(&self, header: &RecordHeader, event_type: Option<&str>) -> bool {
        event_type.is_none_or(|event_type| self.matches_type(event_type)) && self.filter.may_match(header, event_type)
    }

    fn matches_version(&self, text: &[u8]) -> bool {
        let Some(summary) = EventSummary::at(text) else { return false };
        let Ok(id) = Identifier::parse(&summary.event_type) else { return false };
        self.types.iter().any(|binding| {
            let version = binding.data_version.as_ref();
            binding.event_type.matches(&id)
                && version.is_none_or(|version| summary.data_version.as_deref() == Some(version))
        })
    }

    /// The secrets that sign at `now`.
    pub(crate) fn signing(&self, now: i64) -> Vec<WebhookSecret> {
        let signs = self.secrets.iter().filter(|(_, until)| until.is_none_or(|until| until > now));
        signs.map(|(secret, _)| secret.clone()).collect()
    }
}

/// The custom headers, with the one that carries the API key.
fn headers(it: &NewSubscription, auth: Option<&DeliveryAuth>) -> Result<CustomHeaders> {
    let headers = check_headers("/headers", it.headers.iter().map(|(name, it)| (name.as_str(), it.as_str())))?;
    match auth {
        Some(DeliveryAuth::ApiKey { header, key }) => headers.with_key("/auth", header, key),
        _ => Ok(headers),
    }
}

fn event_format(it: &NewSubscription) -> EventFormat {
    match it.format {
        DeliveryFormat::Event if it.data_only => EventFormat::DataOnly,
        DeliveryFormat::Event => EventFormat::Envelope,
        DeliveryFormat::CloudEventsStructured => EventFormat::CloudEventsStructured,
        DeliveryFormat::CloudEventsBinary => EventFormat::CloudEventsBinary,
    }
}

fn authorised(auth: Option<&DeliveryAuth>, allow_private: bool) -> Result<(AuthMethod, Option<ClientIdentity>)> {
    Ok(match auth {
        None => (AuthMethod::None, None),
        Some(DeliveryAuth::Bearer { token }) => (AuthMethod::bearer("/auth/token", token)?, None),
        Some(DeliveryAuth::Basic { username, password }) => (AuthMethod::basic("/auth", username, password)?, None),
        // The key is one of the headers.
        Some(DeliveryAuth::ApiKey { .. }) => (AuthMethod::None, None),
        Some(DeliveryAuth::Mtls { certificate, key }) => {
            (AuthMethod::None, Some(ClientIdentity::parse("/auth", certificate, key)?))
        }
        Some(DeliveryAuth::OAuth2 { token_url, client_id, client_secret, scope, audience }) => {
            let grant = OAuthGrant {
                token_url,
                client_id,
                client_secret,
                scope: scope.as_deref(),
                audience: audience.as_deref(),
                secret_in_form: false,
            };
            (AuthMethod::oauth2("/auth", grant, allow_private)?, None)
        }
    })
}
