//! The address of a database, as it may be shown: as the driver reads it, without the password.

use crate::tls::TlsParams;
use std::fmt::Write;
use std::net::IpAddr;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

const DEFAULT_PORT: u16 = 5432;
/// Shown instead of an address that the driver does not understand: any part of it may be a password.
const HIDDEN: &str = "***";

/// User, hosts and database of an address, with `***` for a password, without parameters.
#[must_use]
pub fn redacted_url(url: &str) -> String {
    let Some(config) = read(url).filter(|config| !is_misread(config)) else { return HIDDEN.to_owned() };
    let mut text = String::from("postgres://");
    if let Some(user) = config.get_user() {
        text.push_str(user);
        text.push_str(if config.get_password().is_some() { ":***@" } else { "@" });
    }
    for (index, host) in config.get_hosts().iter().enumerate() {
        text.push_str(if index > 0 { "," } else { "" });
        match host {
            Host::Tcp(name) => text.push_str(name),
            #[cfg(unix)]
            Host::Unix(folder) => text.push_str(&folder.to_string_lossy()),
        }
        let port = config.get_ports().get(index).or(config.get_ports().first()).copied().unwrap_or(DEFAULT_PORT);
        if port != DEFAULT_PORT {
            let _ = write!(text, ":{port}");
        }
    }
    if let Some(name) = config.get_dbname() {
        let _ = write!(text, "/{name}");
    }
    text
}

/// Whether an address contains a password; one that the driver does not understand may.
#[must_use]
pub fn has_password(url: &str) -> bool {
    read(url).is_none_or(|config| config.get_password().is_some())
}

/// A host on another machine that the driver connects to without verifying its certificate, if there is one.
///
/// With `hostaddr` the driver connects there, whatever `host` names.
pub(crate) fn unverified_host(url: &str) -> Option<String> {
    let wanted = TlsParams::take(url);
    let config = wanted.rest.parse::<Config>().ok()?;
    let addresses = config.get_hostaddrs();
    let remote = match addresses {
        [] => config.get_hosts().iter().find_map(remote_name),
        _ => addresses.iter().find(|address| !address.is_loopback()).map(IpAddr::to_string),
    };
    remote.filter(|_| !wanted.verified)
}

/// The name of a host on another machine.
fn remote_name(host: &Host) -> Option<String> {
    let Host::Tcp(name) = host else { return None };
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
    let is_local = name == "localhost" || address.is_ok_and(|address| address.is_loopback());
    (!is_local).then(|| name.clone())
}

/// Whether a host or a database contains an `@`. The driver ends the password at the first one, so the rest is part of a
/// password that was not escaped.
fn is_misread(config: &Config) -> bool {
    let in_host = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
    config.get_hosts().iter().any(in_host) || config.get_dbname().is_some_and(|name| name.contains('@'))
}

fn read(url: &str) -> Option<Config> {
    TlsParams::take(url).rest.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_as_the_driver_reads_it_and_without_its_password() {
        for (url, expected) in [
            ("postgres://broker@localhost/events", "postgres://broker@localhost/events"),
            (
                "postgres://broker:s3cret@localhost:5432/events?sslmode=disable",
                "postgres://broker:***@localhost/events",
            ),
            ("postgres://u:s3cret@h:6000,i:6001/db?sslmode=verify-full", "postgres://u:***@h:6000,i:6001/db"),
            ("postgres://u:s3cr%2Fet@h/db", "postgres://u:***@h/db"),
            ("postgres://h/db?user=u&password=s3cret", "postgres://u:***@h/db"),
            ("postgres://h/db?%70assword=s3cret&user=u", "postgres://u:***@h/db"),
            ("host=h user=u password=s3cret dbname=db", "postgres://u:***@h/db"),
            ("postgres://u:s3cret@h:no-port/db", "***"),
        ] {
            assert_eq!(redacted_url(url), expected, "{url}");
        }
        // An unescaped slash or `@` in a password, however the driver reads it: nothing of the password is shown.
        for url in [
            "postgres://u:s3cr/et@h/db",
            "postgres://u:p@s3cr/et@h/db",
            "postgres://u:p@s3cr@h/db",
            "postgres://u:s3cr?et@h/db",
        ] {
            assert!(
                !redacted_url(url).contains("s3cr") && !redacted_url(url).contains("et@"),
                "{url}: {}",
                redacted_url(url)
            );
        }
        assert!(has_password("postgres://u:p@h/db") && !has_password("postgres://u@h/db"));
    }

    #[test]
    fn a_host_on_another_machine_must_be_verified() {
        for url in [
            "postgres://a@h/d",
            "postgres://a@h/d?sslmode=require",
            "postgres://a@127.0.0.1,10.0.0.1/d",
            "postgres://a@localhost/d?hostaddr=10.255.255.1",
            "postgres:///d?hostaddr=10.255.255.1",
            "host=127.0.0.1 hostaddr=10.255.255.1 user=a",
        ] {
            assert!(unverified_host(url).is_some(), "{url}");
        }
        for url in [
            "postgres://a@localhost/d",
            "postgres://a@127.0.0.1/d",
            "postgres://a@[::1]/d",
            "postgres://a@%2Ftmp/d",
            "postgres:///d?host=/run/postgresql",
            "postgres://a@h/d?sslmode=verify-full",
            "postgres://a@h/d?hostaddr=10.0.0.1&sslmode=verify-full",
            "postgres://a@h/d?hostaddr=127.0.0.1",
            "postgres://a@h/d?sslrootcert=/x.pem",
        ] {
            assert_eq!(unverified_host(url), None, "{url}");
        }
    }
}
