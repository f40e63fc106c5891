//! The desired state of world: the volumes that the coordinator declares for each pod, and the
//! rules of its declarations.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use polylet_model::PodUid;
use thiserror::Error;

use super::blocked::Blocked;
use super::layout::VolumeKey;
use super::mount_plan::MountPlan;
use super::pod::PodName;
use super::spec::PodVolumeSpec;

/// The desired volumes of one pod.
#[derive(Debug, Clone, PartialEq)]
pub enum DesiredVolumes {
    /// These volumes, each with its plan or why it is blocked.
    Present(BTreeMap<VolumeKey, Result<Arc<MountPlan>, Blocked>>),
    /// No volumes and no directory.
    Absent,
    /// Not declared: nothing is changed.
    Unknown,
}

/// Why a declaration is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DeclareError {
    /// Another client incarnation has declared since.
    #[error("client {0:?} has been superseded by another")]
    Superseded(String),
    /// A later declaration of the pod has been received.
    #[error("pod {uid}: sequence {given} is stale, the last is {last}")]
    Stale {
        /// The uid of the pod.
        uid: PodUid,
        /// The sequence of the declaration.
        given: u64,
        /// The last sequence received.
        last: u64,
    },
    /// Another declaration had the same sequence.
    #[error("pod {uid}: sequence {sequence} conflicts with an earlier declaration")]
    Conflict {
        /// The uid of the pod.
        uid: PodUid,
        /// The sequence.
        sequence: u64,
    },
    /// Declarations have been lost.
    #[error("client declared {given} pods, received {counted}")]
    CountMismatch {
        /// The count of the client.
        given: u32,
        /// The count of declarations received from it.
        counted: u32,
    },
}

/// What a client declares of a pod.
#[derive(Debug, Clone, PartialEq)]
pub enum Declaration {
    /// Its volumes are needed.
    Applied(Arc<PodVolumeSpec>),
    /// Its containers are gone for good. The last spec is kept for the names of its volumes.
    Released(Option<Arc<PodVolumeSpec>>),
}

/// The last declaration of one pod.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredPod {
    /// The pod.
    pub pod: PodName,
    /// The sequence of the declaration.
    pub sequence: u64,
    /// The declaration.
    pub declaration: Declaration,
    /// Declared by the current client incarnation.
    current: bool,
}

impl DesiredPod {
    /// The volumes, unless the pod has been released.
    pub fn applied(&self) -> Option<&Arc<PodVolumeSpec>> {
        match &self.declaration {
            Declaration::Applied(spec) => Some(spec),
            Declaration::Released(_) => None,
        }
    }

    /// The last volumes declared, even if the pod has been released.
    pub fn last_spec(&self) -> Option<&Arc<PodVolumeSpec>> {
        match &self.declaration {
            Declaration::Applied(spec) => Some(spec),
            Declaration::Released(spec) => spec.as_ref(),
        }
    }
}

/// How many superseded clients and removed pods are remembered, to refuse their late declarations.
const MAX_REMEMBERED: usize = 1024;

/// The declarations of all pods.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DesiredStateOfWorld {
    client_id: Option<String>,
    superseded: VecDeque<String>,
    pods: BTreeMap<PodUid, DesiredPod>,
    removed: VecDeque<(PodUid, u64)>,
    complete: bool,
}

impl DesiredStateOfWorld {
    /// The last declaration of a pod.
    pub fn get(&self, uid: &str) -> Option<&DesiredPod> {
        self.pods.get(uid)
    }

    /// The volumes of a pod, unless it has been released.
    pub fn applied(&self, uid: &str) -> Option<&Arc<PodVolumeSpec>> {
        self.get(uid)?.applied()
    }

    /// The uids of all declared pods.
    pub fn uids(&self) -> impl Iterator<Item = &PodUid> {
        self.pods.keys()
    }

    /// Whether the volumes of a pod may be torn down: it has been released, or everything has been
    /// declared without it.
    pub fn may_tear_down(&self, uid: &str) -> bool {
        match self.pods.get(uid) {
            Some(pod) if matches!(pod.declaration, Declaration::Released(_)) => true,
            Some(pod) => self.complete && !pod.current,
            None => self.complete,
        }
    }

    /// Declares the volumes of a pod; returns whether this is a change.
    pub fn apply(
        &mut self,
        client_id: &str,
        sequence: u64,
        pod: PodName,
        spec: Arc<PodVolumeSpec>,
    ) -> Result<bool, DeclareError> {
        self.declare(client_id, sequence, pod, |present| match present {
            Some(Declaration::Applied(present)) if *present == spec => None,
            _ => Some(Declaration::Applied(spec)),
        })
    }

    /// Declares that the containers of a pod are gone for good; returns whether this is a change.
    pub fn release(
        &mut self,
        client_id: &str,
        sequence: u64,
        pod: PodName,
    ) -> Result<bool, DeclareError> {
        self.declare(client_id, sequence, pod, |present| match present {
            Some(Declaration::Released(_)) => None,
            Some(Declaration::Applied(spec)) => Some(Declaration::Released(Some(spec.clone()))),
            None => Some(Declaration::Released(None)),
        })
    }

    fn declare(
        &mut self,
        client_id: &str,
        sequence: u64,
        pod: PodName,
        change: impl FnOnce(Option<&Declaration>) -> Option<Declaration>,
    ) -> Result<bool, DeclareError> {
        self.register_client(client_id)?;
        let uid = pod.uid.clone();
        let present = self.pods.get(&uid);
        let changed = change(present.map(|present| &present.declaration));
        // Sequences of different client incarnations are not comparable.
        if let Some(present) = present.filter(|present| present.current) {
            let last = present.sequence;
            if sequence < last {
                return Err(DeclareError::Stale {
                    uid,
                    given: sequence,
                    last,
                });
            }
            if sequence == last && changed.is_some() {
                return Err(DeclareError::Conflict { uid, sequence });
            }
        }
        let removed = self.removed.iter().find(|(removed, _)| *removed == uid);
        if let Some((_, last)) = removed.filter(|(_, last)| sequence <= *last) {
            // A repeated release is still true.
            if present.is_none() && matches!(changed, Some(Declaration::Released(None))) {
                return Ok(false);
            }
            return Err(DeclareError::Stale {
                uid,
                given: sequence,
                last: *last,
            });
        }
        let is_change = changed.is_some();
        let declaration = changed.or_else(|| present.map(|present| present.declaration.clone()));
        if let Some(declaration) = declaration {
            let desired = DesiredPod {
                pod,
                sequence,
                declaration,
                current: true,
            };
            self.pods.insert(uid, desired);
        }
        Ok(is_change)
    }

    /// Ends a full declaration of `given` pods.
    pub fn complete(&mut self, client_id: &str, given: u32) -> Result<(), DeclareError> {
        self.register_client(client_id)?;
        let applied = |pod: &&DesiredPod| pod.current && pod.applied().is_some();
        let counted = self.pods.values().filter(applied).count();
        let counted = u32::try_from(counted).unwrap_or(u32::MAX);
        if counted != given {
            return Err(DeclareError::CountMismatch { given, counted });
        }
        self.complete = true;
        Ok(())
    }

    /// Removes a pod of which nothing is left. Late declarations of it are refused.
    pub fn remove(&mut self, uid: &str) {
        let Some((uid, pod)) = self.pods.remove_entry(uid) else {
            return;
        };
        if pod.current {
            self.removed.push_back((uid, pod.sequence));
            if self.removed.len() > MAX_REMEMBERED {
                self.removed.pop_front();
            }
        }
    }

    fn register_client(&mut self, client_id: &str) -> Result<(), DeclareError> {
        if self.client_id.as_deref() == Some(client_id) {
            return Ok(());
        }
        if self.superseded.iter().any(|old| old == client_id) {
            return Err(DeclareError::Superseded(client_id.to_owned()));
        }
        if let Some(before) = self.client_id.replace(client_id.to_owned()) {
            self.superseded.push_back(before);
            if self.superseded.len() > MAX_REMEMBERED {
                self.superseded.pop_front();
            }
        }
        // Earlier declarations stay in force, but nothing is torn down for not being repeated
        // until the new client has declared everything.
        self.pods.values_mut().for_each(|pod| pod.current = false);
        self.removed.clear();
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

    fn spec(volumes: usize) -> Arc<PodVolumeSpec> {
        let volume = |n| crate::core::spec::VolumeSpec {
            name: format!("v{n}"),
            source: crate::core::spec::VolumeSource::Unsupported(
                crate::core::blocked::Blocked::Failed("no".into()),
            ),
        };
        Arc::new(PodVolumeSpec {
            volumes: (0..volumes).map(volume).collect(),
        })
    }

    #[test]
    fn repeats_are_accepted_and_stale_declarations_refused() {
        let mut world = DesiredStateOfWorld::default();
        assert_eq!(world.apply("d", 2, pod("a"), spec(1)), Ok(true));
        assert_eq!(world.apply("d", 2, pod("a"), spec(1)), Ok(false));
        assert_eq!(world.apply("d", 3, pod("a"), spec(1)), Ok(false));
        assert!(matches!(
            world.apply("d", 2, pod("a"), spec(1)),
            Err(DeclareError::Stale { .. })
        ));
        assert!(matches!(
            world.apply("d", 3, pod("a"), spec(2)),
            Err(DeclareError::Conflict { .. })
        ));
        assert_eq!(world.apply("d", 4, pod("a"), spec(2)), Ok(true));
        assert_eq!(world.release("d", 5, pod("a")), Ok(true));
        assert!(matches!(
            world.apply("d", 4, pod("a"), spec(2)),
            Err(DeclareError::Stale { .. })
        ));
    }

    #[test]
    fn late_declarations_of_a_removed_pod_are_refused() {
        let mut world = DesiredStateOfWorld::default();
        world.apply("d", 1, pod("a"), spec(1)).unwrap();
        world.release("d", 2, pod("a")).unwrap();
        world.remove("a");
        assert!(matches!(
            world.apply("d", 1, pod("a"), spec(1)),
            Err(DeclareError::Stale { .. })
        ));
        assert_eq!(world.release("d", 2, pod("a")), Ok(false));
        assert_eq!(world.apply("d", 3, pod("a"), spec(1)), Ok(true));
    }

    #[test]
    fn a_new_client_takes_over_and_nothing_is_torn_down_before_it_has_completed() {
        let mut world = DesiredStateOfWorld::default();
        world.apply("d", 7, pod("a"), spec(1)).unwrap();
        world.apply("d", 8, pod("b"), spec(1)).unwrap();
        world.complete("d", 2).unwrap();
        assert!(world.may_tear_down("orphan") && !world.may_tear_down("a"));
        world.apply("e", 1, pod("a"), spec(1)).unwrap();
        assert_eq!(
            world.apply("d", 9, pod("a"), spec(2)),
            Err(DeclareError::Superseded("d".into()))
        );
        assert!(!world.may_tear_down("orphan") && !world.may_tear_down("b"));
        let short = world.complete("e", 2);
        assert_eq!(
            short,
            Err(DeclareError::CountMismatch {
                given: 2,
                counted: 1
            })
        );
        assert!(!world.may_tear_down("b"));
        world.complete("e", 1).unwrap();
        assert!(
            world.may_tear_down("b") && world.may_tear_down("orphan") && !world.may_tear_down("a")
        );
    }
}
