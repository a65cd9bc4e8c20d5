//! Parked polls: long polls that wait without their HTTP/1 connection's buffers.
//!
//! ```text
//!   connection.rs                      waiting_request.rs              slot.rs
//!   ─────────────                      ──────────────────              ───────
//!   hyper serves the request ────────▶ the handler's future    Empty
//!                                      has to wait ──────────▶ Waiting(request head, future)
//!   hyper's connection is taken   ◀─────────────────────────── taken
//!   apart: only the socket stays
//!   future and socket are polled
//!     ├─ the peer is gone: end
//!     └─ the response is there ──────────────────────────────▶ Answered(response)
//!   a new hyper connection reads
//!   the request head again ──────────▶ the same route ───────▶ taken; the response is sent: Empty
//! ```
//!
//! - Hyper keeps two buffers of 8 KiB per connection, and every layer between socket and handler keeps its future. A poll
//!   that waits for half a minute needs none of that; `bench idle` measures the difference.
//! - The future that waits is moved, not started again: a filter does not examine an event twice.
//! - A poll is parked as soon as it has to wait, while its connection's memory is still warm for the next one. If the last
//!   poll of the connection was answered quickly, the next one first stays for a while, unless memory is scarce.
//! - Only for HTTP/1 and requests without a body. An HTTP/2 connection shares its buffers among many requests.

mod connection;
mod slot;
#[cfg(test)]
mod tests;
mod waiting_request;

pub(crate) use connection::serve_http1;
pub(crate) use slot::ParkingSlot;
pub(crate) use waiting_request::WaitingRequest;
