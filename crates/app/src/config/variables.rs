//! Every configuration variable: one table makes the reader, the reference page and its test.

use super::keys::MASTER_KEY_VARIABLE;

/// One variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name in `outport.toml`, tables and all: `s3.bucket`.
    pub name: &'static str,
    /// What holds without it; empty when it is optional.
    pub default: &'static str,
    /// What it is for.
    pub meaning: &'static str,
}

impl Variable {
    /// Its name in the environment: `OUTPORT_S3_BUCKET` for `s3.bucket`.
    pub fn environment(&self) -> String {
        environment_name(self.name)
    }
}

/// `s3.accessKeyId` as `OUTPORT_S3_ACCESS_KEY_ID`; what the contracts name has their own names.
pub fn environment_name(name: &str) -> String {
    match name {
        "encKey" => return MASTER_KEY_VARIABLE.to_owned(),
        "encKeyVersion" => return "APP_ENC_KEY_VERSION".to_owned(),
        "broker.exchange" => return "RABBITMQ_JOB_EVENTS_EXCHANGE".to_owned(),
        "streaming.enabled" => return "STREAMING_ENABLED".to_owned(),
        "streaming.cloudeventsSource" => return "STREAMING_CLOUDEVENTS_SOURCE".to_owned(),
        _ => {}
    }
    let mut text = String::from("OUTPORT_");
    for c in name.chars() {
        match c {
            '.' | '-' => text.push('_'),
            c if c.is_ascii_uppercase() => {
                text.push('_');
                text.push(c);
            }
            c => text.push(c.to_ascii_uppercase()),
        }
    }
    text
}

const fn variable(name: &'static str, default: &'static str, meaning: &'static str) -> Variable {
    Variable { name, default, meaning }
}

/// All of them, in the order of the reference page. Connections come on top, one a database:
/// `connections.<name>`.
pub const VARIABLES: &[Variable] = &[
    variable("listen", "127.0.0.1:8080", "Address and port of the API."),
    variable(
        "publicUrl",
        "",
        "Where people reach the API; links in mails start with it. Required unless `listen` is a loopback address.",
    ),
    variable(
        "behindProxy",
        "false",
        "`true` when a proxy of ours writes `X-Forwarded-For`; only then it is believed, in the audit of downloads.",
    ),
    variable(
        "dataDir",
        "outport-data",
        "Where the embedded profile keeps its database, files, mails and key.",
    ),
    variable("resourcesDir", "resources", "Folder of the resource files, one `.toml` a resource."),
    variable(
        "log.filter",
        "info",
        "What is logged, in the syntax of tracing's EnvFilter, e.g. `info,outport=debug`.",
    ),
    variable("log.format", "text", "`text` for people or `json`, one object a line."),
    variable(
        "encKey",
        "",
        "Master key, standard base64 of at least 32 bytes (`outport keys generate`). Required unless the state is an SQLite file, where one is made in `dataDir` at first start.",
    ),
    variable(
        "encKeyVersion",
        "1",
        "Version of that key, 1 to 65535: another one for every other key.",
    ),
    variable(
        "oldEncKeys",
        "",
        "Other keys, which decrypt and verify and no more: `<version>:<base64>`, separated by commas.",
    ),
    variable(
        "protection",
        "",
        "How files are stored where their resource does not say: `sealed` or `none`. `sealed` by default, but `none` where the state is an SQLite file and `encKey` is not set.",
    ),
    variable(
        "state.url",
        "",
        "Outport's own state: `sqlite://<path>` (default: `outport.db` in `dataDir`) for one process, `postgres://…` for many.",
    ),
    variable("state.maxConnections", "10", "Connections of one process to a PostgreSQL state."),
    variable(
        "objects.dir",
        "",
        "Folder of the finished files (default: `objects` in `dataDir`), unless `s3.bucket` is set.",
    ),
    variable(
        "spoolDir",
        "",
        "Folder of a worker's temporary files, which take up what a slow object store does not take yet (default: `dataDir`).",
    ),
    variable("s3.bucket", "", "Bucket of the finished files."),
    variable("s3.prefix", "", "Prefix of all keys in the bucket."),
    variable(
        "s3.region",
        "",
        "Region that requests are signed for (default: that of the AWS environment, else us-east-1).",
    ),
    variable("s3.endpoint", "", "URL of an S3-compatible store; AWS when absent."),
    variable(
        "s3.publicEndpoint",
        "",
        "URL of the same store as browsers reach it; download links of files that are not sealed are signed for it.",
    ),
    variable(
        "s3.pathStyle",
        "false",
        "`true` puts the bucket into the path, as most S3-compatible stores need it.",
    ),
    variable(
        "s3.checksums",
        "when_required",
        "`when_supported` sends checksums always; many S3-compatible stores refuse that.",
    ),
    variable(
        "s3.accessKeyId",
        "",
        "Access key; without it the usual AWS chain is asked (environment, profile, instance role).",
    ),
    variable("s3.secretAccessKey", "", "Its secret."),
    variable(
        "mail.url",
        "",
        "`smtps://user:password@host:port`, `smtp://host:port?tls=required|opportunistic|none` (required by default; a password needs it), or `file:///folder` (default: `mail` in `dataDir`). With `smtps` and `smtp`, `ca=/path.pem` names the private certificate authority of the mail server.",
    ),
    variable("mail.from", "Outport <outport@localhost>", "Sender of the mails."),
    variable(
        "broker.url",
        "",
        "RabbitMQ, where job events go: `amqp://user:password@host:port/vhost`, or `amqps://` with TLS by the certificates of the system. Required for a worker unless the state is an SQLite file.",
    ),
    variable(
        "broker.caFile",
        "",
        "Certificate authorities in PEM, trusted for `amqps://` besides those of the system.",
    ),
    variable(
        "streaming.enabled",
        "false",
        "Must be `true` where `broker.url` is set: job events are a contract, not an option.",
    ),
    variable(
        "broker.exchange",
        "fetcher.job.events",
        "The durable topic exchange of job events, at most 255 bytes.",
    ),
    variable(
        "streaming.cloudeventsSource",
        "",
        "The attribute `ce-source` of job events, such as `//outport/worker`. Required where `broker.url` is set.",
    ),
    variable(
        "broker.typePrefix",
        outport_contract::job_event::DEFAULT_TYPE_PREFIX,
        "What the attribute `ce-type` begins with.",
    ),
    variable(
        "broker.topology",
        "declare",
        "`declare` makes the exchange with every connection; `check` only looks for it.",
    ),
    variable(
        "broker.unroutable",
        "retry",
        "A message that no queue takes: `retry` until one does, or `accept` that nobody gets it.",
    ),
    variable(
        "broker.confirmSeconds",
        "20",
        "Time limit of the broker's confirm of a message, less than `limits.handlerSeconds`.",
    ),
    variable(
        "tenancy",
        "single",
        "The tenant of job events: `single` for the text `single-tenant`, `multi` for the organization's id.",
    ),
    variable("worker.name", "", "Name of this worker for people (default: `worker-<pid>`)."),
    variable(
        "facade.enabled",
        "true",
        "Whether `/v1/fetcher` and `/v1/management/connections` are there. They do nothing for a credential without the scopes `fetcher:run` and `connections:admin`.",
    ),
    variable(
        "facade.connections",
        "",
        "Configured connections, separated by commas, that every organization may read whole by the facade.",
    ),
    variable(
        "facade.storedConnections",
        "",
        "Names, separated by commas, of connections that resources read and that each organization stores itself.",
    ),
    variable(
        "facade.deniedNetworks",
        "0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 100.100.100.200/32, ::/128, ::1/128, fe80::/10, fd00:ec2::254/128",
        "Networks, separated by commas, that no stored connection may lead into: by default the machine itself, link-local addresses and what clouds serve credentials at. With a loopback address on the list, every address of this machine is denied.",
    ),
    variable(
        "jwt.hs256Secret",
        "",
        "Accept JWTs signed with this secret (HS256, at least 32 bytes).",
    ),
    variable(
        "jwt.jwksFile",
        "",
        "Accept JWTs signed with a key of this JWKS file (RS256, ES256, EdDSA).",
    ),
    variable("jwt.jwksUrl", "", "The same, from a URL."),
    variable("jwt.issuer", "", "The `iss` that a JWT must have."),
    variable("jwt.audience", "", "The `aud` that a JWT must have."),
    variable(
        "jwt.idNamespace",
        "",
        "UUID namespace that maps user and organization ids that are no UUIDs (UUIDv5); without it they are refused.",
    ),
    variable("jwt.claims.user", "sub", "Claim of the user id."),
    variable("jwt.claims.organization", "org", "Claim of the organization id."),
    variable(
        "jwt.claims.companies",
        "companies",
        "Claim of the companies that the user may see; absent means all.",
    ),
    variable(
        "jwt.claims.cooperatives",
        "cooperatives",
        "Claim of the cooperatives that the user may see; absent means all.",
    ),
    variable("jwt.claims.email", "email", "Claim of the e-mail address."),
    variable("jwt.claims.name", "name", "Claim of the name."),
    variable("jwt.claims.locale", "locale", "Claim of the language."),
    variable("jwt.claims.scope", "scope", "Claim of the scopes, one text with spaces or an array."),
    variable(
        "stream.messageBytes",
        "65536",
        "Bytes of a broadcast message of the live stream, its envelope included; what does not fit is pointed at.",
    ),
    variable(
        "stream.intervalMilliseconds",
        "250",
        "How long events that may wait are gathered into one message.",
    ),
    variable(
        "stream.maxAgeSeconds",
        "30",
        "Events older than this are pointed at and do not travel.",
    ),
    variable(
        "stream.pollMilliseconds",
        "1000",
        "How often the state is looked at for events, where hints are lost.",
    ),
    variable(
        "stream.messagesPerChannel",
        "128",
        "Messages that a channel keeps for its slowest follower; who is further behind gets a pointer.",
    ),
    variable("stream.heartbeatSeconds", "15", "How often each followed channel says where it is."),
    variable("stream.queueBytes", "1048576", "Bytes of messages that wait for one connection."),
    variable("stream.channelsPerConnection", "128", "Channels that one WebSocket may follow."),
    variable(
        "stream.connections",
        "20000",
        "Live streams that one process serves at once; a quarter of them to those who have not said yet who they are.",
    ),
    variable("limits.requestBodyBytes", "262144", "Bytes of a request body."),
    variable("limits.rowsPerExport", "50000000", "Data rows of one export."),
    variable(
        "limits.bytesPerExport",
        "107374182400",
        "File bytes of one export, at most 115,341,599,968.",
    ),
    variable(
        "limits.filesPerExport",
        "1000",
        "Files of one export that is split by `maxRowsPerFile` or `maxBytesPerFile`, at most 9,999.",
    ),
    variable(
        "limits.spoolBytesPerExport",
        "1073741824",
        "Bytes of a running export that may wait in `spoolDir` for a slow object store: at least 11,534,336, or 0 for none.",
    ),
    variable("limits.snapshotAgeSeconds", "3600", "How long one source snapshot may be held."),
    variable("limits.noProgressSeconds", "120", "How long a run may stand still."),
    variable("limits.sourceConnectSeconds", "10", "Time limit of connecting to a source."),
    variable("limits.finishingStepSeconds", "60", "Time limit of committing the end of a run."),
    variable("limits.leaseSeconds", "30", "Life of a lease, of jobs and deliveries."),
    variable(
        "limits.heartbeatMilliseconds",
        "5000",
        "Time between renewals, at most a third of the lease.",
    ),
    variable("limits.jobFailures", "3", "Failures of a job before it is FAILED."),
    variable(
        "limits.jobBackoffMilliseconds",
        "5000",
        "First pause between runs of a job, four times as long each time, with full jitter.",
    ),
    variable("limits.jobBackoffMostSeconds", "300", "Longest pause between runs of a job."),
    variable("limits.deliveryAttempts", "16", "Attempts of a delivery before it is dead."),
    variable(
        "limits.deliveryBackoffMilliseconds",
        "1000",
        "First pause between attempts of a delivery, four times as long each time, with full jitter.",
    ),
    variable(
        "limits.deliveryBackoffMostSeconds",
        "3600",
        "Longest pause between attempts of a delivery.",
    ),
    variable("limits.handlerSeconds", "60", "Time limit of one run of a handler."),
    variable(
        "limits.handlersAtOnce",
        "16",
        "Handlers that one process runs at once, shared evenly.",
    ),
    variable("limits.reconcileEverySeconds", "30", "Period of the reconciler."),
    variable("limits.sweepEverySeconds", "60", "Period of the sweeper."),
    variable("limits.runningPerWorker", "4", "Jobs that one worker runs at once."),
    variable(
        "limits.runningPerOrganization",
        "2",
        "Jobs of one organization that run at once, over all workers.",
    ),
    variable(
        "limits.queuedPerOrganization",
        "1000",
        "Queued jobs of one organization; one more is refused with 429.",
    ),
    variable("limits.fileRetentionSeconds", "604800", "From `finishedAt` to `expiresAt`."),
    variable("limits.jobRetentionSeconds", "7776000", "How long ended jobs are kept."),
    variable(
        "limits.streamEventRetentionSeconds",
        "604800",
        "How long events of the live stream can be replayed.",
    ),
    variable(
        "limits.presignedUrlSeconds",
        "900",
        "Life of a pre-signed download URL, at most 900.",
    ),
    variable(
        "limits.idempotencyKeySeconds",
        "86400",
        "How long an `Idempotency-Key` is remembered.",
    ),
    variable(
        "limits.requestsPerMinute",
        "600",
        "Requests a minute of one credential, each `subscribe` of a WebSocket included; 0 is no limit.",
    ),
    variable(
        "limits.drainSeconds",
        "30",
        "Time that running work gets to end when the process stops.",
    ),
    variable(
        "stream.application",
        "outport",
        "The application of jobs in the live stream whose resource names none, and of jobs of the Fetcher facade: 1 to 100 letters (a-z, A-Z), digits, `-` or `_`.",
    ),
    variable("crashPoint", "", "For tests alone: the process aborts at this point."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_environment_follow_from_the_file() {
        assert_eq!(environment_name("s3.accessKeyId"), "OUTPORT_S3_ACCESS_KEY_ID");
        assert_eq!(environment_name("encKey"), "APP_ENC_KEY");
        assert_eq!(environment_name("encKeyVersion"), "APP_ENC_KEY_VERSION");
        assert_eq!(environment_name("broker.exchange"), "RABBITMQ_JOB_EVENTS_EXCHANGE");
        assert_eq!(environment_name("broker.typePrefix"), "OUTPORT_BROKER_TYPE_PREFIX");
        assert_eq!(environment_name("connections.shop-eu"), "OUTPORT_CONNECTIONS_SHOP_EU");
    }

    #[test]
    fn no_two_variables_share_a_name() {
        let mut names: Vec<String> = VARIABLES.iter().map(Variable::environment).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), VARIABLES.len());
    }

    #[test]
    fn the_limits_of_the_table_are_the_limits_of_the_code() {
        let config = super::super::Config::from_settings(super::super::Settings::for_tests());
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.limits, outport_domain::limits::Limits::default());
        let stream = crate::api::stream::StreamConfig::default();
        assert_eq!(format!("{:?}", config.stream), format!("{stream:?}"));
    }
}
