//! Name resolution.
//!
//! - The machine's resolver runs on a thread that may block. An abandoned look-up keeps its permit until it ends, so
//!   the number of such threads is limited.
//! - The addresses are not checked here, but in `connect`.

use contract::BoxFuture;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Resolves names.
pub(crate) trait Resolve: Send + Sync {
    /// The addresses of a name, in the order in which to try them.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// Most look-ups at a time.
const LOOKUPS_MAX: usize = 64;

/// The machine's resolver.
pub(super) struct SystemResolver(Arc<Semaphore>);

impl Default for SystemResolver {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LOOKUPS_MAX)))
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let permit = Arc::clone(&self.0).acquire_owned().await.map_err(io::Error::other)?;
            let name = name.to_owned();
            let lookup = tokio::task::spawn_blocking(move || {
                let found = (name.as_str(), 0).to_socket_addrs();
                drop(permit);
                found.map(|addresses| addresses.map(|address| address.ip()).collect())
            });
            lookup.await.map_err(io::Error::other)?
        })
    }
}
