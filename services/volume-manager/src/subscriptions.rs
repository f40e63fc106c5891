//! Subscriptions to what pods refer to: one task for each, as long as some pod does.

use std::collections::BTreeMap;
use std::rc::Rc;

use polylet_kit::CancellationToken;

use crate::core::state_of_world::SubscriptionChange;

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

    /// Starts and ends subscriptions. One that is there goes on.
    pub fn apply(&mut self, changes: Vec<SubscriptionChange<K>>) {
        for change in changes {
            match change {
                SubscriptionChange::Subscribe(key) => {
                    let subscribe = &self.subscribe;
                    self.active.entry(key).or_insert_with_key(|key| {
                        let token = CancellationToken::new();
                        subscribe(key.clone(), token.clone());
                        token
                    });
                }
                SubscriptionChange::Unsubscribe(key) => {
                    if let Some(token) = self.active.remove(&key) {
                        token.cancel();
                    }
                }
            }
        }
    }
}
