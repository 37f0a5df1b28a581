//! The bytes of a stored file, and who is told when they are not what was written.

use std::{ops::Range, sync::Arc};

use futures::StreamExt as _;
use outport_contract::redaction::told;
use outport_domain::{id::JobId, job::Protection, object_key::ObjectKey};
use outport_objects::{
    ObjectError, ObjectStream,
    sealed::{SealedObject, open, pass},
};
use tracing::Span;

use super::served::Served;
use crate::api::{ApiState, problem::Problem};

/// One reading of one object. What fails is logged with all that finds the object and the
/// request again; of a download it is counted too.
#[derive(Clone)]
pub(super) struct Reading {
    state: Arc<ApiState>,
    job: JobId,
    object: ObjectKey,
    /// The bytes are read outside of it.
    request: Span,
    is_head: bool,
}

impl Reading {
    /// For the request at hand.
    pub(super) fn new(
        state: &Arc<ApiState>,
        job: JobId,
        object: &ObjectKey,
        is_head: bool,
    ) -> Self {
        let (state, object) = (Arc::clone(state), object.clone());
        Self { state, job, object, request: Span::current(), is_head }
    }

    /// The bytes as they were before they were stored, or a range of them. An error in the middle
    /// resets the connection: no client takes the rest for the end.
    pub(super) async fn begin(
        &self,
        served: &Served,
        range: Option<Range<u64>>,
    ) -> Result<ObjectStream, Problem> {
        let (objects, stored_bytes) = (&*self.state.objects, served.stored_bytes);
        let key = &self.object;
        let begun = match served.protection {
            Protection::None => pass(objects, key, stored_bytes, range).await,
            Protection::Sealed => {
                let object = SealedObject { key, plain_bytes: served.size_bytes, stored_bytes };
                open(objects, &self.state.storage_keys, object, range).await
            }
            // The client of a Fetcher reads it in the bucket, and is given no link to it here.
            Protection::AdapterManaged => return Err(Problem::not_found()),
        };
        let stream = begun.map_err(|error| self.refused(&error))?;
        let reading = self.clone();
        let watched = stream.then(move |chunk| {
            if let Err(error) = &chunk {
                reading.request.in_scope(|| reading.tell(error, "a download broke off"));
            }
            async {
                if chunk.is_err() {
                    // What is not sent yet is dropped at an error. Who asks for the rest must get
                    // further each time, or it never comes to where it is told what is wrong.
                    tokio::task::yield_now().await;
                }
                chunk
            }
        });
        Ok(watched.boxed())
    }

    /// What is answered where nothing was given out yet.
    pub(super) fn refused(&self, error: &ObjectError) -> Problem {
        self.tell(error, "the object store failed");
        Problem::of_object(error)
    }

    fn tell(&self, error: &ObjectError, what: &str) {
        if !self.is_head {
            self.state.metrics.downloads.broken(error);
        }
        tracing::error!(job = %self.job, object = %self.object, error = told(error), "{what}");
    }
}
