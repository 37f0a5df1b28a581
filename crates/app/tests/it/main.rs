//! HTTP over a real listener; the API on both stores, SQLite and PostgreSQL.
//!
//! PostgreSQL is where `OUTPORT_TEST_POSTGRES` says (default
//! `postgres://postgres@127.0.0.1:5432/postgres`), by a user that may create databases. A missing
//! service fails the tests.

mod api_auth;
mod api_connection_guards;
mod api_connection_races;
mod api_connections;
mod api_console;
mod api_deliveries;
mod api_exports;
mod api_fetcher;
mod api_fetcher_names;
mod api_fetcher_runs;
mod api_fetcher_schema;
mod api_files;
mod api_foresight;
mod api_links;
mod api_operation;
mod api_refusals;
mod api_sealed;
mod api_split;
mod api_tenancy;
mod api_tokens;
mod api_world;
mod fetcher_world;
mod http_limits;
mod log;
mod stream_access;
mod stream_append;
mod stream_conformance;
mod stream_replay;
mod stream_socket;
mod stream_sse;
mod stream_world;
