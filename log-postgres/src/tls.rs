//! Encryption of connections.

use crate::failure::refused;
use log::LogError;
use tokio_postgres::Config;

pub(crate) type Tls = tokio_postgres::NoTls;

/// Reads a URL (or a list of `key=value`) as libpq does.
pub(crate) fn parse(url: &str) -> Result<(Config, Tls), LogError> {
    let config =
        url.parse().map_err(|error| refused(format!("this is no address of a PostgreSQL database: {error}")))?;
    Ok((config, tokio_postgres::NoTls))
}
