//! Access tokens of OAuth 2 clients: fetched once, cached until shortly before they expire, renewed when refused.
//!
//! - One request per client at a time: deliveries that need the same token wait for it.
//! - A refused token is renewed once; later deliveries with the same refused token get the new one.
//! - The token endpoint is a target like any other: checked, limited in bytes and time, never redirected.

use super::credentials::{OAuthClient, secret_header};
use super::exchange::{ExchangeError, exchange, timed_out};
use super::failure::{DeliveryFailure, ErrorClass};
use super::lru::LruMap;
use super::pool::ClientPool;
use bytes::Bytes;
use contract::limits::CREDENTIAL_BYTES_MAX;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Request};
use http_body_util::Full;
use serde::Deserialize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The cached token of one client.
type TokenCell = Arc<tokio::sync::Mutex<Option<AccessToken>>>;

/// The tokens of recently used clients.
pub(super) struct TokenCache {
    cells: Mutex<LruMap<blake3::Hash, TokenCell>>,
}

/// A token in the form of its header.
pub(super) struct AccessToken {
    header: HeaderValue,
    until: Instant,
}

/// A token for a delivery.
pub(super) struct GrantedToken {
    pub(super) header: HeaderValue,
    /// Whether it was cached: then it may have been revoked since.
    pub(super) was_cached: bool,
}

/// What a fetch needs.
#[derive(Clone, Copy)]
pub(super) struct TokenFetch<'a> {
    pub(super) pool: &'a ClientPool,
    pub(super) user_agent: &'a HeaderValue,
    pub(super) deadline: Instant,
    pub(super) bytes_max: usize,
}

/// Most clients whose tokens are cached.
const CLIENTS_MAX: usize = 1024;
/// The lifetime of a token without `expires_in`.
const LIFETIME_DEFAULT: Duration = Duration::from_secs(300);
/// The longest time a token is cached.
const LIFETIME_MAX: Duration = Duration::from_secs(86_400);
/// A token is renewed this long before it expires, or a tenth of its lifetime if that is less.
const MARGIN: Duration = Duration::from_secs(30);

impl Default for TokenCache {
    fn default() -> Self {
        Self { cells: Mutex::new(LruMap::new(CLIENTS_MAX)) }
    }
}

impl TokenCache {
    /// A token of this client, other than the `refused` one.
    pub(super) async fn token(
        &self,
        client: &OAuthClient,
        refused: Option<&HeaderValue>,
        fetching: TokenFetch<'_>,
    ) -> Result<GrantedToken, DeliveryFailure> {
        let cell = self.cell(client.fingerprint);
        let in_time = timeout_at(fetching.deadline, cell.lock()).await;
        let mut kept = in_time.map_err(|_| timed_out("No access token in time."))?;
        let usable = kept.as_ref().filter(|token| token.until > Instant::now() && Some(&token.header) != refused);
        if let Some(token) = usable {
            return Ok(GrantedToken { header: token.header.clone(), was_cached: true });
        }
        // Dropped even if fetching fails: it was refused or is too old.
        *kept = None;
        let token = kept.insert(fetch(client, fetching).await?);
        Ok(GrantedToken { header: token.header.clone(), was_cached: false })
    }

    fn cell(&self, client: blake3::Hash) -> TokenCell {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = cells.get(&client) {
            return cell;
        }
        let cell = TokenCell::default();
        cells.put(client, Arc::clone(&cell));
        cell
    }
}

/// The response of the token endpoint (RFC 6749, section 5.1).
#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    token_type: String,
    expires_in: Option<f64>,
}

/// Its refusal (section 5.2).
#[derive(Deserialize)]
struct TokenRefusal {
    error: String,
}

async fn fetch(client: &OAuthClient, fetching: TokenFetch<'_>) -> Result<AccessToken, DeliveryFailure> {
    let asked = Instant::now();
    let refused = |what: &str| DeliveryFailure::new(ErrorClass::Auth, format!("No access token: {what}."));
    let mut request = Request::post(client.endpoint.uri().clone())
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, fetching.user_agent);
    if let Some(authorization) = &client.authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let request = request.body(Full::new(Bytes::from(client.form.clone())));
    let request = request.map_err(|_| refused("the request cannot be written"))?;
    let connections = fetching.pool.client(&client.endpoint, None).map_err(|failure| of_endpoint(&failure))?;
    let answer = exchange(&connections, request, fetching.deadline, fetching.bytes_max).await;
    let answer = answer.map_err(|ExchangeError { failure, .. }| of_endpoint(&failure))?;
    if !answer.status.is_success() {
        let status = answer.status.as_u16();
        let code = serde_json::from_slice::<TokenRefusal>(&answer.body).ok().map(|refusal| refusal.error);
        let code = code.filter(|code| is_code(code)).map_or(String::new(), |code| format!(" ({code})"));
        return Err(refused(&format!("the token endpoint responded with {status}{code}")));
    }
    let issued = serde_json::from_slice::<TokenResponse>(&answer.body).ok();
    let issued = issued.filter(|issued| issued.token_type.eq_ignore_ascii_case("bearer"));
    let issued = issued.ok_or_else(|| refused("the token endpoint's response has no bearer token"))?;
    let header = Some(issued.access_token).filter(|token| (1..=CREDENTIAL_BYTES_MAX).contains(&token.len()));
    let header = header.and_then(|token| secret_header(&format!("Bearer {token}")));
    let header = header.ok_or_else(|| refused("the token cannot be sent in a header"))?;
    Ok(AccessToken { header, until: asked + cache_lifetime(issued.expires_in) })
}

/// A failure of the token endpoint, distinct from one of the target.
fn of_endpoint(failure: &DeliveryFailure) -> DeliveryFailure {
    let failed = DeliveryFailure::new(ErrorClass::Auth, format!("No access token, at the token endpoint: {failure}"));
    if failure.retryable { failed } else { failed.for_good() }
}

/// Whether it is a well-formed error code of bounded length.
fn is_code(code: &str) -> bool {
    (1..=64).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

fn cache_lifetime(expires_in: Option<f64>) -> Duration {
    let stated = expires_in.map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(LIFETIME_MAX));
    let lifetime = stated.unwrap_or(LIFETIME_DEFAULT).min(LIFETIME_MAX);
    lifetime - MARGIN.min(lifetime / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_kept_until_shortly_before_it_expires() {
        for (expires_in, seconds) in [
            (None, 270),
            (Some(3600.0), 3570),
            (Some(100.0), 90),
            (Some(10.0), 9),
            (Some(0.0), 0),
            (Some(-1.0), 0),
            (Some(1e300), 86_370),
            (Some(f64::NAN), 0),
        ] {
            assert_eq!(cache_lifetime(expires_in), Duration::from_secs(seconds), "{expires_in:?}");
        }
    }
}
