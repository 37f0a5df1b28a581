//! One suite for every engine, against the real ones. PostgreSQL is found by
//! `OUTPORT_TEST_POSTGRES`, MariaDB by `OUTPORT_TEST_MARIADB`, which may be MySQL as well; SQLite
//! files live in temporary folders. The programs of PostgreSQL and pgbouncer must be installed.

mod canaries;
mod cuts;
mod encodings;
mod endings;
mod estimates;
mod folding;
mod mariadb;
mod mariadb_comparisons;
mod mariadb_endings;
mod mariadb_moments;
mod mariadb_tables;
mod mariadb_values;
mod names;
mod pooler;
mod pooler_process;
mod postgres_oddities;
mod predicates;
mod proxy;
mod ranges;
mod refusals;
mod same_rows;
mod schema;
mod snapshot;
mod sqlite_writers;
mod standby;
mod values;
mod volume;
mod wire;
mod world;
