//! Tells the requester that the file is there.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::Utc;
use outport_contract::export_event::{ExportEventType, ExportJobData};
use outport_domain::job::{ExportJob, JobStatus};

use super::correspondence::{Correspondence, name_of, requester};
use crate::{
    handler::{Delivery, Done, Handler, HandlerError},
    mail::{CompletedWords, Writing},
};

/// Receipt when the file was gone before anybody could be told.
const FILE_GONE: &str = "file-gone";

/// Sends the mail with the link.
pub struct SendExportCompletedMessage(Arc<Correspondence>);

impl SendExportCompletedMessage {
    /// One that writes through this correspondence.
    pub fn new(correspondence: Arc<Correspondence>) -> Self {
        Self(correspondence)
    }

    /// The mail, or why there is none to write.
    fn write(
        &self,
        data: &ExportJobData,
        job: &ExportJob,
    ) -> Result<Result<Writing, &'static str>, HandlerError> {
        let (Some(rows), Some(size_bytes), Some(expires_at)) =
            (data.total_rows, data.size_bytes, data.expires_at)
        else {
            return Err(HandlerError::dead("the event of a completed export is incomplete"));
        };
        // A late replay must not promise a file that is gone.
        let expires_at = expires_at.0;
        let is_gone = job.status == JobStatus::Expired
            || job.deleted_at.is_some()
            || expires_at <= Utc::now();
        if is_gone {
            return Ok(Err(FILE_GONE));
        }
        let words = CompletedWords {
            name: name_of(job),
            requester: &requester(job),
            file_name: &data.file_name,
            resource: self.0.resource(data, job.locale),
            rows,
            size_bytes,
            expires_at,
            zone: self.0.zone(job),
            link: &self.0.link(job, expires_at),
        };
        Ok(Ok(self.0.templates.completed(job.locale, &words)?))
    }
}

#[async_trait]
impl Handler for SendExportCompletedMessage {
    fn name(&self) -> &'static str {
        "send-export-completed-message"
    }

    fn event_types(&self) -> &'static [&'static str] {
        const { &[ExportEventType::Completed.name()] }
    }

    async fn handle(&self, delivery: &Delivery<'_>) -> Result<Done, HandlerError> {
        let event = delivery.export_event()?;
        self.0.tell(delivery, self.name(), |job| self.write(&event.data, job)).await
    }
}
