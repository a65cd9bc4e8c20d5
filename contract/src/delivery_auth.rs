//! Credentials of deliveries.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How deliveries are authorised. Never returned by the API.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum DeliveryAuth {
    /// `Authorization: Bearer …`.
    Bearer {
        /// The token.
        token: String,
    },
    /// `Authorization: Basic …`.
    Basic {
        /// The user.
        username: String,
        /// The password.
        password: String,
    },
    /// A key in a header of the receiver's choice.
    ApiKey {
        /// The header's name.
        header: String,
        /// The key.
        key: String,
    },
    /// A token fetched by OAuth 2 client credentials.
    OAuth2 {
        /// The URL of the token endpoint.
        token_url: String,
        /// The client id.
        client_id: String,
        /// The client secret.
        client_secret: String,
        /// The scope.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<String>,
        /// The audience.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        audience: Option<String>,
    },
    /// A client certificate.
    Mtls {
        /// The certificate chain, PEM.
        certificate: String,
        /// The private key, PEM.
        key: String,
    },
}

impl DeliveryAuth {
    /// The kind, which is all that the API returns.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Bearer { .. } => "bearer",
            Self::Basic { .. } => "basic",
            Self::ApiKey { .. } => "apikey",
            Self::OAuth2 { .. } => "oauth2",
            Self::Mtls { .. } => "mtls",
        }
    }
}

impl fmt::Debug for DeliveryAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeliveryAuth({})", self.kind())
    }
}
