//! How often clients may cause reviews by the API server, which are made with the node's credentials: each
//! address at a rate, and all of them together.

use std::collections::BTreeMap;
use std::time::Duration;

use polylet_schedule::TokenBucket;

/// Addresses that are remembered at most.
const MAX_ADDRESSES: usize = 1024;

/// Reviews at once and per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReviewRate {
    pub(crate) burst: f64,
    pub(crate) per_second: f64,
}

impl ReviewRate {
    fn bucket(self, now: Duration) -> TokenBucket<Duration> {
        TokenBucket::new(self.per_second, self.burst, now)
    }
}

/// The limits of all addresses. Times are those of a monotonic clock.
#[derive(Debug)]
pub(crate) struct ReviewLimit<A> {
    per_address: ReviewRate,
    all: TokenBucket<Duration>,
    /// With the time of the last review.
    addresses: BTreeMap<A, (Duration, TokenBucket<Duration>)>,
}

impl<A: Ord + Copy> ReviewLimit<A> {
    pub(crate) fn new(per_address: ReviewRate, all: ReviewRate, now: Duration) -> Self {
        Self {
            per_address,
            all: all.bucket(now),
            addresses: BTreeMap::new(),
        }
    }

    /// Whether a client may cause a review now. One beyond its own limit takes nothing from the others.
    pub(crate) fn try_take(&mut self, address: A, now: Duration) -> bool {
        let rate = self.per_address;
        if self.addresses.len() >= MAX_ADDRESSES && !self.addresses.contains_key(&address) {
            let oldest = self.addresses.iter().min_by_key(|(_, (last, _))| *last);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                self.addresses.remove(&oldest);
            }
        }
        let entry = self.addresses.entry(address);
        let (last, bucket) = entry.or_insert_with(|| (now, rate.bucket(now)));
        if bucket.try_take(now).is_err() {
            return false;
        }
        *last = now;
        self.all.try_take(now).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_address_leaves_the_others_their_reviews() {
        let rate = |burst, per_second| ReviewRate { burst, per_second };
        let now = Duration::from_secs(7);
        let mut limit = ReviewLimit::new(rate(4.0, 1.0), rate(8.0, 2.0), now);
        let taken = |limit: &mut ReviewLimit<char>, address, now| {
            (0..1000).filter(|_| limit.try_take(address, now)).count()
        };
        assert_eq!(taken(&mut limit, 'a', now), 4);
        assert_eq!(taken(&mut limit, 'b', now), 4);
        assert_eq!(taken(&mut limit, 'c', now), 0, "the limit of all");
        let later = now + Duration::from_secs(2);
        assert_eq!(taken(&mut limit, 'a', later), 2);
        assert_eq!(taken(&mut limit, 'b', later), 2);
    }

    #[test]
    fn addresses_are_bounded() {
        let rate = ReviewRate {
            burst: 1.0,
            per_second: 1.0,
        };
        let mut limit = ReviewLimit::new(rate, rate, Duration::ZERO);
        for address in 0..10 * MAX_ADDRESSES {
            limit.try_take(address, Duration::from_millis(address as u64));
            assert!(limit.addresses.len() <= MAX_ADDRESSES);
        }
    }
}
