//! Several results that one reader hands over one after the other.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::{Batch, Next, RowStream, SourceError, handoff::Consumer};

/// The streams of consumers that are read in their order. `owner` makes the last one, which ends
/// the reader when it is dropped or canceled.
pub(crate) fn streams(
    snapshot_at: DateTime<Utc>,
    mut consumers: Vec<Consumer>,
    owner: impl FnOnce(Consumer) -> Box<dyn RowStream>,
) -> Vec<Box<dyn RowStream>> {
    let Some(last) = consumers.pop() else { return Vec::new() };
    let earlier = consumers
        .into_iter()
        .map(|consumer| Box::new(Earlier { snapshot_at, consumer }) as Box<dyn RowStream>);
    earlier.chain([owner(last)]).collect()
}

/// Any but the last.
struct Earlier {
    snapshot_at: DateTime<Utc>,
    consumer: Consumer,
}

#[async_trait]
impl RowStream for Earlier {
    fn snapshot_at(&self) -> DateTime<Utc> {
        self.snapshot_at
    }

    async fn next(&mut self, batch: &mut Batch) -> Result<Next, SourceError> {
        self.consumer.next(batch).await
    }

    /// The reader notices that nobody wants its rows; what it waits for ends with the last stream.
    async fn cancel(self: Box<Self>) {}
}
