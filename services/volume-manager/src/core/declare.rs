//! Who may declare what: the rules of declarers and sequences.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use thiserror::Error;

use super::spec::{PodName, PodSpec};

/// Why a declaration is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Another declarer has come since.
    #[error("declarer {0:?} has been followed by another")]
    Followed(String),
    /// A later declaration of the pod is known.
    #[error("pod {uid}: sequence {given} has passed; {last} is known")]
    Passed {
        /// The pod.
        uid: String,
        /// What came.
        given: u64,
        /// What came before it.
        last: u64,
    },
    /// The same sequence said something else before.
    #[error("pod {uid}: sequence {sequence} said something else before")]
    Changed {
        /// The pod.
        uid: String,
        /// The sequence.
        sequence: u64,
    },
    /// Something was lost on the way.
    #[error("{given} pods were declared, {counted} are known")]
    Miscounted {
        /// What the declarer counted.
        given: u32,
        /// What is known from it.
        counted: u32,
    },
}

/// What is wished for a pod.
#[derive(Debug, Clone, PartialEq)]
pub enum Wish {
    /// Its volumes shall be there.
    Keep(Arc<PodSpec>),
    /// Its containers are gone for good. What it had is kept for its names.
    Release(Option<Arc<PodSpec>>),
}

/// The last declaration of one pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Declared {
    /// The pod.
    pub pod: PodName,
    /// The declaration's sequence.
    pub sequence: u64,
    /// What it wishes.
    pub wish: Wish,
    /// It comes from the declarer that counts now.
    current: bool,
}

/// How many former declarers and forgotten pods are remembered, to refuse what comes late.
const REMEMBERED: usize = 1024;

/// All declarations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Declarations {
    declarer: Option<String>,
    followed: VecDeque<String>,
    pods: BTreeMap<String, Declared>,
    forgotten: VecDeque<(String, u64)>,
    complete: bool,
}

impl Declarations {
    /// The last declaration of a pod, while it is remembered.
    pub fn get(&self, uid: &str) -> Option<&Declared> {
        self.pods.get(uid)
    }

    /// All declared pods.
    pub fn uids(&self) -> impl Iterator<Item = &String> {
        self.pods.keys()
    }

    /// Whether the pod's volumes may be taken away: it was released, or all was declared without it.
    pub fn may_destroy(&self, uid: &str) -> bool {
        match self.pods.get(uid) {
            Some(declared) if matches!(declared.wish, Wish::Release(_)) => true,
            Some(declared) => self.complete && !declared.current,
            None => self.complete,
        }
    }

    /// Declares what a pod needs; `false` if that is known already.
    pub fn apply(
        &mut self,
        declarer: &str,
        sequence: u64,
        pod: PodName,
        spec: Arc<PodSpec>,
    ) -> Result<bool, Refusal> {
        self.declare(declarer, sequence, pod, |before| match before {
            Some(Wish::Keep(known)) if *known == spec => None,
            _ => Some(Wish::Keep(spec)),
        })
    }

    /// Declares that a pod's containers are gone for good; `false` if that is known already.
    pub fn release(
        &mut self,
        declarer: &str,
        sequence: u64,
        pod: PodName,
    ) -> Result<bool, Refusal> {
        self.declare(declarer, sequence, pod, |before| match before {
            Some(Wish::Release(_)) => None,
            Some(Wish::Keep(spec)) => Some(Wish::Release(Some(spec.clone()))),
            None => Some(Wish::Release(None)),
        })
    }

    fn declare(
        &mut self,
        declarer: &str,
        sequence: u64,
        pod: PodName,
        change: impl FnOnce(Option<&Wish>) -> Option<Wish>,
    ) -> Result<bool, Refusal> {
        self.heard_from(declarer)?;
        let uid = pod.uid.clone();
        let before = self.pods.get(&uid);
        let changed = change(before.map(|declared| &declared.wish));
        // Sequences of different declarers cannot be compared.
        if let Some(before) = before.filter(|declared| declared.current) {
            let last = before.sequence;
            if sequence < last {
                return Err(Refusal::Passed {
                    uid,
                    given: sequence,
                    last,
                });
            }
            if sequence == last && changed.is_some() {
                return Err(Refusal::Changed { uid, sequence });
            }
        }
        let forgotten = self.forgotten.iter().find(|(known, _)| *known == uid);
        if let Some((_, last)) = forgotten.filter(|(_, last)| sequence <= *last) {
            // A release that is heard again is still true.
            if before.is_none() && matches!(changed, Some(Wish::Release(None))) {
                return Ok(false);
            }
            return Err(Refusal::Passed {
                uid,
                given: sequence,
                last: *last,
            });
        }
        let is_new = changed.is_some();
        let wish = changed.or_else(|| before.map(|declared| declared.wish.clone()));
        if let Some(wish) = wish {
            self.pods.insert(
                uid,
                Declared {
                    pod,
                    sequence,
                    wish,
                    current: true,
                },
            );
        }
        Ok(is_new)
    }

    /// Ends a full declaration.
    pub fn complete(&mut self, declarer: &str, given: u32) -> Result<(), Refusal> {
        self.heard_from(declarer)?;
        let kept =
            |declared: &&Declared| declared.current && matches!(declared.wish, Wish::Keep(_));
        let counted = self.pods.values().filter(kept).count();
        let counted = u32::try_from(counted).unwrap_or(u32::MAX);
        if counted != given {
            return Err(Refusal::Miscounted { given, counted });
        }
        self.complete = true;
        Ok(())
    }

    /// Nothing of the pod is left. Late declarations of it are refused.
    pub fn forget(&mut self, uid: &str) {
        if let Some(declared) = self.pods.remove(uid).filter(|declared| declared.current) {
            self.forgotten
                .push_back((uid.to_owned(), declared.sequence));
            if self.forgotten.len() > REMEMBERED {
                self.forgotten.pop_front();
            }
        }
    }

    fn heard_from(&mut self, declarer: &str) -> Result<(), Refusal> {
        if self.declarer.as_deref() == Some(declarer) {
            return Ok(());
        }
        if self.followed.iter().any(|known| known == declarer) {
            return Err(Refusal::Followed(declarer.to_owned()));
        }
        if let Some(before) = self.declarer.replace(declarer.to_owned()) {
            self.followed.push_back(before);
            if self.followed.len() > REMEMBERED {
                self.followed.pop_front();
            }
        }
        // What the one before said stands, but nothing may be destroyed for not being said again
        // until this one has said all.
        self.pods
            .values_mut()
            .for_each(|declared| declared.current = false);
        self.forgotten.clear();
        self.complete = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str) -> PodName {
        PodName {
            uid: uid.into(),
            ..PodName::default()
        }
    }

    fn spec(volumes: usize) -> Arc<PodSpec> {
        let volume = |n| super::super::spec::Volume {
            name: format!("v{n}"),
            wants: super::super::spec::Wants::Refused("no".into()),
        };
        Arc::new(PodSpec {
            volumes: (0..volumes).map(volume).collect(),
        })
    }

    #[test]
    fn repeating_is_free_and_the_past_is_refused() {
        let mut all = Declarations::default();
        assert_eq!(all.apply("d", 2, pod("a"), spec(1)), Ok(true));
        assert_eq!(all.apply("d", 2, pod("a"), spec(1)), Ok(false));
        assert_eq!(all.apply("d", 3, pod("a"), spec(1)), Ok(false));
        assert!(matches!(
            all.apply("d", 2, pod("a"), spec(1)),
            Err(Refusal::Passed { .. })
        ));
        assert!(matches!(
            all.apply("d", 3, pod("a"), spec(2)),
            Err(Refusal::Changed { .. })
        ));
        assert_eq!(all.apply("d", 4, pod("a"), spec(2)), Ok(true));
        assert_eq!(all.release("d", 5, pod("a")), Ok(true));
        assert!(matches!(
            all.apply("d", 4, pod("a"), spec(2)),
            Err(Refusal::Passed { .. })
        ));
    }

    #[test]
    fn what_is_gone_does_not_come_back_by_a_late_call() {
        let mut all = Declarations::default();
        all.apply("d", 1, pod("a"), spec(1)).unwrap();
        all.release("d", 2, pod("a")).unwrap();
        all.forget("a");
        assert!(matches!(
            all.apply("d", 1, pod("a"), spec(1)),
            Err(Refusal::Passed { .. })
        ));
        assert_eq!(all.release("d", 2, pod("a")), Ok(false));
        assert_eq!(all.apply("d", 3, pod("a"), spec(1)), Ok(true));
    }

    #[test]
    fn a_follower_takes_over_and_nothing_goes_before_it_has_said_all() {
        let mut all = Declarations::default();
        all.apply("d", 7, pod("a"), spec(1)).unwrap();
        all.apply("d", 8, pod("b"), spec(1)).unwrap();
        all.complete("d", 2).unwrap();
        assert!(all.may_destroy("stray") && !all.may_destroy("a"));
        all.apply("e", 1, pod("a"), spec(1)).unwrap();
        assert_eq!(
            all.apply("d", 9, pod("a"), spec(2)),
            Err(Refusal::Followed("d".into()))
        );
        assert!(!all.may_destroy("stray") && !all.may_destroy("b"));
        let short = all.complete("e", 2);
        assert_eq!(
            short,
            Err(Refusal::Miscounted {
                given: 2,
                counted: 1
            })
        );
        assert!(!all.may_destroy("b"));
        all.complete("e", 1).unwrap();
        assert!(all.may_destroy("b") && all.may_destroy("stray") && !all.may_destroy("a"));
    }
}
