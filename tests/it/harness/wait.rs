//! Waiting: look, and look again, until a deadline.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use tokio::time::Instant;

/// How long anything may take that is expected to happen soon.
pub const PATIENCE: Duration = Duration::from_secs(45);
/// Between looks.
const LOOK: Duration = Duration::from_millis(25);

/// Looks until there is something to see. Panics when there is nothing in time.
pub async fn until<T>(
    what: &str,
    patience: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < deadline, "not within {patience:?}: {what}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Tells a story for each of these, a few at once: each may start several processes, and machines
/// of continuous integration are small.
pub async fn for_each<T, F: Future<Output = ()>>(
    items: impl IntoIterator<Item = T>,
    story: impl Fn(T) -> F,
) {
    const AT_ONCE: usize = 3;
    let stories = items.into_iter().map(|item| Box::pin(story(item)));
    stream::iter(stories).buffer_unordered(AT_ONCE).collect::<()>().await;
}
