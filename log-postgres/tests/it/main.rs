//! The PostgreSQL engine, on servers of the tests' own.

mod conformance;
mod failures;
mod server;
mod several;
mod support;
