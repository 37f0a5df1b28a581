//! Which events were given, whatever the channel.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

/// The last ids, so many of them.
#[derive(Debug)]
pub(super) struct Seen {
    ids: HashSet<Arc<str>>,
    order: VecDeque<Arc<str>>,
    most: usize,
}

impl Seen {
    pub(super) fn new(most: usize) -> Self {
        Self { ids: HashSet::new(), order: VecDeque::new(), most: most.max(1) }
    }

    /// The id, and whether it is noted for the first time.
    pub(super) fn note(&mut self, id: &str) -> (Arc<str>, bool) {
        if let Some(known) = self.ids.get(id) {
            return (Arc::clone(known), false);
        }
        if self.order.len() == self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        let id: Arc<str> = id.into();
        self.order.push_back(Arc::clone(&id));
        self.ids.insert(Arc::clone(&id));
        (id, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ids_are_known_and_no_more_are_kept() {
        let mut seen = Seen::new(2);
        let first = |seen: &mut Seen, id: &str| seen.note(id).1;
        assert!(first(&mut seen, "a"));
        assert!(!first(&mut seen, "a"));
        assert!(first(&mut seen, "b"));
        assert!(first(&mut seen, "c"), "it takes the place of the oldest");
        assert!(!first(&mut seen, "b"));
        assert!(first(&mut seen, "a"));
        assert_eq!((seen.ids.len(), seen.order.len()), (2, 2));
    }
}
