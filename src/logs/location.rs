//! Locations: which log, and which folder, a topic's `streaming` setting names.
//!
//! - Parsing a location is pure ([`location_of`]); only [`LogRoots`] reads the disk, and never writes to it.
//! - A location without a leading slash is inside the data folder, one with it inside a folder that the configuration
//!   lists. Nothing else can be reached: no `..`, no escapes, no link that leads out.
//! - A location that is not permitted is refused with one text, whether it exists or not: callers learn nothing about
//!   the machine's files.
//! - The folder of a log is never inside the folder of another.

use crate::ledger::LogLocation;
use contract::{StreamingOptions, StreamingSetting, Violation, limits};
use log::file::SIDE_LOGS_FOLDER;
use std::io;
use std::path::{Path, PathBuf};

/// The log of topics that ask for another type of log and name none.
const UNNAMED: &str = "default";
/// The longest name of one folder, in bytes.
const NAME_BYTES_MAX: usize = 255;
const DATABASE: &str = "database";
const AT_LOCATION: &str = "/streaming/location";

/// The log that `streaming` asks for; `None` is the default one, which is of `default_type`.
pub(super) fn location_of(streaming: &StreamingSetting, default_type: &str) -> Result<Option<LogLocation>, Violation> {
    match streaming {
        StreamingSetting::Enabled(true) => Ok(None),
        StreamingSetting::Enabled(false) => Err(Violation::new("/streaming", "must be true or an object")),
        StreamingSetting::Options(options) => location_of_options(options, default_type),
    }
}

fn location_of_options(options: &StreamingOptions, default_type: &str) -> Result<Option<LogLocation>, Violation> {
    let location = options.location.as_deref().map(ParsedLocation::parse).transpose()?;
    let scheme = location.as_ref().and_then(|location| location.scheme);
    let log_type = options.streaming_type.as_deref().or(scheme).unwrap_or(default_type);
    match (log_type, location) {
        (log_type, None) if log_type == default_type => Ok(None),
        // Other processes may share the log, so no topic may be in a log of this process alone: all are in the
        // database.
        ("memory" | "file", _) if default_type == DATABASE => Ok(None),
        ("memory", None) => Ok(Some(LogLocation::Memory(UNNAMED.to_owned()))),
        ("file", None) => Ok(Some(LogLocation::DataFolder(UNNAMED.to_owned()))),
        ("memory" | "file", Some(location)) => location.into_location(log_type).map(Some),
        (DATABASE, _) => {
            let detail = "a topic is in a database only if the broker's own log is, and without a `location`";
            Err(Violation::new("/streaming/type", detail))
        }
        _ => Err(Violation::new("/streaming/type", "must be `memory`, `file` or `database`")),
    }
}

/// A parsed location.
struct ParsedLocation {
    scheme: Option<&'static str>,
    is_absolute: bool,
    /// The names of the path, with single slashes between them.
    path: String,
}

impl ParsedLocation {
    fn parse(text: &str) -> Result<Self, Violation> {
        if text.len() > limits::LOCATION_BYTES_MAX {
            let detail = format!("is longer than {} bytes", limits::LOCATION_BYTES_MAX);
            return Err(Violation::new(AT_LOCATION, detail));
        }
        let schemes = ["file", "memory"].into_iter();
        let stripped = |scheme| Some((scheme, text.strip_prefix(scheme)?.strip_prefix("://")?));
        let (scheme, rest) = schemes.filter_map(stripped).next().map_or((None, text), |(s, rest)| (Some(s), rest));
        let names: Vec<&str> = rest.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
        for name in &names {
            check_name(name)?;
        }
        if names.is_empty() {
            return Err(Violation::new(AT_LOCATION, "must name a folder"));
        }
        Ok(Self { scheme, is_absolute: rest.starts_with('/'), path: names.join("/") })
    }

    fn into_location(self, log_type: &str) -> Result<LogLocation, Violation> {
        if self.scheme.is_some_and(|scheme| scheme != log_type) {
            return Err(Violation::new(AT_LOCATION, "does not fit `streaming.type`"));
        }
        Ok(match log_type {
            "memory" => LogLocation::Memory(self.path),
            _ if self.is_absolute => LogLocation::Folder(format!("/{}", self.path)),
            _ => LogLocation::DataFolder(self.path),
        })
    }
}

fn check_name(name: &str) -> Result<(), Violation> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+@=".contains(&byte);
    if name == ".." {
        return Err(Violation::new(AT_LOCATION, "must not go up with `..`"));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(Violation::new(AT_LOCATION, format!("has a name longer than {NAME_BYTES_MAX} bytes")));
    }
    match name.bytes().all(is_plain) {
        true => Ok(()),
        false => Err(Violation::new(
            AT_LOCATION,
            "must be a path, with or without `file://`, of names made of ASCII letters, digits and -._~+@=",
        )),
    }
}

/// Where a log is stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ResolvedLocation {
    /// In the default log's own place.
    WithDefault,
    /// In memory.
    InMemory(LogLocation),
    /// In this folder, with its canonical location.
    In(LogLocation, PathBuf),
}

impl ResolvedLocation {
    /// The location of the log; `None` for the default one.
    pub(super) const fn location(&self) -> Option<&LogLocation> {
        match self {
            Self::WithDefault => None,
            Self::InMemory(location) | Self::In(location, _) => Some(location),
        }
    }
}

/// The folders in which logs may be.
#[derive(Debug, Default)]
pub(crate) struct LogRoots {
    /// The default log's own folder, if it has one.
    pub(crate) default_log: Option<PathBuf>,
    /// The data folder, if there is one.
    pub(crate) data: Option<PathBuf>,
    /// The folders that the configuration lists.
    pub(crate) locations: Vec<PathBuf>,
}

impl LogRoots {
    /// The place of a location that a caller named, if it is permitted. The default log and the logs beside it are not
    /// named by absolute paths: whether such a path is accepted would tell where the data folder is.
    pub(super) fn resolve(&self, location: &LogLocation) -> Result<ResolvedLocation, Violation> {
        match location {
            LogLocation::Folder(folder) if !self.is_listed(Path::new(folder)) => Err(not_listed()),
            location => self.resolve_stored(location),
        }
    }

    /// The place of a location that the default log holds, if it is still permitted.
    pub(super) fn resolve_stored(&self, location: &LogLocation) -> Result<ResolvedLocation, Violation> {
        match location {
            LogLocation::Memory(_) => Ok(ResolvedLocation::InMemory(location.clone())),
            LogLocation::DataFolder(folder) => {
                let Some(logs) = self.logs() else {
                    return Err(Violation::new(
                        AT_LOCATION,
                        "needs a data folder, and this broker has none: configure one, or use an absolute location",
                    ));
                };
                let logs = real(&logs)?;
                // What is found behind a link that leads out is not told apart.
                let place = real(&logs.join(folder)).ok().and_then(|path| within(&path, &logs));
                place.ok_or_else(|| {
                    Violation::new(
                        AT_LOCATION,
                        "leads out of the data folder, or is in a folder that the broker cannot use",
                    )
                })
            }
            LogLocation::Folder(folder) => self.resolve_absolute(Path::new(folder)),
        }
    }

    /// The folder of logs that name no absolute path.
    fn logs(&self) -> Option<PathBuf> {
        self.data.as_deref().map(|data| data.join(SIDE_LOGS_FOLDER))
    }

    /// Whether a path is below a folder that the configuration lists, by its spelling.
    fn is_listed(&self, path: &Path) -> bool {
        self.locations.iter().any(|root| is_below(path, root))
    }

    /// The disk is not read for a path that is not below a permitted folder by its spelling: the response would reveal
    /// what exists on this machine.
    fn resolve_absolute(&self, path: &Path) -> Result<ResolvedLocation, Violation> {
        let is_default = |path: &Path| self.default_log.as_deref().is_some_and(|root| is_same(path, root));
        if is_default(path) {
            return Ok(ResolvedLocation::WithDefault);
        }
        let logs = self.logs();
        if !self.is_listed(path) && !logs.iter().any(|root| is_below(path, root)) {
            return Err(not_listed());
        }
        // A link may lead out of the permitted folders: what is found there is not told apart, either.
        let path = real(path).map_err(|_| not_listed())?;
        if let Some(place) = logs.and_then(|logs| within(&path, &real(&logs).ok()?)) {
            return Ok(place);
        }
        if !self.locations.iter().any(|root| real(root).is_ok_and(|root| path.starts_with(root))) {
            return Err(not_listed());
        }
        if let Some(default_log) = &self.default_log
            && overlap(&path, &real(default_log)?)
        {
            return Err(apart());
        }
        let name = path.to_str().ok_or_else(not_listed)?.to_owned();
        Ok(ResolvedLocation::In(LogLocation::Folder(name), path))
    }
}

/// Whether a path is a folder or below it, by its spelling.
fn is_below(path: &Path, folder: &Path) -> bool {
    let spellings = [std::path::absolute(folder).ok(), real(folder).ok()];
    spellings.into_iter().flatten().any(|folder| path.starts_with(folder))
}

/// Whether a path is a spelling of a folder.
fn is_same(path: &Path, folder: &Path) -> bool {
    let spellings = [std::path::absolute(folder).ok(), real(folder).ok()];
    spellings.into_iter().flatten().any(|folder| path == folder)
}

/// The refusal of every location that is not permitted, whether it exists or not.
fn not_listed() -> Violation {
    Violation::new(
        AT_LOCATION,
        "is in no folder that the configuration lists for logs: list the folder, or leave the leading slash out to stay \
         inside the data folder",
    )
}

/// A folder below `logs/` of the data folder, named by its relative path.
fn within(path: &Path, logs: &Path) -> Option<ResolvedLocation> {
    let relative = path.strip_prefix(logs).ok()?.to_str().filter(|relative| !relative.is_empty())?;
    Some(ResolvedLocation::In(LogLocation::DataFolder(relative.to_owned()), path.to_owned()))
}

/// Refuses a folder that is inside the folder of another log, or contains it.
pub(super) fn check_apart<'a>(path: &Path, mut others: impl Iterator<Item = &'a Path>) -> Result<(), Violation> {
    match others.any(|other| overlap(path, other)) {
        true => Err(apart()),
        false => Ok(()),
    }
}

fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

fn apart() -> Violation {
    Violation::new(AT_LOCATION, "is inside another log's folder, or contains it; choose a separate folder")
}

/// The path without links, as far as it exists: a folder has one such path, however it was spelt.
fn real(path: &Path) -> Result<PathBuf, Violation> {
    let found = || -> io::Result<PathBuf> {
        let path = std::path::absolute(path)?;
        for above in path.ancestors() {
            match above.canonicalize() {
                Ok(real) => {
                    return Ok(real
                        .components()
                        .chain(path.strip_prefix(above).iter().flat_map(|rest| rest.components()))
                        .collect());
                }
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => (),
                Err(cause) => return Err(cause),
            }
        }
        Ok(path)
    };
    found().map_err(|_| Violation::new(AT_LOCATION, "cannot be reached; see that it is a folder the broker may use"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, default_type: &str, expected: &str) {
        let streaming = serde_json::from_str(json).unwrap();
        let result = match location_of(&streaming, default_type) {
            Ok(None) => "the default log".to_owned(),
            Ok(Some(location)) => format!("{location:?}"),
            Err(violation) => {
                format!("{} {}", violation.pointer, violation.detail.split([':', ';', ',']).next().unwrap())
            }
        };
        assert!(result.starts_with(expected), "{json} on {default_type}: {result}");
    }

    #[test]
    fn streaming_says_which_log() {
        for default_type in ["memory", "file"] {
            check("true", default_type, "the default log");
            check("false", default_type, "/streaming must be true");
            check(r#"{"retention":"PT30D"}"#, default_type, "the default log");
            check(&format!(r#"{{"type":"{default_type}"}}"#), default_type, "the default log");
            check(
                r#"{"type":"file","location":"file://var/lib/hyperspot/events","retention":"PT30D"}"#,
                default_type,
                r#"DataFolder("var/lib/hyperspot/events")"#,
            );
            check(r#"{"location":"file://a"}"#, default_type, r#"DataFolder("a")"#);
            check(r#"{"location":"memory://a/b"}"#, default_type, r#"Memory("a/b")"#);
            check(r#"{"type":"file","location":"file:///srv/./x//y/"}"#, default_type, r#"Folder("/srv/x/y")"#);
            check(r#"{"type":"file","location":"/srv/x"}"#, default_type, r#"Folder("/srv/x")"#);
            check(
                r#"{"type":"database"}"#,
                default_type,
                "/streaming/type a topic is in a database only if the broker's own log is",
            );
            check(r#"{"type":"tape"}"#, default_type, "/streaming/type must be");
            check(r#"{"type":"file","location":"memory://a"}"#, default_type, "/streaming/location does not fit");
        }
        for text in
            [r#"{"type":"file","location":"file://a/b"}"#, r#"{"type":"memory"}"#, r#"{"type":"database"}"#, "true"]
        {
            check(text, DATABASE, "the default log");
        }
        check(r#"{"location":"../a"}"#, DATABASE, "/streaming/location must not go up");
        check(
            r#"{"type":"database","location":"a"}"#,
            DATABASE,
            "/streaming/type a topic is in a database only if the broker's own log is",
        );
        check(r#"{"type":"memory"}"#, "file", r#"Memory("default")"#);
        check(r#"{"type":"file"}"#, "memory", r#"DataFolder("default")"#);
        check(r#"{"location":"a"}"#, "memory", r#"Memory("a")"#);
    }

    #[test]
    fn a_location_that_could_lead_elsewhere_is_refused() {
        for text in ["", "/", "file://", "file:///", "./.", "../a", "a/../b", "file:///srv/../etc", "a\\0b", "%2e%2e/a"]
        {
            check(
                &format!(r#"{{"type":"file","location":"{}"}}"#, text.escape_default()),
                "file",
                "/streaming/location",
            );
        }
        for text in ["s3://bucket", "a b", "a\0b", "\u{fe0f}", "C:\\x"] {
            assert!(ParsedLocation::parse(text).is_err(), "{text}");
        }
        assert!(ParsedLocation::parse(&"x".repeat(256)).is_err() && ParsedLocation::parse(&"x/".repeat(600)).is_err());
    }

    #[test]
    fn a_home_lies_in_the_data_folder_or_where_the_configuration_allows() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let inside = |path: &str| LogLocation::Folder(root.join(path).to_str().unwrap().to_owned());
        std::fs::create_dir_all(root.join("data/logs")).unwrap();
        std::fs::create_dir(root.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(root.join("elsewhere"), root.join("data/logs/link")).unwrap();
        let data = root.join("data");
        let roots = LogRoots {
            default_log: Some(data.clone()),
            data: Some(data.clone()),
            locations: vec![root.join("allowed")],
        };
        let place = |location: LogLocation| roots.resolve(&location).map_err(|violation| violation.detail);
        let named = |name: &str| LogLocation::DataFolder(name.to_owned());
        assert_eq!(place(named("a/b")), Ok(ResolvedLocation::In(named("a/b"), data.join("logs/a/b"))));
        let stored = |location: LogLocation| roots.resolve_stored(&location).map_err(|violation| violation.detail);
        assert_eq!(stored(inside("data/logs/a/b")), Ok(ResolvedLocation::In(named("a/b"), data.join("logs/a/b"))));
        assert_eq!(stored(inside("data")), Ok(ResolvedLocation::WithDefault));
        assert_eq!(place(inside("allowed/x")), Ok(ResolvedLocation::In(inside("allowed/x"), root.join("allowed/x"))));
        // The refusal does not reveal what exists there.
        let known = ["data", "data/logs/a/b", "data/logs/link/x"];
        let paths = ["data/log", "data/logs", "", "data/state/x", "elsewhere", "data/none/x", "none"];
        for elsewhere in paths.into_iter().chain(known) {
            assert_eq!(place(inside(elsewhere)).unwrap_err(), not_listed().detail, "{elsewhere}");
        }
        for elsewhere in ["/etc/passwd/x", "/etc/none/x", "/"] {
            assert_eq!(
                place(LogLocation::Folder(elsewhere.to_owned())).unwrap_err(),
                not_listed().detail,
                "{elsewhere}"
            );
        }
        assert!(place(inside("allowed2")).unwrap_err().contains("leave the leading slash out"));
        assert!(place(named("link/x")).unwrap_err().contains("leads out"));
        assert_eq!(stored(inside("data/logs/link/x")), Err(not_listed().detail));
        // A link out of a listed folder, and out of the data folder: a file there, and none.
        std::fs::create_dir(root.join("allowed")).unwrap();
        std::fs::write(root.join("elsewhere/file"), "").unwrap();
        std::os::unix::fs::symlink(root.join("elsewhere"), root.join("allowed/link")).unwrap();
        for name in ["file/x", "none/x"] {
            assert_eq!(place(inside(&format!("allowed/link/{name}"))), Err(not_listed().detail), "{name}");
        }
        assert_eq!(place(named("link/file/x")), place(named("link/none/x")));
        assert!(LogRoots::default().resolve(&named("a")).unwrap_err().detail.contains("has none"));
        assert!(check_apart(&data.join("a/b"), [data.join("a").as_path()].into_iter()).is_err());
        assert!(check_apart(&data.join("a"), [data.join("a/b").as_path()].into_iter()).is_err());
        assert!(check_apart(&data.join("ab"), [data.join("a").as_path()].into_iter()).is_ok());
    }
}
