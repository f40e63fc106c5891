//! Which containers run, as the keeper of logs was told last.

use std::collections::BTreeMap;
use std::sync::Arc;

use polylet_wire::common::v1::PodRef;

use crate::act::logs::{Log, Running};
use crate::core::observed::{Observed, Phase};

/// What was told last, by pod.
#[derive(Default)]
pub(crate) struct Logs {
    told: BTreeMap<String, Vec<String>>,
}

impl Logs {
    /// The runtime holds this of a pod now; nothing once the pod is forgotten. What is to be told,
    /// if that is news.
    pub(crate) fn observed(
        &mut self,
        pod: &PodRef,
        observed: Option<&Observed>,
    ) -> Option<Running> {
        let containers = observed.map_or(&[][..], |o| &o.containers);
        let running = || containers.iter().filter(|c| c.phase == Phase::Running);
        let told = self.told.get(&pod.uid).map_or(&[][..], Vec::as_slice);
        if running().map(|c| &c.id).eq(told) {
            return None;
        }
        let reference = Arc::new(pod.clone());
        let log = |container: &crate::core::observed::SeenContainer| Log {
            pod: Arc::clone(&reference),
            container: container.name.clone(),
            attempt: container.attempt,
        };
        let logs: Vec<_> = running().map(|c| (c.id.clone(), log(c))).collect();
        if logs.is_empty() {
            self.told.remove(&pod.uid);
        } else {
            let ids = logs.iter().map(|(id, _)| id.clone()).collect();
            self.told.insert(pod.uid.clone(), ids);
        }
        let uid = pod.uid.clone();
        Some(Running { uid, logs })
    }
}
