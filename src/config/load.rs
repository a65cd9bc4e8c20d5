//! Loads the configuration in force from its layers.
//!
//! - Later layers win: built-in defaults, the file, the environment, flags. A value is replaced as a whole, lists too.
//! - Every setting is checked against [`keys`] at its place, so that a refusal can name the place.
//! - All errors that can be found are reported together.

use super::keys::{self, ConfigKey, ENVIRONMENT_PREFIX, KEYS, ValueType};
use super::provenance::{KeySetting, ValueSource, ValueSources};
use super::suggestion::{nearest, nearest_path};
use super::yaml::{self, YamlNode, YamlValue};
use super::{Config, DatabaseUrl, validate};
use contract::IdentifierProfile;
use std::fmt;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// The place of the keys in the file.
const MODULES: &str = "modules";
const MODULE: &str = "event_broker";
/// The largest file, in bytes.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// The folder of the program's log, unless another is configured.
const DATA_FOLDER: &str = "./data";

/// The configuration in force, with the source of each value.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    /// The values.
    pub config: Config,
    /// The source of each value.
    pub sources: ValueSources,
    /// Notes for the operator that are not errors.
    pub notes: Vec<String>,
}

/// A setting of the command line.
#[derive(Debug, Clone)]
pub struct FlagSetting {
    /// The flag with its dashes: `--listen`.
    pub flag: &'static str,
    /// The key it sets: `server.listen`.
    pub key: &'static str,
    /// The value, as it would be written in the environment.
    pub value: String,
}

/// Why a configuration was refused: all its errors.
#[derive(Debug, Clone)]
pub struct ConfigError {
    /// At least one, in the order of the layers.
    pub problems: Vec<ConfigProblem>,
}

/// One error.
#[derive(Debug, Clone)]
pub struct ConfigProblem {
    /// Its place: a file, with the line if that is known, a variable, a flag.
    pub place: String,
    /// The key, or a member inside its value; empty if no key is concerned.
    pub key: String,
    /// What is wrong, and what would be valid.
    pub detail: String,
}

/// Loads the configuration. A file is read only if one is named; the environment is passed in.
pub fn load(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (String, String)>,
    flags: Vec<FlagSetting>,
) -> Result<LoadedConfig, ConfigError> {
    let mut layers = ConfigLayers::default();
    if let Some(file) = file {
        layers.add_file(file);
    }
    layers.add_environment(environment);
    for flag in flags {
        layers.add_text(flag.key, &flag.value, &ValueSource::Flag { flag: flag.flag.to_owned() });
    }
    layers.finish()
}

/// The settings so far; later ones replace earlier ones.
#[derive(Default)]
struct ConfigLayers {
    sources: ValueSources,
    problems: Vec<ConfigProblem>,
    notes: Vec<String>,
}

impl ConfigLayers {
    fn add_file(&mut self, file: &Path) {
        let place = file.display().to_string();
        let text = match read(file) {
            Ok(text) => text,
            Err(reason) => return self.refuse(&place, "", format!("the file cannot be read: {reason}")),
        };
        let document = match yaml::parse(&text) {
            Ok(document) => document,
            Err(yaml::YamlError { line, reason }) => {
                let place = line.map_or_else(|| place.clone(), |line| format!("{place}:{line}"));
                return self.refuse(&place, "", format!("not readable as YAML: {reason}"));
            }
        };
        let module = document.member(MODULES).and_then(|modules| modules.node.member(MODULE));
        let Some(module) = module else {
            let detail = format!(
                "there is no `{MODULES}.{MODULE}` in it; all keys of the broker stand below it, as in\n    \
                 {MODULES}:\n      {MODULE}:\n        storage:\n          type: file"
            );
            return self.refuse(&place, "", detail);
        };
        let origin = ValueSource::File { file: Arc::new(file.to_path_buf()), line: module.line };
        self.note_misplaced_keys(&document, &origin);
        self.walk("", module.line, &module.node, &origin);
    }

    /// Notes keys of the broker that are one level too high: probably meant for it, but maybe another module's.
    fn note_misplaced_keys(&mut self, document: &YamlNode, origin: &ValueSource) {
        let Some(modules) = document.member(MODULES) else { return };
        let YamlValue::Map(members) = &modules.node.value else { return };
        let ours = |name: &str| ConfigKey::named(name).is_some() || keys::is_section(name);
        for member in members.iter().filter(|member| ours(&member.name)) {
            let (place, name) = (origin.at(member.line), &member.name);
            self.notes.push(format!(
                "{place}: `{MODULES}.{name}` is not the broker's and was not read; its keys stand below \
                 `{MODULES}.{MODULE}`."
            ));
        }
    }

    fn add_environment(&mut self, environment: impl IntoIterator<Item = (String, String)>) {
        let ours = environment.into_iter().filter(|(name, _)| name.starts_with(ENVIRONMENT_PREFIX));
        let mut ours: Vec<_> = ours.collect();
        // A section is applied before its keys, which are more specific and win.
        ours.sort_unstable();
        for (variable, value) in ours {
            let rest = variable.strip_prefix(ENVIRONMENT_PREFIX).unwrap_or_default();
            let path = rest.replace("__", ".").to_ascii_lowercase();
            let is_known = ConfigKey::named(&path).is_some() || keys::is_section(&path);
            if is_known && keys::variable(&path) == variable {
                self.add_text(&path, &value, &ValueSource::Environment { variable });
            } else {
                let suggestion = nearest_known(&path).map(keys::variable).unwrap_or_default();
                self.refuse(&variable, "", format!("unknown key; did you mean `{suggestion}`?"));
            }
        }
    }

    /// Adds a value that is a text: it is read as YAML, but if the key expects text it is used as it is, unless it is
    /// quoted.
    fn add_text(&mut self, path: &str, value: &str, origin: &ValueSource) {
        let key = ConfigKey::named(path);
        let wants_text = key.is_some_and(|key| matches!(key.expects, ValueType::Text(_) | ValueType::Word(_)));
        let optional = key.is_some_and(|key| key.optional);
        let node = match yaml::parse(value) {
            Ok(node) if !wants_text || (value.starts_with(['"', '\'']) && matches!(node.value, YamlValue::Text(_))) => {
                node
            }
            Ok(node) if optional && matches!(node.value, YamlValue::Nothing) => node,
            _ if wants_text => YamlNode::text(value),
            Ok(node) => node,
            Err(yaml::YamlError { reason, .. }) => {
                return self.refuse(origin, path, format!("not readable as YAML: {reason}"));
            }
        };
        self.walk(path, node.line, &node, origin);
    }

    /// Adds the value at `path`, which is a key or a section, whose name is on `line`.
    fn walk(&mut self, path: &str, line: u64, node: &YamlNode, origin: &ValueSource) {
        let source = origin.at(line);
        if let Some(key) = ConfigKey::named(path) {
            match validate::fits(key, node) {
                Ok(()) => self.sources.set(key.name, KeySetting { source, node: node.clone() }),
                Err(detail) => self.refuse(&source, path, detail),
            }
            return;
        }
        match &node.value {
            _ if !path.is_empty() && !keys::is_section(path) => {
                let suggestion = nearest_known(path).unwrap_or_default();
                self.refuse(&source, path, format!("unknown key; did you mean `{suggestion}`?"));
            }
            YamlValue::Nothing => (),
            YamlValue::Map(members) => {
                for member in members {
                    self.walk_member(path, member, origin);
                }
            }
            other => {
                let detail = format!("expected a map of keys, found {}", other.name());
                self.refuse(&source, if path.is_empty() { MODULE } else { path }, detail);
            }
        }
    }

    fn walk_member(&mut self, path: &str, member: &yaml::YamlMember, origin: &ValueSource) {
        let name = &member.name;
        let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if name.contains('.') {
            let detail = "unknown key; write each level of a key's path as a map of its own".to_owned();
            return self.refuse(&origin.at(member.line), &below, detail);
        }
        self.walk(&below, member.line, &member.node, origin);
    }

    fn refuse(&mut self, place: &dyn fmt::Display, key: &str, detail: String) {
        self.problems.push(ConfigProblem { place: place.to_string(), key: key.to_owned(), detail });
    }

    fn finish(mut self) -> Result<LoadedConfig, ConfigError> {
        if !self.problems.is_empty() {
            return Err(ConfigError { problems: self.problems });
        }
        let mut config = match self.merge() {
            Ok(config) => config,
            Err(problem) => return Err(ConfigError { problems: vec![problem] }),
        };
        if let Err(detail) = read_url(&mut config) {
            let place = self.sources.of("storage.url_file");
            self.refuse(&place, "storage.url_file", detail);
        }
        validate::derive_defaults(&mut config, &self.sources);
        for (key, detail) in validate::values(&config, &self.sources) {
            let place = self.sources.of(&key);
            self.refuse(&place, &key, detail);
        }
        if !self.problems.is_empty() {
            return Err(ConfigError { problems: self.problems });
        }
        if !self.sources.is_default("polling.poll_interval_ms") {
            self.notes.push(format!(
                "{}: `polling.poll_interval_ms` has no effect: a poll is woken by the append, never by an interval.",
                self.sources.of("polling.poll_interval_ms")
            ));
        }
        self.note_password(&config);
        self.note_undeclared_topics(&config);
        Ok(LoadedConfig { config, sources: self.sources, notes: self.notes })
    }

    /// Notes a password on the command line, which all users of the machine can read.
    fn note_password(&mut self, config: &Config) {
        let source = self.sources.of("storage.url");
        if let (ValueSource::Flag { .. }, Some(url)) = (&source, &config.storage.url)
            && log_postgres::has_password(&url.0)
        {
            self.notes.push(format!(
                "{source}: the password of the database is on the command line, where other users of this machine can read \
                 it: use `storage.url_file` or the environment."
            ));
        }
    }

    /// Notes routes to topics that are not declared. That is permitted, since a topic may be registered over the API,
    /// but may also be a typing error that shows only at the first event.
    fn note_undeclared_topics(&mut self, config: &Config) {
        for (index, route) in config.routes.iter().enumerate() {
            let is_declared = config.topics.iter().any(|topic| topic.id == route.topic);
            if is_declared || config.default_topic.as_ref() == Some(&route.topic) {
                continue;
            }
            let (place, topic) = (self.sources.of(&format!("routes[{index}].topic")), &route.topic);
            self.notes.push(format!(
                "{place}: `{topic}` is not among `topics`; events of this route are refused until it is registered."
            ));
        }
    }

    /// Applies the settings to the defaults.
    fn merge(&self) -> Result<Config, ConfigProblem> {
        let mut tree = serde_json::to_value(Config::folder(DATA_FOLDER)).unwrap_or_default();
        for (name, setting) in self.sources.settings() {
            if let Some(slot) = tree.pointer_mut(&format!("/{}", name.replace('.', "/"))) {
                *slot = setting.node.to_json();
            }
        }
        // An invalid profile is refused below, under its own key.
        let profile = tree.pointer("/gts/profile").cloned().unwrap_or_default();
        let profile = serde_json::from_value(profile).unwrap_or(IdentifierProfile::Relaxed);
        let config = contract::under_profile(profile, || serde_path_to_error::deserialize(tree));
        config.map_err(|error| {
            let path = error.path().to_string();
            ConfigProblem {
                place: self.sources.of(&path).to_string(),
                detail: explain(&error.into_inner().to_string()),
                key: path,
            }
        })
    }
}

/// Reads the URL from `storage.url_file`.
fn read_url(config: &mut Config) -> Result<(), String> {
    let Some(file) = &config.storage.url_file else { return Ok(()) };
    if config.storage.url.is_some() {
        return Err("is set together with `storage.url`; set only one of them".to_owned());
    }
    let text = read(file).map_err(|error| format!("the file cannot be read: {error}"))?;
    config.storage.url = Some(DatabaseUrl(text.trim().to_owned()));
    Ok(())
}

fn read(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(|error| error.to_string())?;
    opened.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(format!("it has more than {FILE_BYTES_MAX} bytes")),
        false => Ok(text),
    }
}

fn nearest_known(path: &str) -> Option<&'static str> {
    nearest_path(path, KEYS.iter().map(|key| key.name).chain(keys::sections()))
}

/// The message of serde, reworded where it names Rust types.
fn explain(message: &str) -> String {
    // An error of the contract contains its code, which means nothing to an operator.
    let message = contract::Kind::of_text(message).map_or(message, |(_, detail)| detail);
    let mut quoted = message.split('`').skip(1).step_by(2);
    if message.starts_with("unknown field") {
        let written = quoted.next().unwrap_or_default();
        let suggestion = nearest(written, quoted).unwrap_or_default();
        return format!("unknown member; did you mean `{suggestion}`?");
    }
    if message.contains("an object of `type`, `location`") {
        return "expected true, or a map of `type`, `location` and `retention`".to_owned();
    }
    if message.contains("socket address") {
        return "expected an address and a port, such as 127.0.0.1:8087 or [::1]:8087; names are not looked up"
            .to_owned();
    }
    match message.split_once(", expected struct ") {
        Some(_) => "expected a map of members, as in the API".to_owned(),
        None => message.to_owned(),
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            write!(f, "{}{problem}", if index == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.is_empty() {
            true => write!(f, "{}: {}", self.place, self.detail),
            false => write!(f, "{}: {}: {}", self.place, self.key, self.detail),
        }
    }
}

impl std::error::Error for ConfigError {}
