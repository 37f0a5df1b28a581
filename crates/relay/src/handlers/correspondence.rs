//! What the handlers that write mails share: the mailer, the texts, and who is written to.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use outport_contract::{
    export_event::ExportJobData,
    link::{LinkKeys, LinkToken, Recipient},
};
use outport_domain::{job::ExportJob, locale::Locale, resource::Resource};
use serde::Deserialize;
use url::Url;

use crate::{
    handler::{Delivery, Done, HandlerError},
    mail::{Addressee, BrokenTemplate, Letter, Mailer, Templates, Writing},
};

/// All that it takes to write to requesters.
pub struct Correspondence {
    /// Sends letters.
    pub mailer: Mailer,
    /// The texts.
    pub templates: Templates,
    /// Our own address in the world, which links begin with.
    pub public_url: Url,
    /// Signs links.
    pub link_keys: LinkKeys,
    /// By the resource's name. A resource that is no longer declared goes by its name, in UTC.
    pub resources: BTreeMap<String, ResourceWords>,
}

/// What mails say of a resource.
#[derive(Clone, Debug)]
pub struct ResourceWords {
    zone: Tz,
    words: BTreeMap<Locale, String>,
}

impl From<&Resource> for ResourceWords {
    fn from(resource: &Resource) -> Self {
        let word = |locale| (locale, resource.file_stem(locale).to_owned());
        Self { zone: resource.time_zone, words: Locale::ALL.map(word).into() }
    }
}

/// Receipts of duties that there was nothing to do about.
mod nothing_to_do {
    /// The job names nobody to write to.
    pub const NO_RECIPIENT: &str = "no-recipient";
    /// The job's row has been purged, and with it the address.
    pub const JOB_PURGED: &str = "job-purged";
}

impl Correspondence {
    /// Writes to the job's recipient, once: `write` gives the text, or the receipt of why there
    /// is nothing to write any more.
    pub(super) async fn tell(
        &self,
        delivery: &Delivery<'_>,
        handler: &str,
        write: impl Fn(&ExportJob) -> Result<Result<Writing, &'static str>, HandlerError> + Sync,
    ) -> Result<Done, HandlerError> {
        let Some(job) = delivery.job().await? else {
            return without_letter(delivery, nothing_to_do::JOB_PURGED).await;
        };
        let Some(address) = address(&job) else {
            return without_letter(delivery, nothing_to_do::NO_RECIPIENT).await;
        };
        let writing = match write(&job)? {
            Ok(writing) => writing,
            Err(receipt) => return without_letter(delivery, receipt).await,
        };
        let letter = Letter {
            id: self.mailer.message_id(delivery.event_id(), handler, &address),
            to: Addressee { name: name_of(&job).map(str::to_owned), address: address.clone() },
            subject: writing.subject,
            text: writing.text,
            html: writing.html,
        };
        let send = async {
            self.mailer.send(&letter).await?;
            Ok(letter.id.to_string())
        };
        delivery.once(&address, send).await
    }

    /// The link that this job's recipient gets.
    pub(super) fn link(&self, job: &ExportJob, expires_at: DateTime<Utc>) -> String {
        let token = LinkToken {
            job: job.id.uuid(),
            user: job.caller.user.uuid(),
            recipient: Recipient::of_email(job.recipient().unwrap_or_default()),
            expires_at: expires_at.timestamp(),
        };
        let base = self.public_url.as_str().trim_end_matches('/');
        format!("{base}/d/{}", token.sign(&self.link_keys))
    }

    /// The zone that the job's instants are told in: its request's, else its resource's.
    pub(super) fn zone(&self, job: &ExportJob) -> Tz {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Request {
            time_zone: Option<String>,
        }
        let request: Option<Request> = serde_json::from_str(&job.request).ok();
        request
            .and_then(|request| request.time_zone)
            .and_then(|zone| zone.parse().ok())
            .or_else(|| self.resources.get(&job.resource).map(|resource| resource.zone))
            .unwrap_or(Tz::UTC)
    }

    /// What people call the data.
    pub(super) fn resource<'a>(&'a self, data: &'a ExportJobData, locale: Locale) -> &'a str {
        self.resources
            .get(&data.resource)
            .and_then(|resource| resource.words.get(&locale))
            .unwrap_or(&data.resource)
    }
}

impl From<BrokenTemplate> for HandlerError {
    fn from(error: BrokenTemplate) -> Self {
        Self::dead(error.to_string()).because(error)
    }
}

/// Records that there is nobody to write to or nothing to write about, so that it is not found
/// out again, and says so in the log.
async fn without_letter(
    delivery: &Delivery<'_>,
    receipt: &'static str,
) -> Result<Done, HandlerError> {
    let (event, job) = (delivery.event_id(), delivery.stored.job);
    tracing::info!(%event, %job, receipt, "no mail is sent");
    delivery.once("", async { Ok(receipt.to_owned()) }).await
}

/// The address in the one form that receipts and Message-IDs are made from.
fn address(job: &ExportJob) -> Option<String> {
    let address = job.recipient()?.trim();
    (!address.is_empty()).then(|| address.to_owned())
}

/// How the recipient is called: known only of the caller itself.
pub(super) fn name_of(job: &ExportJob) -> Option<&str> {
    let to_caller = match (job.recipient(), job.caller.email.as_deref()) {
        (Some(recipient), Some(own)) => recipient.trim().eq_ignore_ascii_case(own.trim()),
        _ => false,
    };
    job.caller.name.as_deref().filter(|name| to_caller && !name.trim().is_empty())
}

/// Who asked, as well as we know.
pub(super) fn requester(job: &ExportJob) -> String {
    let caller = &job.caller;
    let name = caller.name.as_deref().or(caller.email.as_deref());
    name.map_or_else(|| caller.user.to_string(), str::to_owned)
}
