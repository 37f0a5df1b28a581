//! Answers remembered for a moment; callers that ask for the same thing at once share one look.

use std::{
    collections::HashMap,
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::OnceCell;

/// Entries at which old ones are thrown out.
const MOST: usize = 10_000;

type Entry<V> = (Instant, Arc<OnceCell<V>>);

pub struct Memo<K, V> {
    life: Duration,
    entries: Mutex<HashMap<K, Entry<V>>>,
}

impl<K: Hash + Eq, V: Clone> Memo<K, V> {
    pub fn new(life: Duration) -> Self {
        Self { life, entries: Mutex::default() }
    }

    /// The remembered value, or a fresh one. The life starts before the look, not after it.
    /// A failed look is not remembered.
    pub async fn get<E, F: Future<Output = Result<V, E>>>(
        &self,
        key: K,
        look: impl FnOnce() -> F,
    ) -> Result<V, E> {
        let cell = self.cell(key);
        cell.get_or_try_init(look).await.cloned()
    }

    pub fn clear(&self) {
        self.lock().clear();
    }

    fn cell(&self, key: K) -> Arc<OnceCell<V>> {
        let now = Instant::now();
        let mut entries = self.lock();
        if entries.len() >= MOST {
            entries.retain(|_, (at, _)| now.duration_since(*at) < self.life);
            if entries.len() >= MOST {
                entries.clear();
            }
        }
        let entry = entries.entry(key).or_insert_with(|| (now, Arc::default()));
        if now.duration_since(entry.0) >= self.life {
            *entry = (now, Arc::default());
        }
        Arc::clone(&entry.1)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<K, Entry<V>>> {
        // Nothing can panic while it is held in a way that leaves the map wrong.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn one_look_serves_all_who_ask_within_its_life() {
        let looks = AtomicU32::new(0);
        let memo = Memo::new(Duration::from_mins(1));
        let look = || async {
            looks.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok::<_, ()>(7)
        };
        let (a, b) = tokio::join!(memo.get("k", look), memo.get("k", look));
        assert_eq!((a, b, looks.load(Ordering::SeqCst)), (Ok(7), Ok(7), 1));
        memo.clear();
        assert_eq!(memo.get("k", look).await, Ok(7));
        assert_eq!(looks.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_failed_look_and_an_old_answer_are_not_kept() {
        let memo = Memo::new(Duration::ZERO);
        assert_eq!(memo.get("k", || async { Err::<u8, _>("down") }).await, Err("down"));
        assert_eq!(memo.get("k", || async { Ok::<_, &str>(1) }).await, Ok(1));
        assert_eq!(memo.get("k", || async { Ok::<_, &str>(2) }).await, Ok(2));
    }
}
