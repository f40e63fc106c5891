//! Static pods of one full name: the next begins when the one before it is gone. The cluster's own
//! may overlap: who deletes one by force and makes another does not wait for the grace of the first.

use polylet_wire::podconfig::v1::PodSource;

use crate::coordinator::Coordinator;
use crate::worker::Worker;

impl Coordinator {
    /// The pod of the same full name that has to be gone first.
    pub(crate) fn blocked_by(&self, uid: &str) -> Option<String> {
        let me = self.workers.get(uid)?;
        let of_cluster = |worker: &Worker| worker.source == i32::from(PodSource::Api);
        if me.begun() || me.pod.wanted.is_none() || of_cluster(me) {
            return None;
        }
        let name = me.full_name();
        let before = |other: &&Worker| {
            other.reference.uid != uid
                && !other.relic
                && !of_cluster(other)
                && other.pod.reclaimed_at.is_none()
                && other.full_name() == name
                && (other.begun() || other.arrival < me.arrival)
        };
        self.workers
            .values()
            .find(before)
            .map(|other| other.reference.uid.clone())
    }

    /// Whoever waits for a pod of its name to be gone looks again.
    pub(crate) fn wake_namesakes(&mut self, uid: &str) {
        let Some(name) = self.workers.get(uid).map(Worker::full_name) else {
            return;
        };
        let same = self
            .workers
            .values()
            .filter(|w| w.full_name() == name)
            .map(|w| w.reference.uid.clone());
        self.dirty.extend(same);
    }
}
