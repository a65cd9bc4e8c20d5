//! HTTP from the outside: servers in processes of their own, and a load generator that is cheaper than they are.
//!
//! - A server under test is a program of its own ([`server`]): ours, or a peer's ([`bare`], `durable-streams`). All of
//!   them run on this machine at the same time and are asked in turns.
//! - The generator speaks HTTP/1.1 by hand on one thread ([`connection`]): a client library takes about as much
//!   processor time as the server it calls, and on two cores that would be measured as the server's slowness.
//! - Requests are made of fresh ids and subjects ([`text`]); an answer that is not the wanted one ends the benchmark.
//! - [`drive`] asks as fast as it is answered, [`pace`] at a given rate; [`readers`] wait for what is published, and a
//!   [`receiver`] is called.

pub(crate) mod bare;
pub(crate) mod connection;
pub(crate) mod drive;
pub(crate) mod pace;
pub(crate) mod programs;
pub(crate) mod readers;
pub(crate) mod receiver;
pub(crate) mod server;
pub(crate) mod text;
pub(crate) mod tls;
