//! Full jitter: pauses drawn evenly below a ceiling, so that what failed together does not come
//! back together.

use std::time::Duration;

use outport_domain::limits::backoff_ceiling;

/// A pause of zero to the ceiling of the `failures`-th failure.
pub(crate) fn full_jitter(first: Duration, most: Duration, failures: u32) -> Duration {
    backoff_ceiling(first, most, failures).mul_f64(rand::random_range(0.0..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_stay_below_their_ceiling_and_use_all_of_it() {
        let pauses: Vec<_> = (0..1_000)
            .map(|_| full_jitter(Duration::from_secs(1), Duration::from_mins(1), 2).as_millis())
            .collect();
        assert!(pauses.iter().all(|pause| *pause <= 4_000), "the second ceiling is 1 s x 4");
        assert!(pauses.iter().any(|pause| *pause < 1_000), "short ones exist");
        assert!(pauses.iter().any(|pause| *pause > 3_000), "long ones exist");
    }
}
