//! The relay on real stores (`SQLite` and `PostgreSQL`), a real SMTP server and a real broker.
//!
//! The server is `smtp_server.py` beside this file, run by the interpreter that
//! `OUTPORT_TEST_PYTHON` names (default `target/tools/venv/bin/python`), which needs the packages
//! `aiosmtpd` and `cryptography`. `PostgreSQL` is where `OUTPORT_TEST_POSTGRES` says (default
//! `postgres://postgres@127.0.0.1:5432/postgres`), by a user that may create databases.
//! `RabbitMQ` is where `OUTPORT_TEST_RABBITMQ` says (default
//! `amqp://guest:guest@127.0.0.1:5672`); a node of a test's own is made of the programs in
//! `OUTPORT_TEST_RABBITMQ_PROGRAMS` (default `/usr/lib/rabbitmq/bin`). A missing service fails
//! the tests.

mod broker;
mod broker_node;
mod broker_outages;
mod exchange;
mod life;
mod listening;
mod mail;
mod messages;
mod notifier;
mod notifier_gaps;
mod notifier_outage;
mod probe;
mod publishing;
mod ring_bell;
mod rules;
mod smtp_server;
mod windows;
mod wire;
mod world;
