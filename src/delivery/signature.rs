//! Signing secrets and signatures, by Standard Webhooks 1.0.
//!
//! - `whsec_` and 24 to 64 bytes in base64: signs `v1`, HMAC-SHA256, and the receiver holds the same secret.
//! - `whsk_` and an ed25519 key in base64, its 32-byte seed with or without the public key after it: signs `v1a`. The
//!   receiver holds only the public key, `whpk_…`.
//! - The signed text is `{webhook-id}.{webhook-timestamp}.{body}`; every secret signs, in order.
//! - A secret is never printed, and secrets are compared in constant time.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use contract::limits::SIGNING_SECRETS_MAX;
use contract::{Error, Kind, Result, SecretKind};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair};
use std::fmt;
use std::sync::Arc;

const SYMMETRIC: &str = "whsec_";
const PRIVATE: &str = "whsk_";
const PUBLIC: &str = "whpk_";
/// The length of a shared secret by the standard, in bytes.
const SYMMETRIC_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// The length of an ed25519 seed and of a public key, in bytes.
const KEY_BYTES: usize = 32;

/// A secret that signs deliveries.
#[derive(Clone)]
pub(crate) struct WebhookSecret {
    text: Arc<str>,
    key: SigningKey,
}

#[derive(Clone)]
enum SigningKey {
    Symmetric(hmac::Key),
    Asymmetric(Arc<Ed25519KeyPair>),
}

/// Parses the secrets of a subscription; `pointer` is the place of the list in the request.
pub(crate) fn check_secrets<T: AsRef<str>>(pointer: &str, texts: &[T]) -> Result<Vec<WebhookSecret>> {
    if texts.len() > SIGNING_SECRETS_MAX {
        return Err(Error::invalid(pointer, format!("has more than {SIGNING_SECRETS_MAX} secrets")));
    }
    let mut secrets: Vec<WebhookSecret> = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        let pointer = format!("{pointer}/{index}");
        let secret = WebhookSecret::parse(&pointer, text.as_ref())?;
        if secrets.contains(&secret) {
            return Err(Error::invalid(pointer, "is there already"));
        }
        secrets.push(secret);
    }
    Ok(secrets)
}

/// The `webhook-signature` of a delivery; `None` without secrets.
pub(super) fn signature(secrets: &[WebhookSecret], id: &str, seconds: i64, body: &[u8]) -> Option<String> {
    let head = format!("{id}.{seconds}.");
    let signed: Vec<_> = secrets.iter().map(|secret| secret.sign(head.as_bytes(), body)).collect();
    (!signed.is_empty()).then(|| signed.join(" "))
}

impl WebhookSecret {
    /// Parses a secret; `pointer` is its place in the request.
    pub(crate) fn parse(pointer: &str, text: &str) -> Result<Self> {
        let refuse = |detail: &str| Error::invalid(pointer, detail);
        let not_base64 = || refuse("must be base64 after its prefix");
        let key = if let Some(rest) = text.strip_prefix(SYMMETRIC) {
            let bytes = BASE64.decode(rest).map_err(|_| not_base64())?;
            if !SYMMETRIC_BYTES.contains(&bytes.len()) {
                return Err(refuse("must have 24 to 64 bytes"));
            }
            SigningKey::Symmetric(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
        } else if let Some(rest) = text.strip_prefix(PRIVATE) {
            let bytes = BASE64.decode(rest).map_err(|_| not_base64())?;
            let pair = match bytes.split_at_checked(KEY_BYTES) {
                Some((seed, [])) => Ed25519KeyPair::from_seed_unchecked(seed),
                Some((seed, public)) => Ed25519KeyPair::from_seed_and_public_key(seed, public),
                None => return Err(refuse("must have 32 or 64 bytes")),
            };
            SigningKey::Asymmetric(Arc::new(
                pair.map_err(|_| refuse("must be an ed25519 key: a seed, or seed and public key"))?,
            ))
        } else {
            return Err(refuse("must begin with whsec_ or whsk_"));
        };
        Ok(Self { text: text.into(), key })
    }

    /// A new random secret.
    pub(crate) fn generate(kind: SecretKind) -> Result<Self> {
        let mut random = [0; KEY_BYTES];
        SystemRandom::new().fill(&mut random).map_err(|_| unavailable())?;
        Self::from_random(kind, &random)
    }

    /// The secret made of these random bytes.
    fn from_random(kind: SecretKind, random: &[u8; KEY_BYTES]) -> Result<Self> {
        match kind {
            SecretKind::Symmetric => Self::parse("", &format!("{SYMMETRIC}{}", BASE64.encode(random))),
            SecretKind::Asymmetric => {
                let pair = Ed25519KeyPair::from_seed_unchecked(random).map_err(|_| unavailable())?;
                let both = [random.as_slice(), pair.public_key().as_ref()].concat();
                Self::parse("", &format!("{PRIVATE}{}", BASE64.encode(both)))
            }
        }
    }

    /// The secret itself, to seal it and to show it to its owner once.
    pub(crate) fn expose(&self) -> &str {
        &self.text
    }

    /// The public key that verifies `v1a`, `whpk_…`; `None` for a shared secret.
    pub(crate) fn public_key(&self) -> Option<String> {
        match &self.key {
            SigningKey::Symmetric(_) => None,
            SigningKey::Asymmetric(pair) => Some(format!("{PUBLIC}{}", BASE64.encode(pair.public_key()))),
        }
    }

    fn sign(&self, head: &[u8], body: &[u8]) -> String {
        match &self.key {
            SigningKey::Symmetric(key) => {
                let mut context = hmac::Context::with_key(key);
                context.update(head);
                context.update(body);
                format!("v1,{}", BASE64.encode(context.sign()))
            }
            SigningKey::Asymmetric(pair) => format!("v1a,{}", BASE64.encode(pair.sign(&[head, body].concat()))),
        }
    }
}

fn unavailable() -> Error {
    Error::new(Kind::Unavailable, "The machine gives no random numbers.")
}

impl PartialEq for WebhookSecret {
    /// By digest, and digests of this kind compare in constant time.
    fn eq(&self, other: &Self) -> bool {
        blake3::hash(self.text.as_bytes()) == blake3::hash(other.text.as_bytes())
    }
}

impl Eq for WebhookSecret {}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.key {
            SigningKey::Symmetric(_) => "whsec_…",
            SigningKey::Asymmetric(_) => "whsk_…",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{ED25519, UnparsedPublicKey};

    const SHARED: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const KEY: &str = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";

    /// Published with the standard's libraries and with Svix.
    #[test]
    fn the_published_vectors_come_out() {
        for (secret, id, seconds, body, expected) in [
            (
                SHARED,
                "msg_p5jXN8AQM9LWM0D4loKWxJek",
                1_614_265_330,
                r#"{"test": 2432232314}"#,
                "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
            ),
            (
                "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
                "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
                1_649_367_553,
                r#"{"email":"test@example.com","username":"test_user"}"#,
                "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=",
            ),
            (
                KEY,
                "msg_p5jXN8AQM9LWM0D4loKWxJek",
                1_614_265_330,
                r#"{"test": 2432232314}"#,
                "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==",
            ),
        ] {
            let secrets = [WebhookSecret::parse("", secret).unwrap()];
            assert_eq!(signature(&secrets, id, seconds, body.as_bytes()).unwrap(), expected);
        }
    }

    #[test]
    fn every_secret_signs_in_their_order_and_none_is_no_signature() {
        let secrets = check_secrets("", &[KEY, SHARED]).unwrap();
        let signed = signature(&secrets, "a", 1, b"{}").unwrap();
        let versions: Vec<_> = signed.split(' ').map(|part| part.split_once(',').unwrap().0).collect();
        assert_eq!(versions, ["v1a", "v1"]);
        assert_eq!(signature(&[], "a", 1, b"{}"), None);
    }

    #[test]
    fn a_made_secret_can_be_read_again_and_its_public_key_verifies() {
        for kind in [SecretKind::Symmetric, SecretKind::Asymmetric] {
            let secret = WebhookSecret::generate(kind).unwrap();
            assert_eq!(WebhookSecret::parse("", secret.expose()).unwrap(), secret);
            assert_ne!(WebhookSecret::generate(kind).unwrap(), secret);
        }
        let secret = WebhookSecret::from_random(SecretKind::Asymmetric, &[7; 32]).unwrap();
        let public = BASE64.decode(secret.public_key().unwrap().strip_prefix("whpk_").unwrap()).unwrap();
        let signed = signature(std::slice::from_ref(&secret), "a", 1, b"{}").unwrap();
        let signed = BASE64.decode(signed.strip_prefix("v1a,").unwrap()).unwrap();
        UnparsedPublicKey::new(&ED25519, public).verify(b"a.1.{}", &signed).unwrap();
        // The seed alone is the same key.
        let seed = WebhookSecret::parse("", &format!("whsk_{}", BASE64.encode([7; 32]))).unwrap();
        assert_eq!(seed.public_key(), secret.public_key());
        assert_eq!(WebhookSecret::parse("", SHARED).unwrap().public_key(), None);
    }

    #[test]
    fn what_is_no_secret_is_refused_without_repeating_it() {
        let long = format!("whsec_{}", BASE64.encode([1; 65]));
        let foreign = format!("whsk_{}", BASE64.encode([1; 64]));
        for (text, detail) in [
            ("", "must begin with whsec_ or whsk_"),
            ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "must begin with whsec_ or whsk_"),
            ("whsec_not base64", "must be base64 after its prefix"),
            ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", "must be base64 after its prefix"),
            ("whsec_c2hvcnQ=", "must have 24 to 64 bytes"),
            (&long, "must have 24 to 64 bytes"),
            ("whsk_c2hvcnQ=", "must have 32 or 64 bytes"),
            (&foreign, "must be an ed25519 key: a seed, or seed and public key"),
        ] {
            let error = check_secrets("/signing/secrets", &[text]).unwrap_err();
            assert_eq!(error.violations()[0].pointer, "/signing/secrets/0", "{text}");
            assert_eq!(error.violations()[0].detail, detail, "{text}");
        }
        let twice = check_secrets("/s", &[SHARED, KEY, SHARED]).unwrap_err();
        assert_eq!(
            (twice.violations()[0].pointer.as_str(), twice.violations()[0].detail.as_str()),
            ("/s/2", "is there already")
        );
        let many: Vec<_> =
            (0..9).map(|_| WebhookSecret::generate(SecretKind::Symmetric).unwrap().expose().to_owned()).collect();
        assert_eq!(check_secrets("/s", &many).unwrap_err().violations()[0].detail, "has more than 8 secrets");
    }

    #[test]
    fn a_secret_is_never_printed() {
        let secrets = check_secrets("", &[SHARED, KEY]).unwrap();
        assert_eq!(format!("{secrets:?}"), "[whsec_…, whsk_…]");
    }
}
