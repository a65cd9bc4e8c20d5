//! What one address holds of the budgets, so that no address can take everything.
//!
//! - An address is counted from its first connection to its last ([`AddressUsage`]); the server knows which address it is.
//! - The task of a request knows its caller ([`on_behalf_of`]), and budgets charge that caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

tokio::task_local! {
    static CALLER: Arc<AddressUsage>;
}

/// Bytes that the requests of one address hold.
#[derive(Default)]
pub(crate) struct AddressUsage {
    bodies: AddressAccount,
    imports: AddressAccount,
    answers: AddressAccount,
    heads: AddressAccount,
    http2_heads: AddressAccount,
    connections: AddressAccount,
    few_connections: AddressAccount,
}

/// The bytes of one budget that an address holds.
#[derive(Default)]
pub(super) struct AddressAccount {
    bytes: AtomicUsize,
    waiting: AtomicUsize,
    freed: Notify,
}

/// The share of a budget that one address may hold.
#[derive(Clone, Copy)]
pub(crate) struct AddressLimit {
    pub(super) account: fn(&AddressUsage) -> &AddressAccount,
    pub(super) bytes: usize,
    /// The part of it that is kept for small reservations.
    pub(super) reserve: usize,
}

impl AddressLimit {
    /// The share of request bodies.
    pub(crate) const fn of_bodies(bytes: usize, reserve: usize) -> Self {
        Self { account: |usage| &usage.bodies, bytes, reserve }
    }

    /// The share of imports.
    pub(crate) const fn of_imports(bytes: usize) -> Self {
        Self { account: |usage| &usage.imports, bytes, reserve: 0 }
    }

    /// The share of large heads over HTTP/1.
    pub(crate) const fn of_heads(bytes: usize) -> Self {
        Self { account: |usage| &usage.heads, bytes, reserve: 0 }
    }

    /// The share of unfinished heads over HTTP/2.
    pub(crate) const fn of_http2_heads(bytes: usize) -> Self {
        Self { account: |usage| &usage.http2_heads, bytes, reserve: 0 }
    }

    /// The share of connections.
    pub(crate) const fn of_connections(bytes: usize) -> Self {
        Self { account: |usage| &usage.connections, bytes, reserve: 0 }
    }

    /// The share of the memory that is kept for addresses with few connections.
    pub(crate) const fn of_few_connections(bytes: usize) -> Self {
        Self { account: |usage| &usage.few_connections, bytes, reserve: 0 }
    }

    /// The share of responses.
    pub(crate) const fn of_answers(bytes: usize) -> Self {
        Self { account: |usage| &usage.answers, bytes, reserve: 0 }
    }
}

impl AddressAccount {
    /// The bytes that are held.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Adds bytes, if the sum is at most `most`.
    pub(super) fn charge(&self, bytes: usize, most: usize) -> bool {
        let add = |held: usize| held.checked_add(bytes).filter(|held| *held <= most);
        bytes == 0 || self.bytes.fetch_update(Ordering::SeqCst, Ordering::Relaxed, add).is_ok()
    }

    /// The same, but waits until it is possible. The charge is refunded unless it is kept.
    pub(super) async fn charge_soon(&self, bytes: usize, most: usize) -> AddressCharge<'_> {
        let _waiting = WaitingCharge::new(&self.waiting);
        loop {
            let freed = self.freed.notified();
            if self.charge(bytes, most) {
                return AddressCharge { account: self, bytes };
            }
            freed.await;
        }
    }

    /// Subtracts bytes.
    pub(super) fn refund(&self, bytes: usize) {
        if bytes > 0 {
            self.bytes.fetch_sub(bytes, Ordering::SeqCst);
            if self.waiting.load(Ordering::SeqCst) > 0 {
                self.freed.notify_waiters();
            }
        }
    }
}

/// Bytes that were charged for a reservation that is not complete yet.
pub(super) struct AddressCharge<'a> {
    account: &'a AddressAccount,
    bytes: usize,
}

impl AddressCharge<'_> {
    /// The reservation is complete, and refunds the bytes itself.
    pub(super) fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for AddressCharge<'_> {
    fn drop(&mut self) {
        self.account.refund(self.bytes);
    }
}

/// Counts a waiting charge until it is dropped.
struct WaitingCharge<'a>(&'a AtomicUsize);

impl<'a> WaitingCharge<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::SeqCst);
        Self(waiting)
    }
}

impl Drop for WaitingCharge<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs `work`; its reservations are charged to this address.
pub(crate) async fn on_behalf_of<F: Future>(usage: Arc<AddressUsage>, work: F) -> F::Output {
    CALLER.scope(usage, work).await
}

/// The same for synchronous work.
pub(crate) fn at_once_on_behalf_of<T>(usage: &Arc<AddressUsage>, work: impl FnOnce() -> T) -> T {
    CALLER.sync_scope(Arc::clone(usage), work)
}

/// The address to which the current task is charged.
pub(super) fn caller() -> Option<Arc<AddressUsage>> {
    CALLER.try_with(Clone::clone).ok()
}
