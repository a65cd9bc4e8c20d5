//! The PostgreSQL engine, on servers of the tests' own.

mod server;
