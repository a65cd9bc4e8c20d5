//! The PostgreSQL engine, on servers of the tests' own.

mod conformance;
mod server;
mod support;
