//! Secrets of subscriptions as requests change them: what is sealed, what is kept, and what a lost key allows.
//!
//! - A subscription whose secrets cannot be decrypted can still be changed: what a change does not touch is kept as it is
//!   sealed, and what it replaces needs no decryption.
//! - No key file is made while the logs hold values that were sealed with another one: that one may come back.

use super::Subscriptions;
use super::decide::key_missing;
use super::validate::{self, SecretExposure};
use super::vault::{SigningSecret, SubscriptionSecrets};
use crate::delivery::{DeliveryTarget, WebhookSecret};
use crate::ledger::{ReplyRecorder, SubscriptionRow, answer_or_repeat, decide_until_known};
use contract::{Error, NewSecret, NewSubscription, Result, SecretRotation, SubscriptionChange, Timestamp, limits};
use uuid::Uuid;

/// The secrets of a subscription after a change.
pub(super) enum ChangedSecrets {
    Known(SubscriptionSecrets),
    /// They cannot be decrypted, and the change does not replace them: they stay as they are sealed.
    Unreadable(Error),
}

impl ChangedSecrets {
    /// Those that are known, to compile a definition with.
    pub(super) fn known_or_none(&self) -> &SubscriptionSecrets {
        const NONE: &SubscriptionSecrets = &SubscriptionSecrets { signing: Vec::new(), auth: None };
        match self {
            Self::Known(secrets) => secrets,
            Self::Unreadable(_) => NONE,
        }
    }

    /// Refuses what needs secrets that cannot be decrypted.
    pub(super) fn check_known(&self) -> Result<()> {
        match self {
            Self::Known(_) => Ok(()),
            Self::Unreadable(error) => Err(error.clone()),
        }
    }
}

impl Subscriptions<'_> {
    /// Replaces the signing secret of a subscription; the old ones also sign for a while. The recorded answer has everything
    /// but the secret itself.
    pub(crate) async fn rotate(
        &self,
        id: &str,
        rotation: SecretRotation,
        recorder: ReplyRecorder<NewSecret>,
    ) -> Result<NewSecret> {
        let grace = rotation.grace_seconds.unwrap_or(limits::GRACE_SECONDS_DEFAULT);
        if grace > limits::GRACE_SECONDS_MAX {
            let detail = format!("must be between 0 and {}", limits::GRACE_SECONDS_MAX);
            return Err(Error::invalid("/graceSeconds", detail));
        }
        let made = &WebhookSecret::generate(rotation.kind.unwrap_or_default())?;
        let recorder = &recorder;
        decide_until_known((), |()| async move {
            let (ledger, row) = self.find(id)?;
            let now = ledger.now();
            let until = now.saturating_add(i64::from(grace) * 1000);
            let mut secrets = match self.vault.unseal(row.id, row.sealed.as_deref()) {
                // Nothing of the old secrets is kept.
                Err(_) if grace == 0 && row.auth_type.is_none() => SubscriptionSecrets::default(),
                known => known?,
            };
            secrets.signing.retain(|secret| grace > 0 && secret.until.is_none_or(|until| until > now));
            for secret in &mut secrets.signing {
                secret.until = Some(secret.until.map_or(until, |known| known.min(until)));
            }
            secrets.signing.insert(0, SigningSecret::generated(made));
            secrets.signing.truncate(limits::SIGNING_SECRETS_MAX);
            let definition = NewSubscription::clone(&row.definition);
            let previous_until = (secrets.signing.len() > 1).then(|| Timestamp::from_millis(until));
            let shown = NewSecret { secret: String::new(), public_key: made.public_key(), previous_until };
            let recorded = shown.clone();
            let recorder = recorder.map_answer(move |_| Some(Ok(recorded.clone())));
            let sealed = self.seal(row.id, &secrets)?;
            let row = self.put(&ledger, &row, definition, sealed, recorder).await?;
            Ok(answer_or_repeat(row.map(|_| NewSecret { secret: made.expose().to_owned(), ..shown })))
        })
        .await
    }

    /// The secrets after a change that brings these.
    pub(super) fn changed_secrets(
        &self,
        row: &SubscriptionRow,
        change: &SubscriptionChange,
        given: SubscriptionSecrets,
    ) -> Result<ChangedSecrets> {
        let (replaces_signing, replaces_auth) = (change.signing.is_some(), change.auth.is_some());
        if replaces_signing && replaces_auth {
            return Ok(ChangedSecrets::Known(given));
        }
        let mut secrets = match self.vault.unseal(row.id, row.sealed.as_deref()) {
            Ok(secrets) => secrets,
            Err(error) if replaces_signing || replaces_auth => return Err(error),
            Err(error) => return Ok(ChangedSecrets::Unreadable(error)),
        };
        if replaces_signing {
            secrets.signing = given.signing;
        }
        if replaces_auth {
            secrets.auth = given.auth;
        }
        Ok(ChangedSecrets::Known(secrets))
    }

    /// Refuses a change that would send secrets over http, or credentials in a header. What was accepted before there was
    /// such a rule stays.
    pub(super) fn check_exposure(
        &self,
        row: &SubscriptionRow,
        definition: &NewSubscription,
        change: &SubscriptionChange,
        secrets: &ChangedSecrets,
    ) -> Result<()> {
        let is_new = |name: &&str| !row.definition.headers.contains_key(*name);
        let (moves, signs) = (change.target.is_some(), change.signing.is_some());
        let was_encrypted = DeliveryTarget::parse("/target", &row.definition.target).is_ok_and(|it| it.is_encrypted());
        let has_secrets = match secrets {
            ChangedSecrets::Known(secrets) => {
                let is_own = |secret: &SigningSecret| match secret.is_own {
                    Some(is_own) => is_own && (moves || signs),
                    // Older versions did not store whose it is.
                    None => moves && was_encrypted,
                };
                let has_auth = secrets.auth.is_some() && (change.auth.is_some() || moves);
                has_auth || secrets.signing.iter().any(is_own)
            }
            ChangedSecrets::Unreadable(_) => moves && (was_encrypted || row.auth_type.is_some()),
        };
        let exposure = SecretExposure {
            target: &definition.target,
            has_secrets,
            headers: definition.headers.keys().map(String::as_str).filter(is_new).collect(),
        };
        validate::exposure(&exposure, &self.context.rules.config.dispatch)
    }

    /// The secrets of a subscription sealed, and the kind of its `auth`.
    pub(super) fn seal(
        &self,
        subscription: Uuid,
        secrets: &SubscriptionSecrets,
    ) -> Result<(Option<String>, Option<String>)> {
        if !secrets.is_empty() && self.vault.is_key_missing() {
            let is_sealed = |row: &SubscriptionRow| row.id != subscription && row.sealed.is_some();
            if self.context.logs.ledgers().iter().any(|ledger| ledger.dispatch().subscriptions().any(is_sealed)) {
                return Err(key_missing());
            }
        }
        let auth_type = secrets.auth.as_ref().map(|auth| auth.kind().to_owned());
        Ok((self.vault.seal(subscription, secrets)?, auth_type))
    }
}

/// A definition, and what must be sealed of it.
pub(super) fn split_secrets(mut new: NewSubscription) -> (NewSubscription, SubscriptionSecrets) {
    let signing = new.signing.as_mut().map(|signing| std::mem::take(&mut signing.secrets)).unwrap_or_default();
    let own = |text| SigningSecret { text, until: None, is_own: Some(true) };
    let auth = new.auth.take();
    (new, SubscriptionSecrets { signing: signing.into_iter().map(own).collect(), auth })
}
