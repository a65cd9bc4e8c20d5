//! The vault: secrets of subscriptions, sealed before they reach the log and opened only to be used.
//!
//! - Sealed with AES-256-GCM under the broker's key and a random nonce. A value that was tampered with, or sealed for
//!   another subscription, cannot be decrypted.
//! - The key is the operator's (`dispatch.secret_key`): 32 random bytes or more in base64 or hex. Any other text may be
//!   a guessable password, so it is stretched. Without a key, a broker with its own data folder creates a key file in
//!   it, readable only by its owner; a broker in memory uses a random key. Brokers that share a database need a
//!   configured key.
//! - Nothing here is ever printed.

use crate::config::{Config, SecretKey, StorageEngine};
use crate::delivery::WebhookSecret;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD as BASE64, URL_SAFE_NO_PAD};
use contract::{DeliveryAuth, Error, Kind, Result};
use log::file::private_file;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::pbkdf2;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use uuid::Uuid;

const KEY_BYTES: usize = 32;
/// The purpose that the key is derived for.
const PURPOSE: &str = "event-broker 2026 secrets of subscriptions, bound to them";
/// The purpose in older versions, which did not bind a sealed value to its subscription. Such values are decrypted, but
/// no longer created.
const OLD_PURPOSE: &str = "event-broker 2026 secrets of subscriptions";
/// The prefix of values that are bound to their subscription; base64 has no colon.
const VERSION_PREFIX: &str = "2:";
/// Rounds of PBKDF2-HMAC-SHA256 for a guessable key: a quarter of a second per start. Unit tests are not optimised and
/// protect nothing.
const ROUNDS: NonZeroU32 = NonZeroU32::new(if cfg!(test) { 1000 } else { 600_000 }).unwrap();
/// 32 random bytes have at least this many different values; words have fewer.
const DISTINCT_BYTES_MIN: usize = 16;
/// The file in a data folder that holds the key, if none is configured.
pub const KEY_FILE: &str = "secret.key";

/// Seals (encrypts) and unseals secrets.
pub(crate) struct SecretVault {
    source: KeySource,
    /// Read or created when it is first needed.
    keys: OnceLock<VaultKeys>,
    /// Held while the key is created, so that two tasks do not create different ones.
    key_creation: Mutex<()>,
}

/// The key that seals, and the one for values of older versions.
struct VaultKeys {
    current: LessSafeKey,
    old: LessSafeKey,
}

/// Where the key comes from.
enum KeySource {
    Given(SecretKey),
    Folder(PathBuf),
    Memory,
    Nowhere,
}

/// The secrets of a subscription.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SubscriptionSecrets {
    /// Signing secrets, the newest first.
    pub(crate) signing: Vec<SigningSecret>,
    pub(crate) auth: Option<DeliveryAuth>,
}

/// A signing secret, and until when it signs (`None`: until it is replaced).
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SigningSecret {
    pub(crate) text: String,
    pub(crate) until: Option<i64>,
    /// Whether it is the caller's own; older versions did not store that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) is_own: Option<bool>,
}

impl SigningSecret {
    /// A secret that the broker created.
    pub(crate) fn generated(secret: &WebhookSecret) -> Self {
        Self { text: secret.expose().to_owned(), until: None, is_own: Some(false) }
    }
}

impl SubscriptionSecrets {
    pub(crate) const fn is_empty(&self) -> bool {
        self.signing.is_empty() && self.auth.is_none()
    }
}

impl SecretVault {
    /// The vault for a configuration.
    pub(crate) fn of(config: &Config) -> Self {
        let source = match (&config.dispatch.secret_key, config.storage.engine) {
            (Some(text), _) => KeySource::Given(text.clone()),
            (None, StorageEngine::File) => KeySource::Folder(config.storage.path.clone()),
            (None, StorageEngine::Memory) => KeySource::Memory,
            (None, StorageEngine::Database) => KeySource::Nowhere,
        };
        if let KeySource::Given(text) = &source
            && random_bytes(&text.0).is_none()
        {
            tracing::warn!(
                "dispatch.secret_key is not 32 random bytes in base64 or hex; it is stretched, but a text that can be guessed \
                 still can (`openssl rand -base64 32` makes a good one)"
            );
        }
        Self { source, keys: OnceLock::new(), key_creation: Mutex::default() }
    }

    /// Whether secrets can be sealed.
    pub(crate) const fn has_key(&self) -> bool {
        !matches!(self.source, KeySource::Nowhere)
    }

    /// Derives a configured key, which takes time. Other keys are created when they are needed.
    pub(crate) fn prepare(&self) {
        if matches!(self.source, KeySource::Given(_)) {
            // An error is returned to the first request that needs the key.
            let _ = self.keys();
        }
    }

    /// Whether the key file does not exist: sealing the next value would create one.
    pub(crate) fn is_key_missing(&self) -> bool {
        let KeySource::Folder(folder) = &self.source else { return false };
        self.keys.get().is_none() && !folder.join(KEY_FILE).exists()
    }

    fn keys(&self) -> Result<&VaultKeys> {
        if let Some(keys) = self.keys.get() {
            return Ok(keys);
        }
        let _making = self.key_creation.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = self.keys.get() {
            return Ok(keys);
        }
        let derived = match &self.source {
            KeySource::Given(text) => Ok(given_keys(&text.0)),
            KeySource::Folder(folder) => key_of_folder(folder).map(made_keys),
            KeySource::Memory => random_key().map(made_keys),
            KeySource::Nowhere => return Err(no_key()),
        };
        let [current, old] = derived.map_err(|cause| failed().with_source(cause))?;
        let key = |bytes: [u8; KEY_BYTES]| UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| failed());
        let keys = VaultKeys { current: LessSafeKey::new(key(current)?), old: LessSafeKey::new(key(old)?) };
        Ok(self.keys.get_or_init(|| keys))
    }

    /// Seals the secrets of a subscription; `None` if there are none.
    pub(crate) fn seal(&self, subscription: Uuid, secrets: &SubscriptionSecrets) -> Result<Option<String>> {
        if secrets.is_empty() {
            return Ok(None);
        }
        let key = &self.keys()?.current;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| failed())?;
        let mut text = serde_json::to_vec(secrets).map_err(|_| failed())?;
        let bound = Aad::from(associated_data(subscription));
        let sealed = key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), bound, &mut text);
        sealed.map_err(|_| failed())?;
        Ok(Some(format!("{VERSION_PREFIX}{}", BASE64.encode([nonce.as_slice(), &text].concat()))))
    }

    /// Decrypts what was sealed for this subscription with the same key.
    pub(crate) fn unseal(&self, subscription: Uuid, sealed: Option<&str>) -> Result<SubscriptionSecrets> {
        let Some(sealed) = sealed else { return Ok(SubscriptionSecrets::default()) };
        // A key that is created now did not seal this.
        if self.is_key_missing() {
            return Err(cannot_unseal("The key file `secret.key` is missing from the data folder"));
        }
        let keys = self.keys()?;
        let opened = match sealed.strip_prefix(VERSION_PREFIX) {
            Some(text) => open(&keys.current, &associated_data(subscription), text),
            None => open(&keys.old, &[], sealed),
        };
        opened.ok_or_else(|| {
            cannot_unseal("The subscription's secrets were sealed with another key than the broker has now")
        })
    }
}

/// The refusal of what needs secrets that cannot be decrypted.
fn cannot_unseal(cause: &str) -> Error {
    let detail = format!(
        "{cause}. Put the key back (`dispatch.secret_key`, or `secret.key` in the data folder), or set both `signing` and \
         `auth` of the subscription again."
    );
    Error::new(Kind::Unavailable, detail)
}

/// The associated data that binds a sealed value to its subscription.
fn associated_data(subscription: Uuid) -> Vec<u8> {
    [PURPOSE.as_bytes(), subscription.as_bytes()].concat()
}

fn open(key: &LessSafeKey, bound: &[u8], sealed: &str) -> Option<SubscriptionSecrets> {
    let mut bytes = BASE64.decode(sealed).ok()?;
    let (nonce, text) = bytes.split_at_mut_checked(NONCE_LEN)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let text = key.open_in_place(nonce, Aad::from(bound), text).ok()?;
    serde_json::from_slice(text).ok()
}

/// The current key and the one of older versions, from the configured text.
fn given_keys(text: &str) -> [[u8; KEY_BYTES]; 2] {
    let current = random_bytes(text).map_or_else(|| derive_key(text), |bytes| blake3::derive_key(PURPOSE, &bytes));
    [current, blake3::derive_key(OLD_PURPOSE, text.as_bytes())]
}

/// The same from a key that the broker created.
fn made_keys(key: [u8; KEY_BYTES]) -> [[u8; KEY_BYTES]; 2] {
    [blake3::derive_key(PURPOSE, &key), key]
}

/// The bytes of a random key: at least 32, in hex or base64.
fn random_bytes(text: &str) -> Option<Vec<u8>> {
    let text = text.trim();
    let bytes = hex_bytes(text)
        .or_else(|| BASE64.decode(text).ok())
        .or_else(|| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok())?;
    let distinct = bytes.iter().collect::<BTreeSet<_>>().len();
    (bytes.len() >= KEY_BYTES && distinct >= DISTINCT_BYTES_MIN).then_some(bytes)
}

fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<_>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let pairs = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(pairs.chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | *digit as u8)).collect())
}

/// A key from a guessable text: every guess costs as much as this derivation.
fn derive_key(text: &str) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    // Brokers that share a database must derive the same key, so the salt is the purpose.
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, PURPOSE.as_bytes(), text.as_bytes(), &mut key);
    key
}

/// The key in a folder, created if it does not exist. It is renamed into place when it is durable, so it is never
/// incomplete.
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
    let mut file = private_file().write(true).create(true).truncate(true).open(&draft)?;
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
    let detail = "needs an encryption key, and the broker has none: its operator must set `dispatch.secret_key`";
    Error::invalid("/signing", detail)
}

fn failed() -> Error {
    Error::new(Kind::Unavailable, "Secrets could not be encrypted; see the server's log output.").with_retry_after(5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const ID: Uuid = Uuid::from_u128(7);

    fn secrets() -> SubscriptionSecrets {
        let signing = vec![SigningSecret { text: "whsec_abc".to_owned(), until: Some(5), is_own: None }];
        SubscriptionSecrets { signing, auth: Some(DeliveryAuth::Bearer { token: "t0ken".to_owned() }) }
    }

    #[test]
    fn what_is_sealed_opens_with_the_same_key_and_with_no_other() {
        let folder = TempDir::new().unwrap();
        let config = Config::folder(folder.path());
        let sealed = SecretVault::of(&config).seal(ID, &secrets()).unwrap().unwrap();
        let bytes = sealed.strip_prefix(VERSION_PREFIX).unwrap();
        assert!(!sealed.contains("whsec") && !BASE64.decode(bytes).unwrap().windows(5).any(|it| it == b"t0ken"));
        let opened = SecretVault::of(&config).unseal(ID, Some(&sealed)).unwrap();
        assert_eq!((opened.signing[0].text.as_str(), opened.auth), ("whsec_abc", secrets().auth));
        assert!(SecretVault::of(&Config::default()).unseal(ID, Some(&sealed)).is_err());
        let mut bent = BASE64.decode(bytes).unwrap();
        *bent.last_mut().unwrap() ^= 1;
        let bent = format!("{VERSION_PREFIX}{}", BASE64.encode(bent));
        assert!(SecretVault::of(&config).unseal(ID, Some(&bent)).is_err());
    }

    #[test]
    fn a_sealed_value_that_was_moved_to_another_subscription_does_not_open_there() {
        let vault = SecretVault::of(&Config::default());
        let sealed = vault.seal(ID, &secrets()).unwrap();
        assert!(vault.unseal(ID, sealed.as_deref()).is_ok());
        assert!(vault.unseal(Uuid::from_u128(8), sealed.as_deref()).is_err());
        // Nor is it accepted in the old form.
        let bare = sealed.as_deref().and_then(|sealed| sealed.strip_prefix(VERSION_PREFIX));
        assert!(vault.unseal(ID, bare).is_err());
    }

    #[test]
    fn what_older_versions_sealed_still_opens() {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join(KEY_FILE), [9; KEY_BYTES]).unwrap();
        let mut given = Config::default();
        given.dispatch.secret_key = Some(SecretKey("correct horse".to_owned()));
        let of_text = blake3::derive_key(OLD_PURPOSE, b"correct horse");
        for (config, key) in [(Config::folder(folder.path()), [9; KEY_BYTES]), (given, of_text)] {
            let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).unwrap());
            let mut text = serde_json::to_vec(&secrets()).unwrap();
            let nonce = Nonce::assume_unique_for_key([3; NONCE_LEN]);
            key.seal_in_place_append_tag(nonce, Aad::empty(), &mut text).unwrap();
            let sealed = BASE64.encode([&[3; NONCE_LEN], text.as_slice()].concat());
            let opened = SecretVault::of(&config).unseal(ID, Some(&sealed)).unwrap();
            assert_eq!(opened.auth, secrets().auth);
        }
    }

    #[test]
    fn a_key_that_may_be_guessed_is_stretched_and_random_bytes_are_taken_as_they_are() {
        let bytes: Vec<u8> = (0..32).map(|byte| byte * 7 + 1).collect();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        for text in [hex, BASE64.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)] {
            assert_eq!(random_bytes(&text).as_deref(), Some(bytes.as_slice()), "{text}");
            assert_eq!(given_keys(&text)[0], blake3::derive_key(PURPOSE, &bytes));
        }
        for weak in ["correct horse", "hunter2", &"a".repeat(64), &BASE64.encode([5; 40]), &BASE64.encode(&bytes[1..])]
        {
            assert_eq!(random_bytes(weak), None, "{weak}");
        }
        assert_eq!(given_keys("correct horse")[0], derive_key("correct horse"));
        assert_ne!(derive_key("correct horse"), derive_key("correct horsf"));
    }

    #[test]
    fn a_key_that_was_half_written_when_the_broker_died_is_made_anew() {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("secret.part"), [7; 3]).unwrap();
        let sealed = SecretVault::of(&Config::folder(folder.path())).seal(ID, &secrets()).unwrap();
        assert!(SecretVault::of(&Config::folder(folder.path())).unseal(ID, sealed.as_deref()).is_ok());
        assert!(!folder.path().join("secret.part").exists());
    }

    #[test]
    fn many_that_need_the_first_key_at_once_get_the_same() {
        for _ in 0..50 {
            let folder = TempDir::new().unwrap();
            let config = Config::folder(folder.path());
            let vault = SecretVault::of(&config);
            let sealed = std::thread::scope(|scope| {
                let sealing: Vec<_> = (0..8).map(|_| scope.spawn(|| vault.seal(ID, &secrets()).unwrap())).collect();
                sealing.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>()
            });
            let later = SecretVault::of(&config);
            assert!(sealed.iter().all(|sealed| later.unseal(ID, sealed.as_deref()).is_ok()));
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_key_file_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = TempDir::new().unwrap();
        SecretVault::of(&Config::folder(folder.path())).seal(ID, &secrets()).unwrap();
        let mode = std::fs::metadata(folder.path().join(KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn brokers_on_a_database_keep_secrets_only_with_a_key_they_were_given() {
        let mut config = Config::default();
        config.storage.engine = StorageEngine::Database;
        let vault = SecretVault::of(&config);
        assert!(!vault.has_key() && vault.seal(ID, &secrets()).is_err());
        assert_eq!(vault.seal(ID, &SubscriptionSecrets::default()).unwrap(), None);
        config.dispatch.secret_key = Some(crate::config::SecretKey("correct horse".to_owned()));
        let (one, other) = (SecretVault::of(&config), SecretVault::of(&config));
        assert!(other.unseal(ID, one.seal(ID, &secrets()).unwrap().as_deref()).is_ok());
    }
}
