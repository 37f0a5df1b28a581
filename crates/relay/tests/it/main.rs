//! The relay on real stores (`SQLite` and `PostgreSQL`) and a real SMTP server.
//!
//! The server is `smtp_server.py` beside this file, run by the interpreter that
//! `OUTPORT_TEST_PYTHON` names (default `target/tools/venv/bin/python`), which needs the packages
//! `aiosmtpd` and `cryptography`. `PostgreSQL` is where `OUTPORT_TEST_POSTGRES` says (default
//! `postgres://postgres@127.0.0.1:5432/postgres`), by a user that may create databases. A missing
//! service fails the tests.

mod life;
mod mail;
mod messages;
mod probe;
mod ring_bell;
mod rules;
mod smtp_server;
mod world;
