//! How long to wait before the next try.

use std::time::Duration;

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

/// Full jitter: any time from nothing to a bound that doubles with each try. Many who lost the
/// same server come back spread over the whole time, not together.
#[derive(Clone, Debug)]
pub struct Backoff {
    base: Duration,
    most: Duration,
    chance: StdRng,
}

impl Backoff {
    /// `base` bounds the first wait, `most` all of them. The same `seed` gives the same waits.
    pub fn new(base: Duration, most: Duration, seed: Option<u64>) -> Self {
        let chance = seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64);
        Self { base, most, chance }
    }

    /// The wait before a try, of which `tries` went before. What the server asked for comes on
    /// top: never earlier than that, and not all at that moment either.
    pub fn delay(&mut self, tries: u32, asked: Option<Duration>) -> Duration {
        let doubled = self.base.saturating_mul(2_u32.saturating_pow(tries));
        let bound = doubled.min(self.most).as_micros() as u64;
        let jitter = Duration::from_micros(self.chance.random_range(0..=bound));
        asked.unwrap_or_default() + jitter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(250);
    const MOST: Duration = Duration::from_secs(30);

    #[test]
    fn waits_are_anywhere_below_a_bound_that_doubles_up_to_the_most() {
        let mut backoff = Backoff::new(BASE, MOST, Some(7));
        for (tries, bound) in [(0, 250), (1, 500), (4, 4_000), (7, 30_000), (u32::MAX, 30_000)] {
            let bound = Duration::from_millis(bound);
            let waits: Vec<_> = (0..400).map(|_| backoff.delay(tries, None)).collect();
            assert!(waits.iter().all(|wait| *wait <= bound), "{tries}");
            let quarter = |n: u32| {
                let part =
                    waits.iter().filter(|wait| (bound / 4 * n..bound / 4 * (n + 1)).contains(wait));
                part.count()
            };
            assert!((0..4).all(|n| quarter(n) > 50), "{tries}: all of the time is used");
        }
    }

    #[test]
    fn what_the_server_asked_for_is_waited_in_any_case() {
        let mut backoff = Backoff::new(BASE, MOST, Some(7));
        let asked = Duration::from_mins(1);
        let waits = (0..100).map(|_| backoff.delay(0, Some(asked)));
        assert!(waits.into_iter().all(|wait| (asked..=asked + BASE).contains(&wait)));
    }

    #[test]
    fn the_same_seed_gives_the_same_waits() {
        let waits = |seed| {
            let mut backoff = Backoff::new(BASE, MOST, seed);
            (0..20).map(|tries| backoff.delay(tries, None)).collect::<Vec<_>>()
        };
        assert_eq!(waits(Some(3)), waits(Some(3)));
        assert_ne!(waits(Some(3)), waits(Some(4)));
        assert_ne!(waits(None), waits(None));
    }
}
