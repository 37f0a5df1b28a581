//! CloudEvents 1.0 in binary mode: the attributes as message headers.

use uuid::Uuid;

use super::{CONTENT_TYPE, JobEventType};
use crate::time::Instant;

/// What `ce-type` begins with unless configured otherwise.
pub const DEFAULT_TYPE_PREFIX: &str = "studio.lerian";
/// The tenant of every job where tenancy is `single`.
pub const SINGLE_TENANT: &str = "single-tenant";

/// The resource that every event is about.
pub const RESOURCE_TYPE: &str = "job";

/// The names of the headers.
#[expect(missing_docs, reason = "the names of CloudEvents, and of its extensions in the contract")]
pub mod header {
    pub const SPEC_VERSION: &str = "ce-specversion";
    pub const ID: &str = "ce-id";
    pub const SOURCE: &str = "ce-source";
    pub const TYPE: &str = "ce-type";
    pub const TIME: &str = "ce-time";
    pub const SUBJECT: &str = "ce-subject";
    pub const RESOURCE_TYPE: &str = "ce-resourcetype";
    pub const EVENT_TYPE: &str = "ce-eventtype";
    pub const SCHEMA_VERSION: &str = "ce-schemaversion";
    pub const DATA_CONTENT_TYPE: &str = "ce-datacontenttype";
    pub const TENANT_ID: &str = "ce-tenantid";
    pub const TENANT: &str = "X-Tenant-ID";
}

/// The attributes of one emission. Those that a configuration gives (`source`, `type_prefix`)
/// and the tenant must be without line ends, which the signatures use to tell their parts apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// How the job ended.
    pub event_type: JobEventType,
    /// The job that ended.
    pub job_id: Uuid,
    /// The producer, `STREAMING_CLOUDEVENTS_SOURCE`, unchanged.
    pub source: String,
    /// What `ce-type` begins with, without the dot after it.
    pub type_prefix: String,
    /// When this message is emitted; another one for each emission.
    pub time: Instant,
    /// Who owns the job: the organization's id, or [`SINGLE_TENANT`].
    pub tenant: String,
}

impl Attributes {
    /// `ce-id`, the same for every emission of a job's event.
    pub fn id(&self) -> String {
        self.event_type.event_id(self.job_id)
    }

    /// `ce-type`, e.g. `studio.lerian.job.completed`.
    pub fn ce_type(&self) -> String {
        format!("{}.{}", self.type_prefix, self.event_type.name())
    }

    /// Every header, name and value. All values are text (AMQP long strings).
    pub fn headers(&self) -> [(&'static str, String); 12] {
        [
            (header::SPEC_VERSION, "1.0".to_owned()),
            (header::ID, self.id()),
            (header::SOURCE, self.source.clone()),
            (header::TYPE, self.ce_type()),
            (header::TIME, self.time.text()),
            (header::SUBJECT, self.job_id.to_string()),
            (header::RESOURCE_TYPE, RESOURCE_TYPE.to_owned()),
            (header::EVENT_TYPE, self.event_type.status().to_owned()),
            (header::SCHEMA_VERSION, "1.0.0".to_owned()),
            (header::DATA_CONTENT_TYPE, CONTENT_TYPE.to_owned()),
            (header::TENANT_ID, self.tenant.clone()),
            (header::TENANT, self.tenant.clone()),
        ]
    }
}
