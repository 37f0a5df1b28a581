//! Connecting, and whether a pooler such as pgbouncer stands in between.
//!
//! A startup parameter of our own tells: a server keeps it, a pooler refuses it or loses it. What
//! a pooler gives is one server connection for each transaction; hence all that is read and set
//! is read and set within transactions, and nothing but a transaction's own name (see `session`)
//! says which server process serves it.

use std::{
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use outport_domain::failure::FailureCode;
use sqlx::{
    ConnectOptions, Connection, PgConnection,
    postgres::{PgConnectOptions, PgSslMode},
};

use super::failure::{Stage, failure, is_startup_refused};
use crate::{SourceError, Tls};

/// The setting that a direct connection begins with.
pub(super) const DIRECT: &str = "outport.direct";

/// What there is to say about a source behind a pooler.
const POOLED: &str = "reached through a connection pooler such as pgbouncer: each export holds \
                      one of its server connections until its end and is read by that one alone";

/// The part of a URL's query that says how many connections may read one table at once.
const CONNECTIONS: &str = "connections";

/// Takes our own part out of a URL. What is no number stays in, and is refused as a whole.
pub(super) fn without_connections(url: &str) -> (String, Option<usize>) {
    let Some((front, query)) = url.split_once('?') else { return (url.to_owned(), None) };
    let mut connections = None;
    let rest: Vec<&str> = query
        .split('&')
        .filter(|part| match part.split_once('=') {
            Some((CONNECTIONS, number)) => {
                connections = number.parse().ok().or(connections);
                number.parse::<usize>().is_err()
            }
            _ => true,
        })
        .collect();
    let url =
        if rest.is_empty() { front.to_owned() } else { format!("{front}?{}", rest.join("&")) };
    (url, connections)
}

/// Where a server is and how to get in. Holds credentials, so it has no `Debug`.
#[derive(Clone)]
pub(super) struct Server {
    url: String,
    tls: Arc<Tls>,
    pub(super) connect_timeout: Duration,
    /// Whether a pooler was found. Shared: it is found and told once.
    pooled: Arc<AtomicBool>,
}

impl Server {
    pub(super) fn new(url: String, connect_timeout: Duration) -> Self {
        Self { url, tls: Arc::default(), connect_timeout, pooled: Arc::default() }
    }

    pub(super) fn with_tls(self, tls: Arc<Tls>) -> Self {
        Self { tls, ..self }
    }

    /// Whether a pooler was found so far.
    pub(super) fn is_pooled(&self) -> bool {
        self.pooled.load(Ordering::Relaxed)
    }

    /// What there is to say about the way to the server.
    pub(super) fn note(&self) -> Option<&'static str> {
        self.is_pooled().then_some(POOLED)
    }

    /// A pooler was found.
    pub(super) fn found_pooler(&self) {
        if !self.pooled.swap(true, Ordering::Relaxed) {
            tracing::info!("a PostgreSQL source is {POOLED}");
        }
    }

    pub(super) async fn connect(&self) -> Result<PgConnection, SourceError> {
        let options = self.options()?;
        if self.is_pooled() {
            return self.connect_with(&options).await;
        }
        let marked = options.clone().options([(DIRECT, "on")]);
        match self.connect_with(&marked).await {
            Err(error) if is_startup_refused(&error) => {
                let connection = self.connect_with(&options).await?;
                self.found_pooler();
                Ok(connection)
            }
            connected => connected,
        }
    }

    fn options(&self) -> Result<PgConnectOptions, SourceError> {
        let options = PgConnectOptions::from_str(&self.url)
            .map_err(|error| {
                // The cause is told apart from the message: it may quote the URL.
                SourceError::new(
                    FailureCode::SourceUnreachable,
                    "the connection's URL is not valid",
                )
                .abandoned()
                .with_cause(error)
            })?
            .statement_cache_capacity(0)
            .application_name("outport")
            // Pinned later; as a startup parameter it is one that poolers refuse.
            .extra_float_digits(None)
            // Statements hold what filters ask for.
            .disable_statement_logging();
        let mut options = without_tls_at_home(options);
        if let Some(authority) = &self.tls.authority {
            options = options.ssl_root_cert_from_pem(authority.clone().into_bytes());
        }
        if let Some(certificate) = &self.tls.certificate {
            options = options.ssl_client_cert_from_pem(certificate);
        }
        if let Some(key) = &self.tls.key {
            options = options.ssl_client_key_from_pem(key.as_str());
        }
        Ok(options)
    }

    async fn connect_with(&self, options: &PgConnectOptions) -> Result<PgConnection, SourceError> {
        match tokio::time::timeout(self.connect_timeout, PgConnection::connect_with(options)).await
        {
            Ok(connected) => connected.map_err(|error| failure(error, Stage::Connect)),
            Err(_) => Err(SourceError::new(
                FailureCode::SourceUnreachable,
                format!(
                    "the source database did not answer within {} s",
                    self.connect_timeout.as_secs()
                ),
            )),
        }
    }
}

/// On the machine's own loopback TLS protects no wire, and with it sqlx 0.9.0, which leaves
/// Nagle's algorithm on (transact-rs/sqlx#4335), takes 90 ms to connect. A mode that asks for TLS
/// is kept.
fn without_tls_at_home(options: PgConnectOptions) -> PgConnectOptions {
    let home = ["localhost", "127.0.0.1", "::1"].contains(&options.get_host());
    if home && matches!(options.get_ssl_mode(), PgSslMode::Prefer | PgSslMode::Allow) {
        options.ssl_mode(PgSslMode::Disable)
    } else {
        options
    }
}

#[cfg(test)]
mod tests {
    use super::without_connections;

    #[test]
    fn the_number_of_connections_is_taken_out_of_the_url() {
        let cases = [
            ("postgres://h/d", "postgres://h/d", None),
            ("postgres://h/d?connections=3", "postgres://h/d", Some(3)),
            (
                "postgres://h/d?sslmode=disable&connections=1&options=-c%20a=b",
                "postgres://h/d?sslmode=disable&options=-c%20a=b",
                Some(1),
            ),
            ("postgres://h/d?sslmode=disable", "postgres://h/d?sslmode=disable", None),
        ];
        for (url, rest, connections) in cases {
            assert_eq!(without_connections(url), (rest.to_owned(), connections), "{url}");
        }
    }
}
