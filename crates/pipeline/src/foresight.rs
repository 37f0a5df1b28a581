//! Whether an export is bound to fail for its rows being too many, found out before it is
//! accepted: a sheet holds fewer rows than a table may have.
//!
//! An estimate alone proves nothing: tables are emptied and statistics grow old. So what the
//! planner expects to be too much is read, one narrow column of it, until it is. On any doubt,
//! within short time limits, the answer is no: a run finds out by itself.

use std::time::Duration;

use outport_domain::{job::Format, limits::fixed, spec::ExportSpec};
use outport_source::{Batch, Next, Source, SourceError};
use tokio::{sync::Semaphore, time::timeout};

/// How long the planner may take, its connection included.
const ESTIMATE: Duration = Duration::from_millis(500);

/// How long reading may take.
const PROOF: Duration = Duration::from_secs(2);

/// Looks ahead, one export at a time: who comes meanwhile is not kept waiting, and a source is
/// not read by everybody who asks.
pub struct Foresight {
    estimate: Duration,
    proof: Duration,
    one: Semaphore,
}

impl Default for Foresight {
    fn default() -> Self {
        Self::within(ESTIMATE, PROOF)
    }
}

impl Foresight {
    /// With other time limits.
    pub fn within(estimate: Duration, proof: Duration) -> Self {
        Self { estimate, proof, one: Semaphore::new(1) }
    }

    /// The rows that the export's one file holds, when the source has proved to have more.
    pub async fn overflow(&self, source: &dyn Source, spec: &ExportSpec) -> Option<u64> {
        if spec.format != Format::Xlsx || spec.split.is_some() {
            return None;
        }
        let most = fixed::SHEET_ROWS;
        let _permit = self.one.try_acquire().ok()?;
        let estimate = timeout(self.estimate, source.estimate(&spec.selection)).await.ok()?;
        if known(estimate).flatten()? <= most {
            return None;
        }
        let proof = timeout(self.proof, has_more(source, spec, most)).await.ok()?;
        known(proof)?.then_some(most)
    }
}

/// Whether there are more rows than so many.
async fn has_more(source: &dyn Source, spec: &ExportSpec, most: u64) -> Result<bool, SourceError> {
    let mut selection = spec.selection.clone();
    // An id, as every resource has one, and no order that would be made first.
    selection.columns = vec![spec.resource.scope.organization.clone()];
    selection.order.clear();
    let mut rows = source.open(&selection).await?;
    let mut batch = Batch::new(selection.columns.len());
    let mut seen = 0;
    while seen <= most {
        match rows.next(&mut batch).await? {
            Next::Rows => seen += batch.rows() as u64,
            Next::End { .. } => return Ok(false),
        }
    }
    rows.cancel().await;
    Ok(true)
}

fn known<T>(answer: Result<T, SourceError>) -> Option<T> {
    answer
        .inspect_err(|error| tracing::debug!(%error, "a source would not say how many rows it has"))
        .ok()
}
