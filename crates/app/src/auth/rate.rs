//! A token bucket per credential, in this process's memory: a minute's worth of requests at
//! once, refilled evenly.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Buckets at which full ones are thrown out: a full bucket is as good as none.
const MOST: usize = 10_000;

pub struct RateLimiter<K> {
    per_minute: u32,
    buckets: Mutex<HashMap<K, Bucket>>,
}

struct Bucket {
    left: f64,
    at: Instant,
}

impl<K: Hash + Eq> RateLimiter<K> {
    pub fn new(per_minute: u32) -> Self {
        Self { per_minute, buckets: Mutex::default() }
    }

    /// Takes one request out of the bucket, or says when there will be one.
    pub fn take(&self, key: K) -> Result<(), Duration> {
        self.take_at(key, Instant::now())
    }

    fn take_at(&self, key: K, now: Instant) -> Result<(), Duration> {
        if self.per_minute == 0 {
            return Ok(());
        }
        let most = f64::from(self.per_minute);
        let per_second = most / 60.0;
        let refilled = |bucket: &Bucket| {
            let since = now.saturating_duration_since(bucket.at).as_secs_f64();
            (bucket.left + since * per_second).min(most)
        };
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MOST {
            buckets.retain(|_, bucket| refilled(bucket) < most);
        }
        let bucket = buckets.entry(key).or_insert(Bucket { left: most, at: now });
        bucket.left = refilled(bucket);
        bucket.at = now;
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            Ok(())
        } else {
            Err(Duration::from_secs_f64(((1.0 - bucket.left) / per_second).ceil().max(1.0)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minutes_worth_passes_at_once_and_then_one_at_a_time() {
        let limiter = RateLimiter::new(60);
        let start = Instant::now();
        for _ in 0..60 {
            assert_eq!(limiter.take_at("a", start), Ok(()));
        }
        assert_eq!(limiter.take_at("a", start), Err(Duration::from_secs(1)));
        assert_eq!(limiter.take_at("b", start), Ok(()), "another credential is not affected");
        assert_eq!(limiter.take_at("a", start + Duration::from_secs(1)), Ok(()));
        assert!(limiter.take_at("a", start + Duration::from_secs(1)).is_err());
    }

    #[test]
    fn zero_is_no_limit() {
        let limiter = RateLimiter::new(0);
        assert!((0..10_000).all(|_| limiter.take("a").is_ok()));
    }
}
