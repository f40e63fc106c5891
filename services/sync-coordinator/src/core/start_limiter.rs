//! Limits how many pods start at the same time, by what their calls to the runtime tell; see
//! [`concurrency_limit`](super::concurrency_limit).
//!
//! A permit is for work under way and not for waiting: a call that the runtime does not answer for
//! [`ACTIVE_TIME`] no longer counts, and another pod starts beside it. So a network plugin that hangs
//! delays pods of its kind and stops none. Pods of the [`StartClass`]es that do not depend on it have
//! permits of their own.

use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};

use super::concurrency_limit::{CallKind, ConcurrencyLimit};

/// How long a call counts as work under way.
pub const ACTIVE_TIME: SignedDuration = SignedDuration::from_secs(10);
/// Permits that each class but the last has for itself when all others are taken.
const RESERVED: usize = 2;
/// The bound of pods of one class with calls in flight, as a multiple of the permits.
const MAX_IN_FLIGHT: usize = 10;

/// What a pod's start depends on. In the order in which free permits are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StartClass {
    /// A critical pod.
    Critical,
    /// A container in a pod that has its sandbox.
    InSandbox,
    /// A sandbox without a network of its own.
    HostNetwork,
    /// A sandbox whose network a plugin sets up.
    PodNetwork,
}

impl StartClass {
    const ALL: [StartClass; 4] = [
        StartClass::Critical,
        StartClass::InSandbox,
        StartClass::HostNetwork,
        StartClass::PodNetwork,
    ];
}

#[derive(Clone, Copy, Debug)]
struct Permit {
    class: StartClass,
    /// Since when its oldest call is in flight.
    since: Timestamp,
}

/// Permits in use, and the queue for them.
#[derive(Debug)]
pub struct StartLimiter {
    limit: ConcurrencyLimit,
    held: BTreeMap<String, Permit>,
    /// Pods by class and order of arrival.
    queue: BTreeMap<(StartClass, u64), String>,
    /// The place of each pod in the queue.
    places: HashMap<String, (StartClass, u64)>,
    arrivals: u64,
    /// When free permits were given last.
    granted_at: Timestamp,
}

impl StartLimiter {
    /// With as many permits as the limit says.
    pub fn new(limit: ConcurrencyLimit) -> Self {
        StartLimiter {
            limit,
            held: BTreeMap::new(),
            queue: BTreeMap::new(),
            places: HashMap::new(),
            arrivals: 0,
            granted_at: Timestamp::MIN,
        }
    }

    /// How many pods may hold a permit now.
    pub fn limit(&self) -> usize {
        self.limit.current()
    }

    /// Takes a permit for a pod, or queues the pod.
    pub fn try_acquire(&mut self, uid: &str, class: StartClass, now: Timestamp) -> bool {
        let queued = self.places.get(uid).map(|(class, _)| *class);
        // Pods before it in the queue would have been given the permit.
        if queued.is_none() && self.is_free(class, now) {
            self.hold(uid, class, now);
            return true;
        }
        if queued != Some(class) {
            self.leave_queue(uid);
            self.arrivals += 1;
            let place = (class, self.arrivals);
            self.queue.insert(place, uid.to_owned());
            self.places.insert(uid.to_owned(), place);
        }
        false
    }

    /// Sets since when the oldest call under a pod's permit is in flight, and what it depends on.
    pub fn hold(&mut self, uid: &str, class: StartClass, since: Timestamp) {
        self.held.insert(uid.to_owned(), Permit { class, since });
    }

    /// Takes the duration of a successful call into account, whose pod still has its permit.
    pub fn record(&mut self, kind: CallKind, since: Timestamp, now: Timestamp) {
        let took = now.duration_since(since);
        // One that no longer counts has waited for something else than the other calls.
        if took < ACTIVE_TIME {
            let active = self.active(now).count();
            self.limit.record(kind, took, active);
        }
    }

    /// Returns a pod's permit.
    pub fn release(&mut self, uid: &str) {
        self.held.remove(uid);
    }

    /// Removes a pod from the queue.
    pub fn leave_queue(&mut self, uid: &str) {
        if let Some(place) = self.places.remove(uid) {
            self.queue.remove(&place);
        }
    }

    /// Gives free permits to pods in the queue; returns the pods.
    pub fn grant(&mut self, now: Timestamp) -> Vec<String> {
        let mut granted = Vec::new();
        self.granted_at = now;
        for class in StartClass::ALL {
            while let Some(uid) = self
                .first_queued(class)
                .filter(|_| self.is_free(class, now))
            {
                self.leave_queue(&uid);
                self.hold(&uid, class, now);
                granted.push(uid);
            }
        }
        granted
    }

    /// When a permit that a pod waits for becomes free by the age of a call.
    pub fn next_due(&self) -> Option<Timestamp> {
        if self.queue.is_empty() {
            return None;
        }
        let active = self.active(self.granted_at);
        active.map(Permit::active_until).min()
    }

    /// Moves all times by a step of the clock.
    pub fn shift(&mut self, step: SignedDuration) {
        for permit in self.held.values_mut() {
            permit.since = permit.since.checked_add(step).unwrap_or(permit.since);
        }
        let granted_at = self.granted_at.checked_add(step);
        self.granted_at = granted_at.unwrap_or(self.granted_at);
    }

    fn first_queued(&self, class: StartClass) -> Option<String> {
        let mut queue = self.queue.range((class, 0)..=(class, u64::MAX));
        queue.next().map(|(_, uid)| uid.clone())
    }

    fn is_free(&self, class: StartClass, now: Timestamp) -> bool {
        let of_class = |permit: &&Permit| permit.class == class;
        let in_flight = self.held.values().filter(of_class).count();
        let permits = self.limit.current();
        let has_reserved =
            class != StartClass::PodNetwork && self.active(now).filter(of_class).count() < RESERVED;
        (has_reserved || self.active(now).count() < permits)
            && in_flight < permits.saturating_mul(MAX_IN_FLIGHT)
    }

    fn active(&self, now: Timestamp) -> impl Iterator<Item = &Permit> {
        let held = self.held.values();
        held.filter(move |permit| permit.is_active(now))
    }
}

impl Permit {
    fn is_active(&self, now: Timestamp) -> bool {
        now < self.active_until()
    }

    fn active_until(&self) -> Timestamp {
        let until = self.since.checked_add(ACTIVE_TIME);
        until.unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::StartClass::{Critical, HostNetwork, InSandbox, PodNetwork};
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn permits_are_passed_on_in_order() {
        let mut limiter = StartLimiter::new(ConcurrencyLimit::fixed(1));
        assert!(limiter.try_acquire("a", PodNetwork, at(0)));
        for (uid, class) in [("b", PodNetwork), ("c", PodNetwork), ("b", PodNetwork)] {
            assert!(!limiter.try_acquire(uid, class, at(0)), "{uid}");
        }
        assert!(limiter.grant(at(1)).is_empty());
        for expected in ["b", "c"] {
            limiter.release("a");
            limiter.release("b");
            assert_eq!(limiter.grant(at(1)), [expected]);
        }
        limiter.release("c");
        assert!(limiter.grant(at(1)).is_empty());
        assert!(limiter.try_acquire("d", PodNetwork, at(1)));
    }

    #[test]
    fn each_class_has_permits_of_its_own() {
        let mut limiter = StartLimiter::new(ConcurrencyLimit::fixed(3));
        for uid in ["a", "b", "c"] {
            assert!(limiter.try_acquire(uid, PodNetwork, at(0)));
        }
        assert!(!limiter.try_acquire("d", PodNetwork, at(0)));
        for class in [Critical, InSandbox, HostNetwork] {
            for (uid, free) in [("x", true), ("y", true), ("z", false)] {
                let uid = format!("{uid} {class:?}");
                assert_eq!(limiter.try_acquire(&uid, class, at(0)), free, "{uid}");
            }
        }
        limiter.release("x HostNetwork");
        limiter.release("x Critical");
        assert_eq!(
            limiter.grant(at(0)),
            ["z Critical", "z HostNetwork"],
            "none of the pods whose network hangs"
        );
    }

    #[test]
    fn calls_that_hang_free_their_permits() {
        let mut limiter = StartLimiter::new(ConcurrencyLimit::fixed(2));
        assert!(limiter.try_acquire("a", PodNetwork, at(0)));
        assert!(limiter.try_acquire("b", PodNetwork, at(4)));
        assert_eq!(limiter.next_due(), None, "nobody waits");
        for uid in ["c", "d", "e"] {
            assert!(!limiter.try_acquire(uid, PodNetwork, at(5)));
        }
        assert_eq!(limiter.next_due(), Some(at(10)));
        assert!(limiter.grant(at(9)).is_empty());
        assert_eq!(limiter.grant(at(10)), ["c"]);
        assert_eq!(limiter.next_due(), Some(at(14)));
        // A pod that still works starts a new call: it counts again.
        limiter.hold("b", PodNetwork, at(13));
        assert!(limiter.grant(at(14)).is_empty());
        assert_eq!(limiter.grant(at(20)), ["d"]);
    }

    #[test]
    fn calls_in_flight_are_bounded() {
        let mut limiter = StartLimiter::new(ConcurrencyLimit::fixed(2));
        let mut started = 0;
        for number in 0..100 {
            let uid = format!("pod {number}");
            started += usize::from(limiter.try_acquire(&uid, PodNetwork, at(0)));
        }
        for round in 1..100 {
            started += limiter.grant(at(round * 10)).len();
        }
        assert_eq!(started, 20);
        assert_eq!(limiter.next_due(), None);
        assert!(limiter.try_acquire("host network", HostNetwork, at(1_000)));
        limiter.release("pod 0");
        assert_eq!(limiter.grant(at(1_001)).len(), 1);
    }

    #[test]
    fn a_pod_that_got_its_sandbox_is_queued_by_its_new_class() {
        let mut limiter = StartLimiter::new(ConcurrencyLimit::fixed(1));
        assert!(limiter.try_acquire("a", PodNetwork, at(0)));
        assert!(!limiter.try_acquire("b", PodNetwork, at(0)));
        assert!(limiter.try_acquire("c", InSandbox, at(0)));
        assert!(limiter.try_acquire("d", InSandbox, at(0)));
        assert!(!limiter.try_acquire("e", PodNetwork, at(0)));
        assert!(!limiter.try_acquire("e", InSandbox, at(0)));
        limiter.release("a");
        limiter.release("c");
        limiter.release("d");
        assert_eq!(limiter.grant(at(0)), ["e"]);
    }

    #[test]
    fn a_step_of_the_clock_changes_no_age() {
        for step in [-3_600, 3_600] {
            let mut limiter = StartLimiter::new(ConcurrencyLimit::fixed(1));
            assert!(limiter.try_acquire("a", PodNetwork, at(0)));
            assert!(!limiter.try_acquire("b", PodNetwork, at(0)));
            limiter.shift(SignedDuration::from_secs(step));
            assert!(limiter.grant(at(step + 9)).is_empty());
            assert_eq!(limiter.grant(at(step + 10)), ["b"]);
        }
    }
}
