//! The vault: secrets of subscriptions, sealed before they reach the log and opened only to be used.
//!
//! - Sealed with AES-256-GCM under the broker's key and a random nonce; what was tampered with does not open.
//! - The key is the operator's (`dispatch.secret_key`). Without one a broker that has a folder to itself keeps a key file
//!   in it, readable by its owner alone; a broker in memory makes one up. Brokers that share a database must be told.
//! - Nothing here is ever printed.

use crate::config::{Config, Engine};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use contract::{DeliveryAuth, Error, Kind, Result};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

const KEY_BYTES: usize = 32;
/// What the key is derived for.
const PURPOSE: &str = "event-broker 2026 secrets of subscriptions";
/// The file in a data folder that holds the key, where the operator gave none.
pub const KEY_FILE: &str = "secret.key";

/// Seals and opens secrets.
pub(crate) struct Vault {
    source: Source,
    /// Read, or made, when it is first needed.
    key: OnceLock<LessSafeKey>,
    /// Held meanwhile: two that made one would not have the same.
    making: Mutex<()>,
}

/// Where the key comes from.
enum Source {
    Given([u8; KEY_BYTES]),
    Folder(PathBuf),
    Memory,
    Nowhere,
}

/// What is sealed of a subscription.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Secrets {
    /// What signs, the newest first.
    pub(crate) signing: Vec<SigningSecret>,
    pub(crate) auth: Option<DeliveryAuth>,
}

/// A secret, and until when it signs; none: until it is replaced.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SigningSecret {
    pub(crate) text: String,
    pub(crate) until: Option<i64>,
}

impl Secrets {
    pub(crate) const fn is_empty(&self) -> bool {
        self.signing.is_empty() && self.auth.is_none()
    }
}

impl Vault {
    /// The vault of a broker configured so.
    pub(crate) fn of(config: &Config) -> Self {
        let source = match (&config.dispatch.secret_key, config.storage.engine) {
            // Any text will do for a key: it is stretched to the length of one.
            (Some(text), _) => Source::Given(blake3::derive_key(PURPOSE, text.0.as_bytes())),
            (None, Engine::File) => Source::Folder(config.storage.path.clone()),
            (None, Engine::Memory) => Source::Memory,
            (None, Engine::Database) => Source::Nowhere,
        };
        Self { source, key: OnceLock::new(), making: Mutex::default() }
    }

    /// Whether secrets can be kept.
    pub(crate) const fn has_key(&self) -> bool {
        !matches!(self.source, Source::Nowhere)
    }

    fn key(&self) -> Result<&LessSafeKey> {
        if let Some(key) = self.key.get() {
            return Ok(key);
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = self.key.get() {
            return Ok(key);
        }
        let bytes = match &self.source {
            Source::Given(bytes) => Ok(*bytes),
            Source::Folder(folder) => key_of_folder(folder),
            Source::Memory => random_key(),
            Source::Nowhere => return Err(no_key()),
        };
        let bytes = bytes.map_err(|cause| failed().with_source(cause))?;
        let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| failed())?;
        Ok(self.key.get_or_init(|| LessSafeKey::new(key)))
    }

    /// Seals; nothing where there is nothing to seal.
    pub(crate) fn seal(&self, secrets: &Secrets) -> Result<Option<String>> {
        if secrets.is_empty() {
            return Ok(None);
        }
        let key = self.key()?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| failed())?;
        let mut text = serde_json::to_vec(secrets).map_err(|_| failed())?;
        let sealed = key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut text);
        sealed.map_err(|_| failed())?;
        Ok(Some(BASE64.encode([nonce.as_slice(), &text].concat())))
    }

    /// Opens what was sealed with the same key.
    pub(crate) fn unseal(&self, sealed: Option<&str>) -> Result<Secrets> {
        let Some(sealed) = sealed else { return Ok(Secrets::default()) };
        let key = self.key()?;
        let opened = || {
            let mut bytes = BASE64.decode(sealed).ok()?;
            let (nonce, text) = bytes.split_at_mut_checked(NONCE_LEN)?;
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let text = key.open_in_place(nonce, Aad::empty(), text).ok()?;
            serde_json::from_slice(text).ok()
        };
        opened().ok_or_else(|| {
            let detail = "The subscription's secrets were sealed with another key than the broker has now.";
            Error::new(Kind::Unavailable, detail)
        })
    }
}

/// The key in a folder, made at first. It is there whole or not at all: it gets its name when it is durable.
fn key_of_folder(folder: &Path) -> std::io::Result<[u8; KEY_BYTES]> {
    let path = folder.join(KEY_FILE);
    if !path.try_exists()? {
        make_key(folder, &path)?;
    }
    let mut key = [0; KEY_BYTES];
    File::open(&path)?.read_exact(&mut key)?;
    Ok(key)
}

fn make_key(folder: &Path, path: &Path) -> std::io::Result<()> {
    let draft = path.with_extension("part");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&draft)?;
    file.write_all(&random_key()?)?;
    file.sync_all()?;
    std::fs::rename(&draft, path)?;
    File::open(folder)?.sync_all()
}

fn random_key() -> std::io::Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    SystemRandom::new().fill(&mut key).map_err(|_| std::io::Error::other("no randomness"))?;
    Ok(key)
}

fn no_key() -> Error {
    let detail = "needs a key to be kept with, and the broker has none: its operator must set `dispatch.secret_key`";
    Error::invalid("/signing", detail)
}

fn failed() -> Error {
    Error::new(Kind::Unavailable, "Secrets could not be sealed; see the server's log.").with_retry_after(5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn secrets() -> Secrets {
        let signing = vec![SigningSecret { text: "whsec_abc".to_owned(), until: Some(5) }];
        Secrets { signing, auth: Some(DeliveryAuth::Bearer { token: "t0ken".to_owned() }) }
    }

    #[test]
    fn what_is_sealed_opens_with_the_same_key_and_with_no_other() {
        let folder = TempDir::new().unwrap();
        let config = Config::folder(folder.path());
        let sealed = Vault::of(&config).seal(&secrets()).unwrap().unwrap();
        assert!(!sealed.contains("whsec") && !BASE64.decode(&sealed).unwrap().windows(5).any(|it| it == b"t0ken"));
        let opened = Vault::of(&config).unseal(Some(&sealed)).unwrap();
        assert_eq!((opened.signing[0].text.as_str(), opened.auth), ("whsec_abc", secrets().auth));
        assert!(Vault::of(&Config::default()).unseal(Some(&sealed)).is_err());
        let mut bent = BASE64.decode(&sealed).unwrap();
        *bent.last_mut().unwrap() ^= 1;
        assert!(Vault::of(&config).unseal(Some(&BASE64.encode(bent))).is_err());
    }

    #[test]
    fn a_key_that_was_half_written_when_the_broker_died_is_made_anew() {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("secret.part"), [7; 3]).unwrap();
        let sealed = Vault::of(&Config::folder(folder.path())).seal(&secrets()).unwrap();
        assert!(Vault::of(&Config::folder(folder.path())).unseal(sealed.as_deref()).is_ok());
        assert!(!folder.path().join("secret.part").exists());
    }

    #[test]
    fn many_that_need_the_first_key_at_once_get_the_same() {
        for _ in 0..50 {
            let folder = TempDir::new().unwrap();
            let config = Config::folder(folder.path());
            let vault = Vault::of(&config);
            let sealed = std::thread::scope(|scope| {
                let sealing: Vec<_> = (0..8).map(|_| scope.spawn(|| vault.seal(&secrets()).unwrap())).collect();
                sealing.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>()
            });
            let later = Vault::of(&config);
            assert!(sealed.iter().all(|sealed| later.unseal(sealed.as_deref()).is_ok()));
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_key_file_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = TempDir::new().unwrap();
        Vault::of(&Config::folder(folder.path())).seal(&secrets()).unwrap();
        let mode = std::fs::metadata(folder.path().join(KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn brokers_on_a_database_keep_secrets_only_with_a_key_they_were_given() {
        let mut config = Config::default();
        config.storage.engine = Engine::Database;
        let vault = Vault::of(&config);
        assert!(!vault.has_key() && vault.seal(&secrets()).is_err());
        assert_eq!(vault.seal(&Secrets::default()).unwrap(), None);
        config.dispatch.secret_key = Some(crate::config::SecretKey("correct horse".to_owned()));
        let (one, other) = (Vault::of(&config), Vault::of(&config));
        assert!(other.unseal(one.seal(&secrets()).unwrap().as_deref()).is_ok());
    }
}
