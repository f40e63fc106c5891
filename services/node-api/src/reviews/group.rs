//! Reviews of one kind: cached, one at a time for each key, a few at once, and at a limited rate.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, Shared, WeakShared};
use polylet_kit::HealthConditions;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::{ReviewError, TIMEOUT};
use crate::core::review_limit::{ReviewLimit, ReviewRate};
use crate::core::ttl_cache::TtlCache;

/// Reviews at once.
const MAX_ACTIVE: usize = 8;
/// Reviews that the clients of one address may cause.
const RATE_PER_ADDRESS: ReviewRate = ReviewRate {
    burst: 32.0,
    per_second: 8.0,
};
/// Reviews that all clients together may cause.
const RATE: ReviewRate = ReviewRate {
    burst: 128.0,
    per_second: 32.0,
};
/// The health condition of an address that causes too many reviews, and how long it lasts after the last
/// refused request.
const TOO_MANY: &str = "TooManyReviews";
const CONDITION_TIME: Duration = Duration::from_secs(30);
/// Cached results of each kind.
const MAX_CACHED: usize = 4096;

/// The result of a review, and how long it is valid.
#[derive(Clone)]
pub(super) struct ReviewResult<V> {
    pub(super) value: V,
    /// Accepted and rejected results do not displace each other: nobody can run out of rejected ones.
    pub(super) accepted: bool,
    pub(super) ttl: Duration,
}

/// Failures are shared by all who wait for the review.
type SharedResult<V> = Result<V, Arc<ReviewError>>;
type ReviewFuture<V> = BoxFuture<'static, SharedResult<V>>;

/// The reviews of one kind. Clones share them.
pub(super) struct ReviewGroup<K, V: Clone> {
    shared: Arc<GroupShared<K, V>>,
}

struct GroupShared<K, V: Clone> {
    start: Instant,
    active: Semaphore,
    state: Mutex<GroupState<K, V>>,
}

struct GroupState<K, V: Clone> {
    accepted: TtlCache<K, V>,
    rejected: TtlCache<K, V>,
    limit: ReviewLimit<IpAddr>,
    in_flight: HashMap<K, WeakShared<ReviewFuture<V>>>,
}

impl<K, V: Clone> Clone for ReviewGroup<K, V> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K, V> ReviewGroup<K, V>
where
    K: Hash + Ord + Clone + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(super) fn new() -> Self {
        Self {
            shared: Arc::new(GroupShared {
                start: Instant::now(),
                active: Semaphore::new(MAX_ACTIVE),
                state: Mutex::new(GroupState {
                    accepted: TtlCache::new(MAX_CACHED),
                    rejected: TtlCache::new(MAX_CACHED),
                    limit: ReviewLimit::new(RATE_PER_ADDRESS, RATE, Duration::ZERO),
                    in_flight: HashMap::new(),
                }),
            }),
        }
    }

    /// The cached result, that of a review in flight, or that of a new one for this client.
    pub(super) async fn get<F>(
        &self,
        key: K,
        client: IpAddr,
        review: impl FnOnce() -> F,
    ) -> SharedResult<V>
    where
        F: Future<Output = Result<ReviewResult<V>, ReviewError>> + Send + 'static,
    {
        match self.cached_or_join(key, client, review) {
            Ok(cached) => Ok(cached),
            Err(Some(review)) => review.await,
            Err(None) => Err(Arc::new(ReviewError::TooMany)),
        }
    }

    /// The cached result, or the review to wait for; none beyond the limit.
    fn cached_or_join<F>(
        &self,
        key: K,
        client: IpAddr,
        review: impl FnOnce() -> F,
    ) -> Result<V, Option<Shared<ReviewFuture<V>>>>
    where
        F: Future<Output = Result<ReviewResult<V>, ReviewError>> + Send + 'static,
    {
        let now = self.shared.start.elapsed();
        let mut state = self.shared.lock();
        let cached = state.accepted.get(&key, now);
        if let Some(value) = cached.or_else(|| state.rejected.get(&key, now)) {
            return Ok(value);
        }
        state
            .in_flight
            .retain(|_, review| review.upgrade().is_some_and(|r| r.peek().is_none()));
        if let Some(review) = state.in_flight.get(&key).and_then(WeakShared::upgrade) {
            return Err(Some(review));
        }
        if !state.limit.try_take(client, now) {
            let message = "requests whose credentials need a review are refused";
            let conditions = HealthConditions::of_process();
            conditions.set_for(TOO_MANY, client, message, CONDITION_TIME);
            return Err(None);
        }
        let (shared, review) = (Arc::clone(&self.shared), review());
        let of = key.clone();
        let review = async move { shared.run(of, review).await.map_err(Arc::new) };
        let review = review.boxed().shared();
        if let Some(weak) = review.downgrade() {
            state.in_flight.insert(key, weak);
        }
        Err(Some(review))
    }
}

impl<K: Hash + Ord + Clone, V: Clone> GroupShared<K, V> {
    async fn run(
        &self,
        key: K,
        review: impl Future<Output = Result<ReviewResult<V>, ReviewError>>,
    ) -> Result<V, ReviewError> {
        let permit = timeout(TIMEOUT, self.active.acquire()).await;
        let _permit = permit.map_err(|_| ReviewError::Busy)?;
        let ReviewResult {
            value,
            accepted,
            ttl,
        } = review.await?;
        let now = self.start.elapsed();
        let mut state = self.lock();
        let cache = if accepted {
            &mut state.accepted
        } else {
            &mut state.rejected
        };
        cache.put(key, value.clone(), ttl, now);
        Ok(value)
    }

    fn lock(&self) -> MutexGuard<'_, GroupState<K, V>> {
        // No panic leaves an entry half inserted.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
