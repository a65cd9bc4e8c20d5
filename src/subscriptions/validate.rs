//! The rules for definitions.

use crate::config::DispatchConfig;
use crate::delivery::{DeliveryTarget, check_no_credentials, check_target};
use contract::{Error, Kind, NewSubscription, NewTask, Pool, Result, SchemaVersion, Violation, limits};
use uuid::Uuid;

/// Refuses a code of a new subscription that could be the id of another one: a path names a subscription by either.
pub(super) fn new_code(code: &str) -> Result<()> {
    match Uuid::parse_str(code) {
        Ok(_) => Err(Error::invalid("/code", "must not be a UUID: subscriptions are found by their id or code")),
        Err(_) => Ok(()),
    }
}

/// Refuses a definition that breaks a rule, naming every rule it breaks.
pub(super) fn subscription(it: &NewSubscription, allow_private: bool) -> Result<()> {
    let mut found = Vec::new();
    let mut refuse = |pointer: &str, detail: String| found.push(Violation::new(pointer, detail));
    code(&it.code).into_iter().for_each(|detail| refuse("/code", detail));
    for (pointer, text) in [("/name", &it.name), ("/description", &it.description)] {
        if text.as_ref().is_some_and(|text| text.chars().count() > limits::DESCRIPTION_CHARS_MAX) {
            refuse(pointer, format!("may have at most {} characters", limits::DESCRIPTION_CHARS_MAX));
        }
        if text.as_ref().is_some_and(|text| text.contains('\0')) {
            refuse(pointer, Violation::NUL.to_owned());
        }
    }
    if let Err(error) = check_target("/target", &it.target, allow_private) {
        error.violations().iter().for_each(|it| refuse(&it.pointer, it.detail.clone()));
    }
    if it.tenant.is_some_and(|tenant| tenant.is_nil()) {
        refuse("/tenant", Violation::NIL_TENANT.to_owned());
    }
    if it.event_types.len() > limits::TYPE_BINDINGS_MAX {
        refuse("/eventTypes", format!("may have at most {} members", limits::TYPE_BINDINGS_MAX));
    }
    for (index, binding) in it.event_types.iter().enumerate() {
        if binding.data_version.as_ref().is_some_and(|text| text.parse::<SchemaVersion>().is_err()) {
            refuse(&format!("/eventTypes/{index}/dataVersion"), "must be MAJOR.MINOR, such as 1.0".to_owned());
        }
    }
    let bounds = [
        ("/timeoutSeconds", it.timeout_seconds, 1, limits::DELIVERY_SECONDS_MAX),
        ("/maxAgeSeconds", it.max_age_seconds, 1, limits::JOB_SECONDS_MAX),
        ("/delaySeconds", it.delay_seconds, 0, limits::JOB_SECONDS_MAX),
        ("/sequence", it.sequence, 0, 1_000_000),
        ("/maxAttempts", it.max_attempts.unwrap_or(1), 1, limits::ATTEMPTS_MAX),
    ];
    for (pointer, value, min, max) in bounds {
        if !(min..=max).contains(&value) {
            refuse(pointer, format!("must be between {min} and {max}"));
        }
    }
    if it.delay_seconds >= it.max_age_seconds {
        refuse("/delaySeconds", "must be less than `maxAgeSeconds`, or no event would ever be delivered".to_owned());
    }
    schedule(it).into_iter().for_each(|detail| refuse("/retrySchedule", detail));
    if it.data_only && it.format != contract::DeliveryFormat::Event {
        refuse("/dataOnly", "goes with the format `event` only: a CloudEvent is more than its data".to_owned());
    }
    let config = it.custom_config.iter().any(|(name, value)| name.len() + value.len() > limits::REASON_BYTES_MAX);
    if it.custom_config.len() > limits::HEADERS_MAX || config {
        refuse("/customConfig", format!("may have at most {} members of moderate size", limits::HEADERS_MAX));
    }
    if it.custom_config.iter().any(|(name, value)| name.contains('\0') || value.contains('\0')) {
        refuse("/customConfig", Violation::NUL.to_owned());
    }
    refuse_if_any(found, "The subscription breaks the rules; see `errors`.")
}

fn schedule(it: &NewSubscription) -> Option<String> {
    let schedule = it.retry_schedule.as_ref()?;
    let longest = i64::from(limits::JOB_SECONDS_MAX) * 1000;
    match schedule.len() {
        0 => Some("must have at least one wait; `maxAttempts: 1` is for no second try".to_owned()),
        count if count > limits::SCHEDULE_MAX => Some(format!("may have at most {} waits", limits::SCHEDULE_MAX)),
        _ if schedule.iter().any(|wait| wait.millis() > longest) => {
            Some(format!("may have no wait longer than {} seconds", limits::JOB_SECONDS_MAX))
        }
        _ => None,
    }
}

/// What `exposure` needs to know of a definition.
pub(super) struct SecretExposure<'a> {
    pub(super) target: &'a str,
    /// Whether it has credentials, or signing secrets of the caller's own.
    pub(super) has_secrets: bool,
    /// The names of new headers.
    pub(super) headers: Vec<&'a str>,
}

pub(super) fn exposure(it: &SecretExposure<'_>, dispatch: &DispatchConfig) -> Result<()> {
    host("/target", it.target, dispatch)?;
    let target = DeliveryTarget::parse("/target", it.target)?;
    if it.has_secrets && !target.is_encrypted() && !dispatch.allow_private_targets {
        let detail = "must be https with `auth` or `signing`: over http anyone on the path can read and replay it; \
            `dispatch.allow_private_targets: true` allows it";
        return Err(Error::invalid("/target", detail));
    }
    check_no_credentials("/headers", it.headers.iter().copied())
}

/// Refuses a target whose host is not in `dispatch.allowed_hosts`.
pub(crate) fn host(pointer: &str, target: &str, dispatch: &DispatchConfig) -> Result<()> {
    match DeliveryTarget::parse(pointer, target)?.is_among(&dispatch.allowed_hosts) {
        true => Ok(()),
        false => Err(Error::invalid(pointer, "has a host that is not in `dispatch.allowed_hosts`")),
    }
}

/// Refuses a pool that breaks a rule, naming every rule it breaks.
pub(super) fn pool(pool: &Pool) -> Result<()> {
    let mut found = Vec::new();
    code(&pool.code).into_iter().for_each(|detail| found.push(Violation::new("/code", detail)));
    if !(1..=limits::POOL_CONCURRENCY_MAX).contains(&pool.concurrency) {
        let detail = format!("must be between 1 and {}", limits::POOL_CONCURRENCY_MAX);
        found.push(Violation::new("/concurrency", detail));
    }
    if pool.rate_per_minute.is_some_and(|rate| !(1..=limits::POOL_RATE_MAX).contains(&rate)) {
        found.push(Violation::new("/ratePerMinute", format!("must be between 1 and {}", limits::POOL_RATE_MAX)));
    }
    refuse_if_any(found, "The pool breaks the rules; see `errors`.")
}

/// Refuses a task that breaks a rule.
pub(crate) fn task(task: &NewTask, allow_private: bool) -> Result<()> {
    let mut found = Vec::new();
    if task.code.is_empty() || task.code.len() > limits::LABEL_BYTES_MAX || task.code.chars().any(char::is_control) {
        found.push(Violation::new("/code", format!("must have 1 to {} bytes", limits::LABEL_BYTES_MAX)));
    }
    if let Err(error) = check_target("/target", &task.target, allow_private) {
        found.extend(error.violations().iter().cloned());
    }
    if task.payload.get().len() > limits::TASK_BYTES_MAX {
        found.push(Violation::new("/payload", format!("may have at most {} bytes", limits::TASK_BYTES_MAX)));
    }
    if task.message_group.as_ref().is_some_and(|group| group.is_empty() || group.len() > limits::LABEL_BYTES_MAX) {
        found.push(Violation::new("/messageGroup", format!("must have 1 to {} bytes", limits::LABEL_BYTES_MAX)));
    }
    if task.message_group.as_ref().is_some_and(|group| group.contains('\0')) {
        found.push(Violation::new("/messageGroup", Violation::NUL));
    }
    refuse_if_any(found, "The task breaks the rules; see `errors`.")
}

/// Why a code is invalid: it is part of paths, before verbs and message groups.
fn code(code: &str) -> Option<String> {
    let is_code = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match (1..=limits::HEADER_NAME_BYTES_MAX).contains(&code.len()) && code.chars().all(is_code) {
        true => None,
        false => Some(format!("must have 1 to {} letters, digits, `-`, `_` or `.`", limits::HEADER_NAME_BYTES_MAX)),
    }
}

fn refuse_if_any(found: Vec<Violation>, detail: &'static str) -> Result<()> {
    match found.is_empty() {
        true => Ok(()),
        false => Err(Error::new(Kind::Validation, detail).with_violations(found)),
    }
}
