//! What is kept up to date as long as a pod refers to it: one task for each.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use polylet_kit::CancellationToken;

/// Starts to follow one thing until the token is cancelled.
pub type Watch<K> = Rc<dyn Fn(K, CancellationToken)>;

/// The tasks under way.
pub struct Watches<K> {
    watch: Watch<K>,
    running: BTreeMap<K, CancellationToken>,
}

impl<K: Ord + Clone> Watches<K> {
    /// None yet.
    pub fn new(watch: Watch<K>) -> Self {
        Self {
            watch,
            running: BTreeMap::new(),
        }
    }

    /// Follows exactly these.
    pub fn set(&mut self, wanted: BTreeSet<K>) {
        self.running.retain(|key, token| {
            let keep = wanted.contains(key);
            if !keep {
                token.cancel();
            }
            keep
        });
        for key in wanted {
            if !self.running.contains_key(&key) {
                let token = CancellationToken::new();
                (self.watch)(key.clone(), token.clone());
                self.running.insert(key, token);
            }
        }
    }
}
