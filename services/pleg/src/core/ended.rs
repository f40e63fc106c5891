use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use polylet_wire::pleg::v1::{ContainerPhase, PodState};

use super::later;

/// From one look to the next while the runtime still tells a container to run whose process has
/// ended, in milliseconds. It knows within a few tens of them, so the first looks are close; each
/// later pause is about a third of the time gone by. After the last one the lists have to do.
const PAUSES: [u64; 18] = [
    5, 5, 5, 8, 10, 13, 18, 24, 32, 42, 56, 75, 100, 133, 178, 237, 316, 422,
];

/// A pod's containers that run by the runtime's word while their process is known to have ended.
#[derive(Debug, Default)]
pub(super) struct Ended(BTreeMap<String, Waits>);

#[derive(Debug)]
struct Waits {
    pauses: usize,
    /// When to look again; the first look is made at once.
    due: Timestamp,
}

impl Ended {
    /// The process of a container has ended. Says whether that is news.
    pub(super) fn add(&mut self, state: &PodState, id: &str, now: Timestamp) -> bool {
        if !runs(state, id) || self.0.contains_key(id) {
            return false;
        }
        let waits = Waits {
            pauses: 0,
            due: now,
        };
        self.0.insert(id.to_owned(), waits);
        true
    }

    /// A look that began then ended now. When to look again, if at all.
    pub(super) fn looked(
        &mut self,
        state: &PodState,
        began: Timestamp,
        now: Timestamp,
    ) -> Option<Timestamp> {
        self.0.retain(|id, waits| {
            if !runs(state, id) {
                return false;
            }
            // Looks that others wished for in between take none of the tries.
            if began < waits.due {
                return true;
            }
            let Some(pause) = PAUSES.get(waits.pauses) else {
                return false;
            };
            waits.pauses += 1;
            waits.due = later(now, Duration::from_millis(*pause));
            true
        });
        self.0.values().map(|waits| waits.due).min()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

fn runs(state: &PodState, id: &str) -> bool {
    let mut all = state.containers.iter();
    all.any(|c| c.id == id && c.phase() == ContainerPhase::Running)
}

#[cfg(test)]
mod tests {
    use polylet_wire::pleg::v1::Container;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    fn state(containers: &[(&str, ContainerPhase)]) -> PodState {
        let container = |(id, phase): &(&str, ContainerPhase)| Container {
            id: (*id).to_owned(),
            phase: (*phase).into(),
            ..Default::default()
        };
        PodState {
            containers: containers.iter().map(container).collect(),
            ..Default::default()
        }
    }

    const RUNNING: ContainerPhase = ContainerPhase::Running;
    const EXITED: ContainerPhase = ContainerPhase::Exited;

    // The times of all looks until it gives up, when a look takes no time.
    fn looks(ended: &mut Ended, state: &PodState) -> Vec<i64> {
        let mut looks = vec![0];
        while let Some(due) = ended.looked(
            state,
            at(looks[looks.len() - 1]),
            at(looks[looks.len() - 1]),
        ) {
            looks.push(due.as_millisecond());
        }
        looks
    }

    #[test]
    fn close_at_first_then_ever_rarer_then_never() {
        let state = state(&[("a", RUNNING)]);
        let mut ended = Ended::default();
        assert!(ended.add(&state, "a", at(0)));
        let looks = looks(&mut ended, &state);
        assert_eq!(looks[..8], [0, 5, 10, 15, 23, 33, 46, 64]);
        let last = looks[looks.len() - 1];
        assert!((1500..2000).contains(&last), "{looks:?}");
        assert!(looks.is_sorted());
        assert!(ended.add(&state, "a", at(last)), "told once more");
    }

    #[test]
    fn only_what_runs_is_waited_for() {
        let cases = [
            (vec![("a", RUNNING)], true),
            (vec![("a", EXITED)], false),
            (vec![("a", ContainerPhase::Created)], false),
            (vec![("b", RUNNING)], false),
            (vec![], false),
        ];
        for (containers, wanted) in cases {
            let state = state(&containers);
            let mut ended = Ended::default();
            assert_eq!(ended.add(&state, "a", at(0)), wanted, "{containers:?}");
            assert!(!ended.add(&state, "a", at(1)), "no news twice");
        }
    }

    #[test]
    fn until_the_runtime_knows_or_the_container_is_gone() {
        let both = state(&[("a", RUNNING), ("b", RUNNING)]);
        let mut ended = Ended::default();
        ended.add(&both, "a", at(0));
        ended.add(&both, "b", at(3));
        assert_eq!(ended.looked(&both, at(3), at(4)), Some(at(9)));
        let one = state(&[("a", EXITED), ("b", RUNNING)]);
        assert_eq!(ended.looked(&one, at(9), at(10)), Some(at(15)));
        assert_eq!(ended.looked(&state(&[]), at(15), at(16)), None);
    }

    #[test]
    fn looks_of_others_take_no_try() {
        let state = state(&[("a", RUNNING)]);
        let mut ended = Ended::default();
        ended.add(&state, "a", at(10));
        // Began before the process ended.
        assert_eq!(ended.looked(&state, at(8), at(12)), Some(at(10)));
        assert_eq!(ended.looked(&state, at(12), at(13)), Some(at(18)));
        for _ in 0..100 {
            assert_eq!(ended.looked(&state, at(14), at(15)), Some(at(18)));
        }
    }
}
