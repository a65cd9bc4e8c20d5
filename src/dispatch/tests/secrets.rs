//! Secrets of subscriptions: when the key is not the one that sealed them, and where they may be sent.

use super::check;
use crate::config::{Config, StorageConfig};
use crate::subscriptions::SecretVault;

/// All lists of jobs were refused, nothing showed why nothing was delivered, and only deleting it helped.
#[test]
fn a_subscription_whose_secrets_cannot_be_decrypted_is_shown_held_and_breaks_no_list() {
    check(
        "
        subscribe mail
        key other
        subscribe fine
        publish a
        run                         -> fine/1:200
        jobs                        -> fine/1 mail/1
        jobs status=QUEUED          -> mail/1
        jobs status=COMPLETED       -> fine/1
        status mail                 -> Active through 0 open 0 held
        status fine                 -> Active through 1 open 0
        replay mail 1 1 dry         -> 1
        change mail name=renamed
        key k
        run                         -> mail/1:200
        status mail                 -> Active through 1 open 0
    ",
    );
}

/// A change of its secrets was refused because the old ones could not be decrypted.
#[test]
fn new_secrets_repair_a_subscription_whose_old_ones_cannot_be_decrypted() {
    for verb in ["rotate mail 0", "change mail signing=own auth=null"] {
        check(&format!(
            "
            subscribe mail
            publish a
            key other
            run                         ->
            rotate mail                 -> UNAVAILABLE
            change mail signing=own     -> UNAVAILABLE
            {verb}
            run                         -> mail/1:200
        "
        ));
    }
}

/// To look at a sealed value made a new key file, and the old one, put back, did not open what was sealed since.
#[test]
fn a_missing_key_file_is_not_made_anew_to_open_what_another_one_sealed() {
    let folder = tempfile::TempDir::new().unwrap();
    let config = Config { storage: StorageConfig::folder(folder.path()), ..Config::default() };
    let id = uuid::Uuid::from_u128(7);
    let vault = SecretVault::of(&config);
    assert!(vault.is_key_missing());
    assert!(vault.unseal(id, Some("2:AAAA")).is_err());
    assert!(vault.is_key_missing() && !folder.path().join(crate::subscriptions::KEY_FILE).exists());
}

/// With its own secret set first and its target changed then, they were sent over http.
#[test]
fn own_signing_secrets_do_not_move_to_http() {
    check(
        "
        public
        subscribe mail target=https://example.com/
        change mail target=http://example.com/
        change mail target=https://example.com/
        change mail signing=own
        change mail target=http://example.com/  -> VALIDATION_ERROR
        change mail name=renamed
        rotate mail 60
        change mail target=http://example.com/  -> VALIDATION_ERROR
        rotate mail 0
        change mail target=http://example.com/
    ",
    );
}
