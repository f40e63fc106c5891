//! The running containers whose logs are rotated, as last sent to the log rotator.

use std::collections::BTreeMap;
use std::sync::Arc;

use polylet_model::PodUid;
use polylet_wire::common::v1::PodRef;

use crate::core::runtime_state::{ContainerRecord, ContainerState, PodRuntimeState};
use crate::runtime::logs::{ContainerLog, RunningContainers};

/// IDs of the running containers by pod UID.
#[derive(Default)]
pub(crate) struct LogTargets {
    running: BTreeMap<PodUid, Vec<String>>,
}

impl LogTargets {
    /// Updates the containers of a pod; returns them if they have changed. `None` clears a pod that
    /// is forgotten.
    pub(crate) fn update(
        &mut self,
        pod: &PodRef,
        observed: Option<&PodRuntimeState>,
    ) -> Option<RunningContainers> {
        let containers = observed.map_or(&[][..], |o| &o.containers);
        let running = || {
            let running = |c: &&ContainerRecord| c.state == ContainerState::Running;
            containers.iter().filter(running)
        };
        let known = self
            .running
            .get(pod.uid.as_str())
            .map_or(&[][..], Vec::as_slice);
        if running().map(|c| &c.id).eq(known) {
            return None;
        }
        let reference = Arc::new(pod.clone());
        let log = |container: &ContainerRecord| ContainerLog {
            pod: Arc::clone(&reference),
            container: container.name.clone(),
            attempt: container.attempt,
        };
        let logs: Vec<_> = running().map(|c| (c.id.clone(), log(c))).collect();
        if logs.is_empty() {
            self.running.remove(pod.uid.as_str());
        } else {
            let ids = logs.iter().map(|(id, _)| id.clone()).collect();
            self.running.insert(pod.uid.as_str().into(), ids);
        }
        let uid = pod.uid.clone();
        Some(RunningContainers { uid, logs })
    }
}
