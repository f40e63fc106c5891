//! How many calls the container runtime is given at the same time, measured by the calls themselves.
//!
//! As in TCP Vegas: a call that takes longer than the same call alone has waited for others, and of `n` calls
//! at once those that wait are `n * (1 - alone / took)`. The limit grows while fewer than
//! [`MIN_WAITING`] wait, which keep all of the runtime busy, and shrinks while more than
//! [`MAX_WAITING`] do, which add nothing but delays.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use polylet_model::Manifest;

/// The limit until something is measured, and its lower bound: a runtime mixes work and waits.
const MIN_LIMIT: f64 = 4.0;
/// The upper bound.
const MAX_LIMIT: f64 = 100.0;
/// Calls that wait in the runtime while it is busy.
const MIN_WAITING: f64 = 2.0;
/// More waiting calls than this are of no use.
const MAX_WAITING: f64 = 4.0;
/// How much longer than the shortest ones calls alone take by chance.
const TOLERANCE: f64 = 1.2;
/// Kinds of calls that are measured, a bound on names of runtime handlers.
const MAX_KINDS: usize = 32;
/// The newest call alone is one part in so many of the duration that is expected of its kind.
const NEWEST_SHARE: i32 = 8;

/// Calls that take about equally long: an operation of the runtime, and the runtime handler.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallKind {
    /// The operation.
    pub operation: &'static str,
    /// The name of the pod's RuntimeClass, empty without one.
    pub runtime_class: String,
}

impl CallKind {
    /// An operation for a pod; one whose manifest is not known counts as one without a RuntimeClass.
    pub fn new(operation: &'static str, manifest: Option<&Manifest>) -> Self {
        let class = manifest.and_then(|manifest| manifest.spec().runtime_class_name.clone());
        CallKind {
            operation,
            runtime_class: class.unwrap_or_default(),
        }
    }
}

/// A limit that is fixed, or follows measured calls.
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit {
    limit: f64,
    fixed: bool,
    /// No call has met a busy runtime so far: the limit grows fast.
    is_first_growth: bool,
    /// Durations of calls alone.
    alone: BTreeMap<CallKind, SignedDuration>,
}

impl ConcurrencyLimit {
    /// Always this many, at least one.
    pub fn fixed(limit: u32) -> Self {
        ConcurrencyLimit {
            limit: f64::from(limit.max(1)),
            fixed: true,
            is_first_growth: false,
            alone: BTreeMap::new(),
        }
    }

    /// As many as measured.
    pub fn measured() -> Self {
        ConcurrencyLimit {
            limit: MIN_LIMIT,
            fixed: false,
            is_first_growth: true,
            alone: BTreeMap::new(),
        }
    }

    /// Calls at the same time.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and 2^32"
    )]
    pub fn current(&self) -> usize {
        self.limit as usize
    }

    /// Takes a successful call into account that `at_once` calls, itself included, have shared the runtime with.
    pub fn record(&mut self, kind: CallKind, took: SignedDuration, at_once: usize) {
        if self.fixed || took <= SignedDuration::ZERO {
            return;
        }
        let Some(alone) = self.alone(kind, took, at_once) else {
            return;
        };
        let at_once = f64::from(u32::try_from(at_once).unwrap_or(u32::MAX));
        let alone = alone.as_secs_f64() * TOLERANCE;
        let waiting = at_once * (1.0 - alone / took.as_secs_f64()).max(0.0);
        // One in the time of as many calls as there are at once, as in TCP; fast while it is far off.
        let is_far_off = self.is_first_growth || waiting > 2.0 * MAX_WAITING;
        let change = if is_far_off { 0.5 } else { 1.0 / self.limit };
        if waiting > MAX_WAITING {
            self.limit -= change;
        } else if waiting < MIN_WAITING && at_once * 2.0 >= self.limit {
            // A limit that is not used says nothing about more.
            self.limit += change;
        }
        self.is_first_growth &= waiting < MIN_WAITING;
        self.limit = self.limit.clamp(MIN_LIMIT, MAX_LIMIT);
    }

    /// The duration of a call of this kind alone, after this one.
    fn alone(
        &mut self,
        kind: CallKind,
        took: SignedDuration,
        at_once: usize,
    ) -> Option<SignedDuration> {
        let is_full = self.alone.len() >= MAX_KINDS;
        match self.alone.get_mut(&kind) {
            Some(alone) => {
                // One that had the runtime for itself tells the truth, also of a runtime that has
                // become slower; of others it can only be less than they took.
                if at_once <= 1 {
                    *alone += (took - *alone) / NEWEST_SHARE;
                }
                *alone = took.min(*alone);
                Some(*alone)
            }
            None if is_full => None,
            None => {
                self.alone.insert(kind, took);
                Some(took)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(operation: &'static str) -> CallKind {
        CallKind {
            operation,
            runtime_class: String::new(),
        }
    }

    /// A runtime with so many calls at once before they share it, some of which take longer by chance.
    struct SimulatedRuntime {
        capacity: f64,
        alone_ms: f64,
        calls: u32,
    }

    impl SimulatedRuntime {
        fn took(&mut self, at_once: usize) -> SignedDuration {
            self.calls += 1;
            let chance = f64::from(self.calls * 7919 % 31) / 100.0;
            let shared = (at_once as f64 / self.capacity).max(1.0);
            SignedDuration::from_secs_f64(self.alone_ms / 1e3 * shared * (1.0 + chance))
        }

        /// A burst: as many calls as the limit allows.
        fn burst(&mut self, limit: &mut ConcurrencyLimit, calls: usize) {
            for _ in 0..calls {
                let at_once = limit.current();
                limit.record(kind("start"), self.took(at_once), at_once);
            }
        }
    }

    #[test]
    fn the_limit_follows_what_the_runtime_does_at_once() {
        for (capacity, expected) in [(1.0, 4..=5), (2.0, 4..=6), (6.0, 7..=10), (20.0, 20..=24)] {
            for alone_first in [true, false] {
                let mut runtime = SimulatedRuntime {
                    capacity,
                    alone_ms: 150.0,
                    calls: 0,
                };
                let mut limit = ConcurrencyLimit::measured();
                assert_eq!(limit.current(), 4);
                if alone_first {
                    for _ in 0..10 {
                        limit.record(kind("start"), runtime.took(1), 1);
                    }
                }
                runtime.burst(&mut limit, 300);
                let measured = limit.current();
                // Without a call alone the first ones at once are taken for such.
                let expected = if alone_first {
                    expected.clone()
                } else {
                    *expected.start()..=expected.end() + 4
                };
                assert!(
                    expected.contains(&measured),
                    "{measured} of {capacity}, {alone_first}"
                );
            }
        }
    }

    #[test]
    fn a_hundred_single_starts_do_not_change_the_limit() {
        let mut limit = ConcurrencyLimit::measured();
        for n in 0..100 {
            limit.record(
                kind("start"),
                SignedDuration::from_millis(100 + n % 7 * 20),
                1,
            );
        }
        assert_eq!(limit.current(), 4);
    }

    #[test]
    fn single_calls_measure_a_runtime_that_has_become_slower() {
        let mut limit = ConcurrencyLimit::measured();
        let mut runtime = SimulatedRuntime {
            capacity: 10.0,
            alone_ms: 50.0,
            calls: 0,
        };
        limit.record(kind("start"), runtime.took(1), 1);
        runtime.burst(&mut limit, 300);
        let before = limit.current();
        runtime.alone_ms = 200.0;
        runtime.burst(&mut limit, 300);
        assert!(limit.current() < before, "each call seems to wait");
        for _ in 0..40 {
            limit.record(kind("start"), runtime.took(1), 1);
        }
        runtime.burst(&mut limit, 300);
        assert!(
            limit.current().abs_diff(before) <= 2,
            "{} of {before}",
            limit.current()
        );
    }

    #[test]
    fn a_limit_that_hung_calls_have_raised_shrinks_soon() {
        let mut limit = ConcurrencyLimit::measured();
        let mut runtime = SimulatedRuntime {
            capacity: 2.0,
            alone_ms: 50.0,
            calls: 0,
        };
        // Others hang and take nothing of the runtime.
        for _ in 0..300 {
            limit.record(kind("start"), runtime.took(1), limit.current());
        }
        assert!(limit.current() > 30, "{}", limit.current());
        runtime.burst(&mut limit, 120);
        assert!(limit.current() < 12, "{}", limit.current());
    }

    #[test]
    fn kinds_of_calls_are_compared_with_their_own() {
        let mut limit = ConcurrencyLimit::measured();
        for _ in 0..50 {
            for (operation, ms) in [("create", 10), ("start", 50), ("sandbox", 400)] {
                limit.record(
                    kind(operation),
                    SignedDuration::from_millis(ms),
                    limit.current(),
                );
            }
        }
        assert!(limit.current() > 50, "none ever waits");
    }

    #[test]
    fn names_of_runtime_classes_are_bounded() {
        let mut limit = ConcurrencyLimit::measured();
        for n in 0..1_000 {
            let class = CallKind {
                operation: "sandbox",
                runtime_class: format!("class-{n}"),
            };
            limit.record(class, SignedDuration::from_millis(10), 4);
        }
        assert_eq!(limit.alone.len(), MAX_KINDS);
    }

    #[test]
    fn a_fixed_limit_stays() {
        let mut limit = ConcurrencyLimit::fixed(0);
        assert_eq!(limit.current(), 1);
        limit.record(kind("start"), SignedDuration::from_millis(1), 1);
        assert_eq!(limit.current(), 1);
        assert_eq!(ConcurrencyLimit::fixed(1_000).current(), 1_000);
    }
}
