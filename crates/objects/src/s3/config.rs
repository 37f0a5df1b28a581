//! How to reach a bucket, and the clients made from it.

use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_sdk_s3::{
    Client,
    config::{
        Credentials, Region, RequestChecksumCalculation, ResponseChecksumValidation,
        StalledStreamProtectionConfig, retry::RetryConfig, timeout::TimeoutConfig,
    },
};
use url::Url;

/// The region name that S3-compatible stores without regions expect.
const DEFAULT_REGION: &str = "us-east-1";
/// How long a body may stand still. The client's own 5 to 20 s are tight for a store that
/// verifies while it takes a part.
const STALL: Duration = Duration::from_secs(30);

/// How to reach a bucket. Has no `Debug`, for the sake of the credentials.
#[derive(Clone)]
pub struct S3Config {
    /// The bucket, which must exist.
    pub bucket: String,
    /// A folder in the bucket below which all keys lie.
    pub prefix: Option<String>,
    /// The region; where absent, `us-east-1` at an `endpoint` of one's own, that of the AWS
    /// environment otherwise.
    pub region: Option<String>,
    /// The store's own address, absent for AWS.
    pub endpoint: Option<Url>,
    /// The address that pre-signed links name, absent when it is `endpoint`.
    pub public_endpoint: Option<Url>,
    /// `https://host/bucket/key` instead of `https://bucket.host/key`.
    pub path_style: bool,
    /// Whether checksums are added that the operation does not need.
    pub checksum: ChecksumMode,
    /// Who we are.
    pub credentials: S3Credentials,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long one try of one request may take, the upload of a part included.
    pub attempt_timeout: Duration,
    /// How often a request is tried in all.
    pub attempts: u32,
}

impl S3Config {
    /// A bucket with everything else by default: AWS, its default credentials, a connect time
    /// of 10 s, 60 s for a try, three tries.
    pub fn new(bucket: impl Into<String>) -> Self {
        Self {
            bucket: bucket.into(),
            prefix: None,
            region: None,
            endpoint: None,
            public_endpoint: None,
            path_style: false,
            checksum: ChecksumMode::default(),
            credentials: S3Credentials::DefaultChain,
            connect_timeout: Duration::from_secs(10),
            attempt_timeout: Duration::from_mins(1),
            attempts: 3,
        }
    }
}

/// When the client adds checksums to requests and asks for them in answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumMode {
    /// Only where the operation requires one; many compatible stores know no others.
    #[default]
    WhenRequired,
    /// Wherever the operation supports one.
    WhenSupported,
}

/// Who we are to the store.
#[derive(Clone)]
pub enum S3Credentials {
    /// A fixed key.
    Static {
        /// The public part.
        access_key_id: String,
        /// The secret part.
        secret: SecretAccessKey,
    },
    /// The AWS chain: environment, profile, web identity, container, instance.
    DefaultChain,
}

/// A secret access key. Has neither `Debug` nor `Display`.
#[derive(Clone)]
pub struct SecretAccessKey(String);

impl SecretAccessKey {
    /// Wraps the secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }
}

impl S3Config {
    /// The client that works and the one that signs for the public endpoint.
    pub(super) async fn clients(&self) -> (Client, Client) {
        let loader = aws_config::defaults(BehaviorVersion::latest());
        let loader = match (&self.region, &self.endpoint) {
            (Some(region), _) => loader.region(Region::new(region.clone())),
            // Else the environment is asked, down to the metadata of a machine in AWS.
            (None, Some(_)) => loader.region(Region::from_static(DEFAULT_REGION)),
            (None, None) => loader,
        };
        let loader = match &self.credentials {
            S3Credentials::Static { access_key_id, secret } => loader.credentials_provider(
                Credentials::new(access_key_id, &secret.0, None, None, "configuration"),
            ),
            S3Credentials::DefaultChain => loader,
        };
        let environment = loader.load().await;
        let client = self.client(&environment, self.endpoint.as_ref());
        let public = self.public_endpoint.as_ref().or(self.endpoint.as_ref());
        let signer = self.client(&environment, public);
        (client, signer)
    }

    fn client(&self, environment: &aws_config::SdkConfig, endpoint: Option<&Url>) -> Client {
        let (request, response) = match self.checksum {
            ChecksumMode::WhenRequired => {
                (RequestChecksumCalculation::WhenRequired, ResponseChecksumValidation::WhenRequired)
            }
            ChecksumMode::WhenSupported => (
                RequestChecksumCalculation::WhenSupported,
                ResponseChecksumValidation::WhenSupported,
            ),
        };
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(self.connect_timeout)
            .operation_attempt_timeout(self.attempt_timeout)
            .build();
        let stalls = StalledStreamProtectionConfig::enabled().grace_period(STALL).build();
        let mut builder = aws_sdk_s3::config::Builder::from(environment)
            .force_path_style(self.path_style)
            .request_checksum_calculation(request)
            .response_checksum_validation(response)
            .timeout_config(timeouts)
            .stalled_stream_protection(stalls)
            .retry_config(RetryConfig::standard().with_max_attempts(self.attempts.max(1)));
        if environment.region().is_none() {
            builder = builder.region(Region::from_static(DEFAULT_REGION));
        }
        if let Some(endpoint) = endpoint {
            builder = builder.endpoint_url(endpoint.as_str());
        }
        Client::from_conf(builder.build())
    }
}
