//! What a job's end says to the world: `export.*` with the whole job, and `job.*` for a broker.

use chrono::{DateTime, Utc};
use outport_contract::{
    export_event::{ExportEvent, ExportEventType, ExportJobData},
    job_event::{
        InvalidMetadata, JobCompleted, JobError, JobEvent, JobFailed, JobResult, Metadata,
    },
};
use serde_json::value::RawValue;

use super::{ExportJob, JobKind, JobStatus};

/// A job lacks what its `job.*` event must say.
#[derive(Debug, thiserror::Error)]
pub enum InvalidEnd {
    /// A completed one.
    #[error("a completed job lacks its file, the file's signature, or when it began or ended")]
    WithoutResult,
    /// A failed one.
    #[error("a failed job lacks its failure")]
    WithoutFailure,
    /// Any one.
    #[error("the metadata of a job is not what is accepted")]
    Metadata(#[from] InvalidMetadata),
}

impl ExportJob {
    /// The event of this job's end, as the contract prints it.
    pub fn event(&self, event_type: ExportEventType) -> ExportEvent {
        ExportEvent { event_type, data: self.event_data() }
    }

    /// The wire form of the job itself.
    pub fn event_data(&self) -> ExportJobData {
        ExportJobData {
            export_job_id: self.id.uuid(),
            export_scheduled_id: self.schedule.map(crate::id::Id::uuid),
            organization_id: self.scope.organization.uuid(),
            company_id: self.scope.company.map(crate::id::Id::uuid),
            cooperative_id: self.scope.cooperative.map(crate::id::Id::uuid),
            requested_by_user_id: self.caller.user.uuid(),
            resource: self.resource.clone(),
            scope_type: self.scope.scope_type.name().to_owned(),
            format: self.format.name().to_owned(),
            columns: self.columns.clone(),
            filters: raw_object(&self.filters),
            file_key: self.file.as_ref().map(|file| file.key.as_str().to_owned()),
            file_name: self.file_name.clone(),
            content_type: self.content_type().to_owned(),
            size_bytes: self.file.as_ref().map(|file| file.size_bytes),
            total_rows: self.file.as_ref().map(|file| file.total_rows),
            failure_reason: self.failure.as_ref().map(|(code, _)| code.name().to_owned()),
            status: self.status.name().to_owned(),
            expires_at: self.expires_at.map(Into::into),
            started_at: self.started_at.map(Into::into),
            finished_at: self.finished_at.map(Into::into),
            created_at: self.created_at.into(),
            updated_at: self.updated_at.into(),
            deleted_at: self.deleted_at.map(Into::into),
        }
    }

    /// The `job.*` event of a job that has ended: a canceled one failed, an expired one has none,
    /// nor has one that has not ended. `run_began_at` is when its last run did, if it had one.
    pub fn job_event(
        &self,
        run_began_at: Option<DateTime<Utc>>,
    ) -> Result<Option<JobEvent>, InvalidEnd> {
        match self.status {
            JobStatus::Completed => {
                let completed = self.job_completed(run_began_at)?;
                Ok(Some(JobEvent::Completed(Box::new(completed))))
            }
            JobStatus::Failed | JobStatus::Canceled => {
                let (code, message) = self.failure.as_ref().ok_or(InvalidEnd::WithoutFailure)?;
                let error = JobError::new(code.name(), message);
                let failed = JobFailed::new(self.id.uuid(), self.event_metadata()?, &error);
                Ok(Some(JobEvent::Failed(failed)))
            }
            JobStatus::Pending
            | JobStatus::Processing
            | JobStatus::Canceling
            | JobStatus::Expired => Ok(None),
        }
    }

    fn job_completed(
        &self,
        run_began_at: Option<DateTime<Utc>>,
    ) -> Result<JobCompleted, InvalidEnd> {
        let file = self.file.as_ref().ok_or(InvalidEnd::WithoutResult)?;
        let integrity = file.integrity.clone().ok_or(InvalidEnd::WithoutResult)?;
        let began_at = run_began_at.ok_or(InvalidEnd::WithoutResult)?;
        let ended_at = self.finished_at.ok_or(InvalidEnd::WithoutResult)?;
        let result = JobResult::new(
            file.key.as_str().to_owned(),
            file.size_bytes,
            file.total_rows,
            self.format.name(),
            integrity,
            file.protection.described(),
        );
        // A clock that was set back is no reason to end in another way.
        let took = u64::try_from((ended_at - began_at).num_milliseconds()).unwrap_or_default();
        let (id, metadata) = (self.id.uuid(), self.event_metadata()?);
        Ok(JobCompleted::new(id, metadata, result, took, ended_at.into()))
    }

    /// What events repeat: what was sent, an export's with its resource as `source` where none was;
    /// a Fetcher's clients say their source themselves.
    pub fn event_metadata(&self) -> Result<Metadata, InvalidMetadata> {
        let sent = self.metadata.as_deref().map(Metadata::parse).transpose()?;
        let sent = sent.unwrap_or_else(Metadata::empty);
        Ok(match self.kind {
            JobKind::Export => sent.or_source(&self.resource),
            JobKind::Fetcher => sent,
        })
    }
}

/// A text that was JSON when it was accepted, as raw JSON again.
fn raw_object(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap_or_else(|_| {
        RawValue::from_string("{}".to_owned()).expect("an empty object is JSON")
    })
}
