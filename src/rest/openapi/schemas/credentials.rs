//! How deliveries are authorised.

use crate::rest::openapi::shape::{Shape, any_text, either, object, patterned, word};
use contract::limits::CREDENTIAL_BYTES_MAX;
use serde_json::json;

/// Text that may stand in a header.
const VISIBLE: &str = "^[ -~]+$";
/// Any text but for control characters.
const PLAIN: &str = r"^[^\x00-\x1f\x7f-\x9f]+$";
/// A user's name: no colon (RFC 7617), no control characters.
const USER: &str = r"^[^\x00-\x1f\x7f-\x9f:]+$";
const NO_CONTROL: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";

/// The name of a header (RFC 9110), which is not one of those that the broker sends itself.
const HEADER: &str = "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$";

/// Credentials of one of the kinds; `type` says which.
pub(super) fn auth() -> Shape {
    let example = json!({"type": "bearer", "token": "t0ken"});
    let kinds = [bearer(), basic(), api_key(), oauth2(), mtls()];
    either(kinds, "How deliveries are authorised: `type` says which members there are.").like(example)
}

fn kind(name: &str, description: &str) -> Shape {
    object(description).must("type", word(&[name], "Which kind.").like(name)).closed()
}

fn bearer() -> Shape {
    kind("bearer", "`Authorization: Bearer`, with a token that stays the same.")
        .must("token", patterned(VISIBLE, "The token.").up_to(CREDENTIAL_BYTES_MAX).like("t0ken"))
        .like(json!({"type": "bearer", "token": "t0ken"}))
}

fn basic() -> Shape {
    kind("basic", "`Authorization: Basic`.")
        .must("username", patterned(USER, "The user; no colon.").up_to(CREDENTIAL_BYTES_MAX).like("orders"))
        .must("password", patterned(NO_CONTROL, "The password.").up_to(CREDENTIAL_BYTES_MAX).like("s3cret"))
        .like(json!({"type": "basic", "username": "orders", "password": "s3cret"}))
}

fn api_key() -> Shape {
    kind("apikey", "A key in a header of its own.")
        .must("header", patterned(HEADER, "The header that carries the key.").like("X-Api-Key"))
        .must("key", patterned(VISIBLE, "The key.").up_to(CREDENTIAL_BYTES_MAX).like("k3y"))
        .like(json!({"type": "apikey", "header": "X-Api-Key", "key": "k3y"}))
}

fn oauth2() -> Shape {
    let example = json!({
        "type": "oauth2", "tokenUrl": "https://login.invalid/token", "clientId": "orders", "clientSecret": "s3cret",
    });
    kind("oauth2", "A token fetched by OAuth 2 client credentials.")
        .must("tokenUrl", any_text("Where tokens come from.").like("https://login.invalid/token"))
        .must("clientId", patterned(PLAIN, "The client.").up_to(CREDENTIAL_BYTES_MAX).like("orders"))
        .must("clientSecret", patterned(PLAIN, "Its secret.").up_to(CREDENTIAL_BYTES_MAX).like("s3cret"))
        .or_null("scope", patterned(PLAIN, "What for.").up_to(CREDENTIAL_BYTES_MAX).like("events"))
        .or_null("audience", patterned(PLAIN, "For whom.").up_to(CREDENTIAL_BYTES_MAX).like("https://hooks.invalid"))
        .like(example)
}

fn mtls() -> Shape {
    kind("mtls", "A client certificate.")
        .must("certificate", any_text("The chain, PEM.").like("…"))
        .must("key", any_text("Its key, PEM.").like("…"))
        .like(json!({"type": "mtls", "certificate": "…", "key": "…"}))
}
