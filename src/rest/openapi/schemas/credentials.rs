//! How deliveries are authorised.

use crate::rest::openapi::schema_spec::{SchemaSpec, any_of, any_text, enumeration, object, patterned};
use contract::limits::CREDENTIAL_BYTES_MAX;
use serde_json::json;

/// Text that is allowed in a header.
const VISIBLE: &str = "^[ -~]+$";
/// Any text without control characters.
const PLAIN: &str = r"^[^\x00-\x1f\x7f-\x9f]+$";
/// A user's name: no colon (RFC 7617), no control characters.
const USER: &str = r"^[^\x00-\x1f\x7f-\x9f:]+$";
const NO_CONTROL: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";

/// The name of a header (RFC 9110). The broker refuses those that it sends itself.
const HEADER: &str = "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$";

/// Credentials of one of the kinds; `type` says which.
pub(super) fn auth() -> SchemaSpec {
    let kinds = [bearer(), basic(), api_key(), oauth2(), mtls()];
    any_of(kinds, "The credentials of deliveries; `type` determines the other members.")
        .example(json!({"type": "bearer", "token": "t0ken"}))
}

fn kind(name: &str, description: &str) -> SchemaSpec {
    object(description).required("type", enumeration(&[name], "The type of credentials.").example(name)).closed()
}

fn bearer() -> SchemaSpec {
    kind("bearer", "`Authorization: Bearer`, with a fixed token.")
        .required("token", patterned(VISIBLE, "The token.").max_length(CREDENTIAL_BYTES_MAX).example("t0ken"))
        .example(json!({"type": "bearer", "token": "t0ken"}))
}

fn basic() -> SchemaSpec {
    kind("basic", "`Authorization: Basic`.")
        .required(
            "username",
            patterned(USER, "The user name, without a colon.").max_length(CREDENTIAL_BYTES_MAX).example("orders"),
        )
        .required("password", patterned(NO_CONTROL, "The password.").max_length(CREDENTIAL_BYTES_MAX).example("s3cret"))
        .example(json!({"type": "basic", "username": "orders", "password": "s3cret"}))
}

fn api_key() -> SchemaSpec {
    kind("apikey", "An API key in a header.")
        .required("header", patterned(HEADER, "The header that carries the key.").example("X-Api-Key"))
        .required("key", patterned(VISIBLE, "The key.").max_length(CREDENTIAL_BYTES_MAX).example("k3y"))
        .example(json!({"type": "apikey", "header": "X-Api-Key", "key": "k3y"}))
}

fn oauth2() -> SchemaSpec {
    let example = json!({
        "type": "oauth2", "tokenUrl": "https://login.invalid/token", "clientId": "orders", "clientSecret": "s3cret",
    });
    kind("oauth2", "A token fetched by OAuth 2 client credentials.")
        .required("tokenUrl", any_text("The token endpoint.").example("https://login.invalid/token"))
        .required("clientId", patterned(PLAIN, "The client id.").max_length(CREDENTIAL_BYTES_MAX).example("orders"))
        .required(
            "clientSecret",
            patterned(PLAIN, "The client secret.").max_length(CREDENTIAL_BYTES_MAX).example("s3cret"),
        )
        .optional_nullable(
            "scope",
            patterned(PLAIN, "The scope of the token.").max_length(CREDENTIAL_BYTES_MAX).example("events"),
        )
        .optional_nullable(
            "audience",
            patterned(PLAIN, "The audience of the token.")
                .max_length(CREDENTIAL_BYTES_MAX)
                .example("https://hooks.invalid"),
        )
        .example(example)
}

fn mtls() -> SchemaSpec {
    kind("mtls", "A client certificate.")
        .required("certificate", any_text("The certificate chain in PEM.").example("…"))
        .required("key", any_text("The private key in PEM.").example("…"))
        .example(json!({"type": "mtls", "certificate": "…", "key": "…"}))
}
