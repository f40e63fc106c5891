//! Subscriptions to what pods refer to: one task for each, as long as some pod does.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use polylet_kit::CancellationToken;

/// Starts a subscription that ends when the token is cancelled.
pub type Subscribe<K> = Rc<dyn Fn(K, CancellationToken)>;

/// The subscriptions of one kind.
pub struct Subscriptions<K> {
    subscribe: Subscribe<K>,
    active: BTreeMap<K, CancellationToken>,
}

impl<K: Ord + Clone> Subscriptions<K> {
    /// No subscriptions yet.
    pub fn new(subscribe: Subscribe<K>) -> Self {
        Self {
            subscribe,
            active: BTreeMap::new(),
        }
    }

    /// Starts and ends subscriptions, so that there is one for each of these keys.
    pub fn set(&mut self, keys: BTreeSet<K>) {
        self.active.retain(|key, token| {
            let desired = keys.contains(key);
            if !desired {
                token.cancel();
            }
            desired
        });
        for key in keys {
            if !self.active.contains_key(&key) {
                let token = CancellationToken::new();
                (self.subscribe)(key.clone(), token.clone());
                self.active.insert(key, token);
            }
        }
    }
}
