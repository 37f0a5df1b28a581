//! Tells the requester that there will be no file, why, and what to do.

use std::sync::Arc;

use async_trait::async_trait;
use outport_contract::export_event::{ExportEventType, ExportJobData};
use outport_domain::{failure::FailureCode, job::ExportJob};

use super::correspondence::{Correspondence, name_of, requester};
use crate::{
    handler::{Delivery, Done, Handler, HandlerError},
    mail::{FailedWords, Writing},
};

/// Sends the mail with the reason.
pub struct SendExportFailedMessage(Arc<Correspondence>);

impl SendExportFailedMessage {
    /// One that writes through this correspondence.
    pub fn new(correspondence: Arc<Correspondence>) -> Self {
        Self(correspondence)
    }

    fn write(&self, data: &ExportJobData, job: &ExportJob) -> Result<Writing, HandlerError> {
        // A code of a newer version is still a failure.
        let code = data.failure_reason.as_deref().and_then(FailureCode::from_name);
        let detail = job.failure.as_ref().map(|(_, message)| message.as_str());
        let words = FailedWords {
            name: name_of(job),
            requester: &requester(job),
            file_name: &data.file_name,
            resource: self.0.resource(data, job.locale),
            requested_at: data.created_at.0,
            zone: self.0.zone(job),
            code: code.unwrap_or(FailureCode::Internal),
            detail: detail.filter(|message| !message.trim().is_empty()),
            job: &job.id.to_string(),
        };
        Ok(self.0.templates.failed(job.locale, &words)?)
    }
}

#[async_trait]
impl Handler for SendExportFailedMessage {
    fn name(&self) -> &'static str {
        "send-export-failed-message"
    }

    fn event_types(&self) -> &'static [&'static str] {
        const { &[ExportEventType::Failed.name()] }
    }

    async fn handle(&self, delivery: &Delivery<'_>) -> Result<Done, HandlerError> {
        let event = delivery.export_event()?;
        self.0.tell(delivery, self.name(), |job| self.write(&event.data, job).map(Ok)).await
    }
}
