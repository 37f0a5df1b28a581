//! The handlers we ship, one file each.

mod correspondence;
mod publish_job_event;
mod send_export_completed_message;
mod send_export_failed_message;

pub use correspondence::{Correspondence, ResourceWords};
pub use publish_job_event::PublishJobEvent;
pub use send_export_completed_message::SendExportCompletedMessage;
pub use send_export_failed_message::SendExportFailedMessage;
