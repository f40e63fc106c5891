//! How many children there may be.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bounds of a pool.
#[derive(Debug, Clone, Copy)]
pub struct SubprocessLimits {
    /// Children at work. One that makes no progress for half a second waits for something and does not
    /// count any more.
    pub active: usize,
    /// All children, killed ones that have not ended included.
    pub total: usize,
    /// Children of one pod, killed ones that have not ended included.
    pub per_pod: usize,
}

/// A killed child with this key has not ended.
#[derive(Debug)]
pub(super) struct KeyClosed;

/// The permits of a pool.
#[derive(Debug)]
pub(super) struct Permits {
    keys: Arc<KeyedSemaphores>,
    pods: Arc<KeyedSemaphores>,
    total: Arc<Semaphore>,
    active: Arc<Semaphore>,
}

/// What one child holds until it has ended.
#[derive(Debug)]
pub(super) struct ChildPermits {
    active: Option<OwnedSemaphorePermit>,
    key: KeyedPermit,
    _pod: Option<KeyedPermit>,
    _total: OwnedSemaphorePermit,
}

impl ChildPermits {
    /// The child waits for something: it does not count as active any more.
    pub(super) fn release_active(&mut self) {
        self.active = None;
    }

    /// The child was killed: until it ends, its key is refused.
    pub(super) fn close_key(&self) {
        self.key.semaphore.close();
    }
}

impl Permits {
    pub(super) fn new(limits: SubprocessLimits) -> Self {
        let bounded = |permits: usize| Arc::new(Semaphore::new(permits.max(1)));
        Self {
            keys: Arc::new(KeyedSemaphores::new(1)),
            pods: Arc::new(KeyedSemaphores::new(limits.per_pod.max(1))),
            total: bounded(limits.total),
            active: bounded(limits.active),
        }
    }

    /// Waits for the permits of one child.
    pub(super) async fn acquire(
        &self,
        key: String,
        pod: Option<&str>,
    ) -> Result<ChildPermits, KeyClosed> {
        let key = self.keys.acquire(key).await?;
        let pod = match pod {
            Some(pod) => Some(self.pods.acquire(pod.to_owned()).await?),
            None => None,
        };
        // Closed by nobody.
        let total = Arc::clone(&self.total).acquire_owned().await;
        let active = Arc::clone(&self.active).acquire_owned().await;
        Ok(ChildPermits {
            active: Some(active.map_err(|_| KeyClosed)?),
            key,
            _pod: pod,
            _total: total.map_err(|_| KeyClosed)?,
        })
    }
}

/// A semaphore for each key that is in use.
#[derive(Debug)]
struct KeyedSemaphores {
    permits: usize,
    semaphores: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

#[derive(Debug)]
struct KeyedPermit {
    semaphores: Arc<KeyedSemaphores>,
    key: String,
    semaphore: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl KeyedSemaphores {
    fn new(permits: usize) -> Self {
        Self {
            permits,
            semaphores: Mutex::default(),
        }
    }

    async fn acquire(self: &Arc<Self>, key: String) -> Result<KeyedPermit, KeyClosed> {
        let semaphore = {
            let mut all = self.lock();
            let new = || Arc::new(Semaphore::new(self.permits));
            Arc::clone(all.entry(key.clone()).or_insert_with(new))
        };
        // Made before the wait: a wait that is given up cleans up as well.
        let mut held = KeyedPermit {
            semaphores: Arc::clone(self),
            key,
            semaphore,
            permit: None,
        };
        let permit = Arc::clone(&held.semaphore).acquire_owned().await;
        held.permit = Some(permit.map_err(|_| KeyClosed)?);
        Ok(held)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Semaphore>>> {
        self.semaphores
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeyedPermit {
    fn drop(&mut self) {
        let mut all = self.semaphores.lock();
        let is_holder = self.permit.take().is_some();
        let is_unused = self.semaphore.available_permits() == self.semaphores.permits
            // The map's and this one.
            && Arc::strong_count(&self.semaphore) == 2;
        let has_ended = is_holder && self.semaphore.is_closed();
        let is_same = |found: &Arc<Semaphore>| Arc::ptr_eq(found, &self.semaphore);
        if (is_unused || has_ended) && all.get(&self.key).is_some_and(is_same) {
            all.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn permits(active: usize, total: usize, per_pod: usize) -> Permits {
        Permits::new(SubprocessLimits {
            active,
            total,
            per_pod,
        })
    }

    /// The permits, if they are to be had at once.
    fn now(permits: &Permits, key: &str, pod: &str) -> Option<Result<ChildPermits, KeyClosed>> {
        permits.acquire(key.to_owned(), Some(pod)).now_or_never()
    }

    #[test]
    fn each_bound_holds_until_the_child_has_ended() {
        let permits = permits(3, 4, 2);
        let mut held: Vec<_> = [("a", "x"), ("b", "x"), ("c", "y")]
            .into_iter()
            .map(|(key, pod)| now(&permits, key, pod).expect("free").expect("open"))
            .collect();
        for (key, pod, why) in [
            ("a", "z", "one for each key"),
            ("d", "x", "two for each pod"),
            ("d", "z", "three at work"),
        ] {
            assert!(now(&permits, key, pod).is_none(), "{why}");
        }
        for child in &mut held {
            child.release_active();
        }
        let fourth = now(&permits, "d", "z").expect("those that wait hold up nobody");
        assert!(now(&permits, "e", "z").is_none(), "four in all");
        drop(held);
        assert!(now(&permits, "a", "x").is_some_and(|permit| permit.is_ok()));
        drop(fourth);
        assert!(permits.keys.lock().is_empty() && permits.pods.lock().is_empty());
    }

    #[test]
    fn a_key_is_refused_until_its_killed_child_has_ended() {
        let permits = permits(2, 2, 2);
        let killed = now(&permits, "a", "x").expect("free").expect("open");
        let mut waiting = Box::pin(permits.acquire("a".to_owned(), Some("y")));
        assert!(waiting.as_mut().now_or_never().is_none());
        killed.close_key();
        assert!(
            waiting
                .now_or_never()
                .is_some_and(|refused| refused.is_err())
        );
        assert!(now(&permits, "a", "x").is_some_and(|refused| refused.is_err()));
        assert!(permits.keys.lock().contains_key("a"), "still refused");
        drop(killed);
        assert!(now(&permits, "a", "x").is_some_and(|permit| permit.is_ok()));
        assert!(permits.keys.lock().is_empty() && permits.pods.lock().is_empty());
    }
}
