//! How far a job is (rule 5): what is done never exceeds the total, and a guess of the total is
//! dropped as soon as it turns out to be too low.

use super::Stage;

/// How far a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The stage of its current run, if it has one.
    pub stage: Option<Stage>,
    /// Data rows encoded so far.
    pub done: u64,
    /// Data rows in all, where known or estimated; never less than `done`.
    pub total: Option<u64>,
    /// Whether `total` is a guess.
    pub total_is_estimate: bool,
}

impl Progress {
    /// Before the first row: how many there may be.
    pub fn expect(&mut self, estimate: Option<u64>) {
        self.total = estimate;
        self.total_is_estimate = estimate.is_some();
    }

    /// So many rows are done. Where as many were expected or fewer, nobody knows how many are
    /// left.
    pub fn reach(&mut self, done: u64) {
        self.done = done;
        if self.total.is_some_and(|total| total <= done) {
            self.expect(None);
        }
    }

    /// These were all.
    pub fn end(&mut self, rows: u64) {
        (self.done, self.total, self.total_is_estimate) = (rows, Some(rows), false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expecting(estimate: Option<u64>) -> Progress {
        let mut progress = Progress::default();
        progress.expect(estimate);
        progress
    }

    #[test]
    fn a_guess_is_called_one_until_the_end() {
        let mut progress = expecting(Some(10));
        progress.reach(9);
        assert_eq!((progress.total, progress.total_is_estimate), (Some(10), true));
        progress.end(9);
        assert_eq!(
            (progress.done, progress.total, progress.total_is_estimate),
            (9, Some(9), false)
        );
    }

    #[test]
    fn a_guess_that_was_too_low_is_dropped_and_does_not_come_back() {
        for reached in [10, 11] {
            let mut progress = expecting(Some(10));
            progress.reach(reached);
            assert_eq!((progress.total, progress.total_is_estimate), (None, false), "{reached}");
            progress.reach(100);
            assert_eq!((progress.done, progress.total), (100, None));
        }
    }

    #[test]
    fn without_a_guess_there_is_no_total_before_the_end() {
        let mut progress = expecting(None);
        progress.reach(5);
        assert_eq!((progress.total, progress.total_is_estimate), (None, false));
        progress.end(5);
        assert_eq!(progress.total, Some(5));
    }
}
