//! The PostgreSQL engine, on servers of the tests' own.

mod conformance;
mod encryption;
mod failures;
mod roles;
mod schema;
mod server;
mod several;
mod support;
