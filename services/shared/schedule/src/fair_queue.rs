use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Owners that are remembered as slow. When there are more, all are forgotten.
const MAX_SLOW_OWNERS: usize = 1024;

/// The bounds of a [`FairQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairLimits {
    /// Items in progress at once.
    pub total: usize,
    /// Items of one owner in progress at once.
    pub per_owner: usize,
    /// Items of slow owners in progress at once.
    pub slow: usize,
}

/// Items of owners that wait for one of a bounded number of places.
///
/// Owners take turns, so one with many items does not delay the others. Owners whose items take long
/// share a smaller number of places, so that they delay each other and nobody else.
#[derive(Debug)]
pub struct FairQueue<K, T> {
    limits: FairLimits,
    waiting: BTreeMap<K, VecDeque<T>>,
    /// The owners with waiting items, in the order of their turns.
    turns: VecDeque<K>,
    in_progress: BTreeMap<K, usize>,
    total: usize,
    slow_total: usize,
    slow_owners: BTreeSet<K>,
}

/// An item that got a place. The place is free again after [`FairQueue::finish`].
#[derive(Debug)]
pub struct FairStart<K, T> {
    /// The place.
    pub place: FairPlace<K>,
    /// The item.
    pub item: T,
}

/// A place in a [`FairQueue`].
#[derive(Debug)]
pub struct FairPlace<K> {
    owner: K,
    is_slow: bool,
}

impl<K> FairPlace<K> {
    /// The owner of the item that has this place.
    pub fn owner(&self) -> &K {
        &self.owner
    }

    /// Whether this is one of the places for slow owners.
    pub fn is_slow(&self) -> bool {
        self.is_slow
    }
}

impl<K: Ord + Clone, T> FairQueue<K, T> {
    /// An empty queue.
    pub fn new(limits: FairLimits) -> Self {
        FairQueue {
            limits,
            waiting: BTreeMap::new(),
            turns: VecDeque::new(),
            in_progress: BTreeMap::new(),
            total: 0,
            slow_total: 0,
            slow_owners: BTreeSet::new(),
        }
    }

    /// Adds an item.
    pub fn push(&mut self, owner: K, item: T) {
        let items = self.waiting.entry(owner.clone()).or_default();
        if items.is_empty() {
            self.turns.push_back(owner);
        }
        items.push_back(item);
    }

    /// Gives a place to the next item; `None` while none is free for those that wait. Call it after
    /// each [`FairQueue::push`] and [`FairQueue::finish`].
    pub fn pop(&mut self) -> Option<FairStart<K, T>> {
        let turn = self.next_turn()?;
        let owner = self.turns.remove(turn)?;
        let items = self.waiting.get_mut(&owner)?;
        let item = items.pop_front()?;
        if items.is_empty() {
            self.waiting.remove(&owner);
        } else {
            self.turns.push_back(owner.clone());
        }
        let is_slow = self.slow_owners.contains(&owner);
        self.total += 1;
        self.slow_total += usize::from(is_slow);
        *self.in_progress.entry(owner.clone()).or_insert(0) += 1;
        let place = FairPlace { owner, is_slow };
        Some(FairStart { place, item })
    }

    /// Whether [`FairQueue::pop`] would return an item.
    pub fn can_pop(&self) -> bool {
        self.next_turn().is_some()
    }

    /// How many items of an owner wait.
    pub fn waiting(&self, owner: &K) -> usize {
        self.waiting.get(owner).map_or(0, VecDeque::len)
    }

    fn next_turn(&self) -> Option<usize> {
        if self.total >= self.limits.total {
            return None;
        }
        self.turns.iter().position(|owner| {
            let in_progress = self.in_progress.get(owner).copied().unwrap_or(0);
            in_progress < self.limits.per_owner
                && (self.slow_total < self.limits.slow || !self.slow_owners.contains(owner))
        })
    }

    /// Frees a place.
    pub fn finish(&mut self, place: FairPlace<K>) {
        self.total = self.total.saturating_sub(1);
        self.slow_total = self.slow_total.saturating_sub(usize::from(place.is_slow));
        if let Some(in_progress) = self.in_progress.get_mut(&place.owner) {
            *in_progress = in_progress.saturating_sub(1);
            if *in_progress == 0 {
                self.in_progress.remove(&place.owner);
            }
        }
    }

    /// Sets whether an owner is slow: whether its latest item took too long.
    pub fn set_slow(&mut self, owner: &K, slow: bool) {
        if !slow {
            self.slow_owners.remove(owner);
        } else if !self.slow_owners.contains(owner) {
            if self.slow_owners.len() >= MAX_SLOW_OWNERS {
                self.slow_owners.clear();
            }
            self.slow_owners.insert(owner.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: FairLimits = FairLimits {
        total: 4,
        per_owner: 2,
        slow: 1,
    };

    fn start_all(queue: &mut FairQueue<&'static str, u32>) -> Vec<FairPlace<&'static str>> {
        std::iter::from_fn(|| queue.pop())
            .map(|start| start.place)
            .collect()
    }

    fn owners(places: &[FairPlace<&'static str>]) -> Vec<&'static str> {
        places.iter().map(|place| place.owner).collect()
    }

    #[test]
    fn owners_take_turns() {
        let mut queue = FairQueue::new(LIMITS);
        for item in 0..200 {
            queue.push("many", item);
        }
        queue.push("few", 0);
        queue.push("other", 0);
        assert_eq!((queue.waiting(&"many"), queue.waiting(&"none")), (200, 0));
        let mut places = start_all(&mut queue);
        assert_eq!(owners(&places), ["many", "few", "other", "many"]);
        // Only one of "many" may follow: it has two places at most.
        queue.push("late", 0);
        queue.finish(places.remove(1));
        assert_eq!(owners(&start_all(&mut queue)), ["late"]);
    }

    #[test]
    fn items_of_one_owner_keep_their_order() {
        let mut queue = FairQueue::new(LIMITS);
        for item in 0..3 {
            queue.push("a", item);
        }
        let mut items = Vec::new();
        while let Some(start) = queue.pop() {
            items.push(start.item);
            queue.finish(start.place);
        }
        assert_eq!(items, [0, 1, 2]);
    }

    #[test]
    fn slow_owners_delay_only_each_other() {
        let mut queue = FairQueue::new(LIMITS);
        for owner in ["a", "b", "c"] {
            queue.set_slow(&owner, true);
            queue.push(owner, 0);
        }
        let places = start_all(&mut queue);
        assert_eq!(owners(&places), ["a"]);
        queue.push("fast", 0);
        assert_eq!(owners(&start_all(&mut queue)), ["fast"]);
        queue.set_slow(&"c", false);
        assert_eq!(owners(&start_all(&mut queue)), ["c"]);
        for place in places {
            queue.finish(place);
        }
        assert_eq!(owners(&start_all(&mut queue)), ["b"]);
    }

    proptest! {
        /// No limit is exceeded, every item gets a place in the end, and nothing is left then.
        #[test]
        fn every_item_gets_a_place_within_the_limits(
            steps in prop::collection::vec((0u8..4, 0u32..5), 0..200),
        ) {
            let mut queue = FairQueue::new(LIMITS);
            let (mut pushed, mut started) = (0, 0);
            let mut places: Vec<FairPlace<u32>> = Vec::new();
            let mut check = |queue: &mut FairQueue<u32, ()>, places: &mut Vec<FairPlace<u32>>| {
                loop {
                    let can_pop = queue.can_pop();
                    let start = queue.pop();
                    assert_eq!(can_pop, start.is_some());
                    let Some(start) = start else { break };
                    places.push(start.place);
                    started += 1;
                }
                assert!(places.len() <= LIMITS.total);
                assert!(places.iter().filter(|place| place.is_slow).count() <= LIMITS.slow);
                for owner in 0..5 {
                    let own = places.iter().filter(|place| place.owner == owner);
                    assert!(own.count() <= LIMITS.per_owner);
                }
            };
            for (step, owner) in steps {
                match step {
                    0 | 1 => {
                        queue.push(owner, ());
                        pushed += 1;
                    }
                    2 => queue.set_slow(&owner, owner % 2 == 0),
                    _ => drop(places.pop().map(|place| queue.finish(place))),
                }
                check(&mut queue, &mut places);
            }
            while let Some(place) = places.pop() {
                queue.finish(place);
                check(&mut queue, &mut places);
            }
            prop_assert_eq!(pushed, started);
            prop_assert!(queue.waiting.is_empty() && queue.turns.is_empty());
            prop_assert!(queue.in_progress.is_empty() && queue.total == 0 && queue.slow_total == 0);
        }
    }
}
