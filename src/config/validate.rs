//! Checks the values of the configuration: each by itself, and together.
//!
//! - A value must have the type of its key and be within its bounds ([`fits`]).
//! - The values in force must be consistent ([`values`]).
//! - A default follows a related value that was set, such as its maximum ([`derive_defaults`]); a value that was set
//!   never changes silently.

use super::keys::{ConfigKey, ValueType};
use super::suggestion::nearest;
use super::yaml::{YamlNode, YamlValue};
use super::{Config, HostPattern, StorageConfig, StorageEngine, ValueSources, WebOrigin};
use std::io::ErrorKind;
use std::path::Path;

/// Whether a value fits its key; `Err` says what is expected.
pub(super) fn fits(key: &ConfigKey, node: &YamlNode) -> Result<(), String> {
    let refusal = || Err(format!("expected {}, found {}", key.expects, found(&node.value)));
    match (key.expects, &node.value) {
        (_, YamlValue::Nothing) if key.optional => Ok(()),
        (ValueType::Flag, YamlValue::Flag(_)) => Ok(()),
        (ValueType::Number { min, max, .. }, YamlValue::Number(number)) => match number.as_u64() {
            Some(number) if (min..=max).contains(&number) => Ok(()),
            _ => refusal(),
        },
        (ValueType::Word(words), YamlValue::Text(text)) => fits_words(key, words, text),
        (ValueType::Text(_), YamlValue::Text(text)) if text.trim().is_empty() => {
            Err(format!("expected {}, found an empty text", key.expects))
        }
        (ValueType::Text(_), YamlValue::Text(_)) => Ok(()),
        (ValueType::Text(_) | ValueType::Word(_), YamlValue::Flag(_) | YamlValue::Number(_)) => Err(format!(
            "expected {}, found {}; put text that looks like one in quotes",
            key.expects,
            node.value.name()
        )),
        (ValueType::Texts(_), YamlValue::List(items)) => match items.iter().find_map(|item| odd_text(&item.value)) {
            Some(odd) => Err(format!("expected {}, found {odd} in the list", key.expects)),
            None => Ok(()),
        },
        (ValueType::Items(_), YamlValue::List(_)) => Ok(()),
        _ => refusal(),
    }
}

fn fits_words(key: &ConfigKey, words: &'static [&'static str], text: &str) -> Result<(), String> {
    if words.contains(&text) {
        return Ok(());
    }
    let suggestion = nearest(text, words.iter().copied()).unwrap_or_default();
    Err(format!("expected {}; did you mean `{suggestion}`?", key.expects))
}

/// Describes a value: numbers by their value, since no number is a secret; texts by their type only.
fn found(value: &YamlValue) -> String {
    match value {
        YamlValue::Number(number) => number.to_string(),
        other => other.name().to_owned(),
    }
}

/// The first invalid member of a list of texts, if there is one.
fn odd_text(value: &YamlValue) -> Option<String> {
    match value {
        YamlValue::Text(text) if text.trim().is_empty() => Some("an empty text".to_owned()),
        YamlValue::Text(_) => None,
        other => Some(found(other)),
    }
}

/// Lowers defaults to maxima that were set; if a database is configured, it is the log.
pub(super) fn derive_defaults(config: &mut Config, sources: &ValueSources) {
    if config.storage.url.is_some() && sources.is_default("storage.type") {
        config.storage.engine = StorageEngine::Database;
    }
    let (polling, consumer) = (&mut config.polling, &mut config.consumer);
    if sources.is_default("polling.default_timeout_secs") {
        polling.default_timeout_secs = polling.default_timeout_secs.min(polling.max_timeout_secs);
    }
    if sources.is_default("consumer.default_limit") {
        consumer.default_limit = consumer.default_limit.min(consumer.max_limit);
    }
    let server = &mut config.server;
    if sources.is_default("server.max_connections_per_address") {
        let half = (server.max_connections / 2).max(1);
        server.max_connections_per_address = server.max_connections_per_address.min(half);
    }
    let storage = &mut config.storage;
    if sources.is_default("storage.free_space_refuse_bytes") && storage.free_space_warn_bytes > 0 {
        storage.free_space_refuse_bytes = storage.free_space_refuse_bytes.min(storage.free_space_warn_bytes);
    }
    let claims = &mut config.claims;
    if sources.is_default("claims.heartbeat_secs") {
        claims.heartbeat_secs = claims.heartbeat_secs.min((claims.lease_secs / 3).max(1));
    }
}

/// The inconsistencies between values in force: the key to change, and the reason.
pub(super) fn values(config: &Config, sources: &ValueSources) -> Vec<(String, String)> {
    let mut wrong = Vec::new();
    let mut refuse = |key: &str, detail: String| wrong.push((key.to_owned(), detail));
    let above =
        |what: u64, key: &str, max: u64| format!("is {what}, above `{key}`, which is {max} ({})", sources.of(key));
    let Config { polling, consumer, claims, server, batch, .. } = config;
    if polling.default_timeout_secs > polling.max_timeout_secs {
        let detail = above(polling.default_timeout_secs, "polling.max_timeout_secs", polling.max_timeout_secs);
        refuse("polling.default_timeout_secs", detail);
    }
    if consumer.default_limit > consumer.max_limit {
        let detail = above(consumer.default_limit as u64, "consumer.max_limit", consumer.max_limit as u64);
        refuse("consumer.default_limit", detail);
    }
    // With a lease of one second, no shorter heartbeat in whole seconds is possible.
    if claims.heartbeat_secs >= claims.lease_secs.max(2) {
        let detail = above(claims.heartbeat_secs, "claims.lease_secs", claims.lease_secs).replace("above", "not below");
        refuse("claims.heartbeat_secs", detail);
    }
    if batch.max_payload_bytes > server.max_inflight_bytes {
        let max = server.max_inflight_bytes as u64;
        refuse("batch.max_payload_bytes", above(batch.max_payload_bytes as u64, "server.max_inflight_bytes", max));
    }
    let (warn, refused) = (config.storage.free_space_warn_bytes, config.storage.free_space_refuse_bytes);
    if refused > warn && warn > 0 {
        refuse("storage.free_space_refuse_bytes", above(refused, "storage.free_space_warn_bytes", warn));
    }
    if let Some(detail) = odd_level(&config.logging.level) {
        refuse("logging.level", detail);
    }
    let client_auth_is_set = !sources.is_default("server.tls.client_auth");
    config.server.tls.faults(client_auth_is_set).into_iter().for_each(|(key, detail)| refuse(key, detail.to_owned()));
    browsers(config, &mut refuse);
    databases(config, &mut refuse);
    folders(config, &mut refuse);
    repeated(config, &mut refuse);
    reserved(config, &mut refuse);
    wrong
}

/// Checks the accepted hosts, and the origins whose pages may call the server.
fn browsers(config: &Config, refuse: &mut impl FnMut(&str, String)) {
    for (index, host) in config.server.allowed_hosts.iter().enumerate() {
        if let Err(detail) = HostPattern::parse(host) {
            refuse(&format!("server.allowed_hosts[{index}]"), detail.to_owned());
        }
    }
    for (index, origin) in config.server.cors.allowed_origins.iter().enumerate() {
        if let Some(detail) = odd_origin(origin) {
            refuse(&format!("server.cors.allowed_origins[{index}]"), detail.to_owned());
        }
    }
}

/// Checks that a database has a URL, and that URLs have a known scheme.
fn databases(config: &Config, refuse: &mut impl FnMut(&str, String)) {
    let StorageConfig { engine, url, owner_url, maintenance_url, .. } = &config.storage;
    if *engine == StorageEngine::Database && url.is_none() {
        refuse("storage.type", "is `database`, but `storage.url` does not say which".to_owned());
    }
    for (key, url) in [("url", url), ("owner_url", owner_url), ("maintenance_url", maintenance_url)] {
        let Some(url) = url else { continue };
        if !["postgres://", "postgresql://"].iter().any(|scheme| url.0.starts_with(scheme)) {
            refuse(&format!("storage.{key}"), "expected a URL such as `postgres://user@host/name`".to_owned());
        }
    }
}

/// Checks that the log's folder can be used, and that topics' own folders are outside of it.
fn folders(config: &Config, refuse: &mut impl FnMut(&str, String)) {
    let storage = &config.storage;
    if storage.engine != StorageEngine::Memory
        && let Some(detail) = unusable(&storage.path)
    {
        refuse("storage.path", detail);
    }
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    for (index, location) in storage.locations.iter().enumerate() {
        let key = format!("storage.locations[{index}]");
        if absolute(location).starts_with(absolute(&storage.path)) {
            refuse(&key, "must lie outside `storage.path`".to_owned());
        } else if storage.locations.iter().take(index).any(|earlier| absolute(earlier) == absolute(location)) {
            refuse(&key, "is in the list twice".to_owned());
        } else if let Some(detail) = unusable(location) {
            refuse(&key, detail);
        }
    }
}

/// Why a path cannot be used as a folder, if that can be seen now. A missing folder is created later.
fn unusable(path: &Path) -> Option<String> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => None,
        Ok(_) => Some("is not a folder".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => Some(format!("cannot be used: {error}")),
    }
}

/// Refuses what is declared twice.
fn repeated(config: &Config, refuse: &mut impl FnMut(&str, String)) {
    for (index, topic) in config.topics.iter().enumerate() {
        if config.topics.iter().take(index).any(|earlier| earlier.id == topic.id) {
            refuse(&format!("topics[{index}].id"), "is declared twice".to_owned());
        }
    }
    for (index, event_type) in config.event_types.iter().enumerate() {
        if config.event_types.iter().take(index).any(|earlier| earlier.id == event_type.id) {
            refuse(&format!("event_types[{index}].id"), "is declared twice".to_owned());
        }
    }
}

/// Refuses declarations of, and routes to, the broker's own topics.
fn reserved(config: &Config, refuse: &mut impl FnMut(&str, String)) {
    let topics = config.topics.iter().enumerate().map(|(index, topic)| (format!("topics[{index}].id"), &topic.id));
    let types = config.event_types.iter().enumerate();
    let types = types.filter_map(|(index, it)| Some((format!("event_types[{index}].topic"), it.topic.as_ref()?)));
    let routes = config.routes.iter().enumerate();
    let routes = routes.map(|(index, route)| (format!("routes[{index}].topic"), &route.topic));
    let default = config.default_topic.iter().map(|topic| ("default_topic".to_owned(), topic));
    for (key, topic) in topics.chain(types).chain(routes).chain(default) {
        if topic.is_reserved() {
            refuse(&key, "belongs to the broker: ids that contain `hx.broker.` are reserved".to_owned());
        }
    }
}

/// What is wrong with a level, or with levels by target.
fn odd_level(level: &str) -> Option<String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let is_target = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '-'))
    };
    level.split(',').map(str::trim).find_map(|directive| {
        let (target, level) = directive.rsplit_once('=').unwrap_or(("all", directive));
        if LEVELS.contains(&level) && is_target(target) {
            return None;
        }
        let suggestion = nearest(level, LEVELS.into_iter()).unwrap_or_default();
        Some(format!("expected {}, or levels by target; did you mean `{suggestion}`?", LEVELS.join(", ")))
    })
}

/// What is wrong with an origin. A browser sends a scheme, a host and perhaps a port.
fn odd_origin(origin: &str) -> Option<&'static str> {
    if origin == "*" {
        return Some(
            "`*` would let every web page read and write everything, because no authentication is configured; list the \
             origins",
        );
    }
    WebOrigin::parse(origin)
        .is_none()
        .then_some("expected a scheme and a host without a path, such as `https://example.com`")
}
