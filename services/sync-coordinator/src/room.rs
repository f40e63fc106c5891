//! Who holds what of the node, kept up to date as pods come and go.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use polylet_model::qos::QosClass;

use crate::coordinator::Coordinator;
use crate::core::admission;
use crate::core::room::{Holder, Ledger};
use crate::core::step::{Step, StepKey};
use crate::core::view::Journal;
use crate::worker::Worker;

/// What pods of a former life of this process hold, before anybody tells of them.
pub(crate) fn remembered(entries: &BTreeMap<String, Journal>) -> Ledger {
    let mut ledger = Ledger::default();
    for (uid, journal) in entries.iter().filter(|(_, journal)| !journal.torn_down) {
        let holder = journal.demand.clone().map(|demand| Holder {
            demand,
            ending: journal.terminal.is_some(),
        });
        ledger.set(uid, holder);
    }
    ledger
}

impl Coordinator {
    /// Notes what a pod holds after its last plan; whoever waits for room looks again.
    pub(crate) fn account(&mut self, uid: &str, now: Timestamp) {
        let Some(worker) = self.workers.get(uid) else {
            return self.hold(uid, None);
        };
        let holder = holder(worker, self.node.all_heard);
        let (wants, victims) = (worker.plan.wants_room, worker.plan.victims.clone());
        self.hold(uid, holder);
        if wants {
            self.seekers.insert(uid.to_owned());
        } else {
            self.seekers.remove(uid);
        }
        for victim in victims {
            let Some(worker) = self.workers.get_mut(&victim) else {
                continue;
            };
            tracing::warn!(
                k8s.pod.uid = victim,
                k8s.pod.name = worker.reference.name,
                for_pod = uid,
                "a critical pod takes this pod's room"
            );
            worker.pod.order.get_or_insert(admission::preempted(now));
            self.dirty.insert(victim);
        }
    }

    /// The next pod to look at: in the order in which they came, so that the first has its place
    /// when there is not room for all; those that wait for room last, in the order in which they get
    /// it.
    pub(crate) fn next_dirty(&mut self) -> Option<String> {
        if self.round.is_empty() {
            for uid in std::mem::take(&mut self.dirty) {
                if self.seekers.contains(&uid) {
                    self.dirty.insert(uid);
                } else {
                    self.round.push(uid);
                }
            }
            let came = |uid: &String| Reverse(self.workers.get(uid).map(|worker| worker.arrival));
            self.round.sort_by_key(came);
        }
        if let Some(next) = self.round.pop() {
            // It may have been marked again by one that was before it in the round.
            self.dirty.remove(&next);
            return Some(next);
        }
        let rank = |uid: &&String| self.workers.get(*uid).map(rank);
        let next = self.dirty.iter().min_by_key(rank)?.clone();
        self.dirty.remove(&next);
        Some(next)
    }

    /// Notes what a pod holds.
    pub(crate) fn hold(&mut self, uid: &str, holder: Option<Holder>) {
        if self.node.room.ledger.set(uid, holder) {
            self.dirty.extend(self.seekers.iter().cloned());
        }
    }
}

/// Which of those that wait for room gets it first: pods that are to be let in, and resizes that
/// ask for no more than before; then by priority, Guaranteed before others, and the longest wait.
fn rank(worker: &Worker) -> impl Ord + use<> {
    let pod = &worker.pod;
    let (given, asked) = (pod.journal.demand.as_ref(), pod.wanted.as_ref());
    let grows = given.zip(asked).is_some_and(|(given, asked)| {
        let more = |name| asked.demand.of_resource(name) > given.of_resource(name);
        more("cpu") || more("memory")
    });
    let demand = asked.map(|wanted| &wanted.demand);
    let priority = demand.and_then(|demand| demand.priority).unwrap_or(0);
    let guaranteed = demand.is_some_and(|demand| demand.qos == QosClass::Guaranteed);
    let since = pod.resize_since.unwrap_or(Timestamp::MAX);
    (grows, Reverse(priority), Reverse(guaranteed), since)
}

/// What a pod holds of the node: from when it is let in until nothing of it is left,
/// or its source has dropped it.
fn holder(worker: &Worker, all_heard: bool) -> Option<Holder> {
    let pod = &worker.pod;
    let orphan = pod.wanted.is_none() && !pod.listed && all_heard;
    let dropped = pod.leaving && !pod.listed;
    if pod.reclaimed_at.is_some() || pod.journal.torn_down || orphan || dropped {
        return None;
    }
    let demand = pod.journal.demand.clone().or_else(|| {
        // Taken over from another agent, or from a build that did not write it down.
        let runs = pod.journalled || pod.observed.as_ref().is_some_and(|o| !o.is_empty());
        let wanted = pod.wanted.as_ref()?;
        (runs && pod.journal.terminal.is_none()).then(|| Arc::clone(&wanted.demand))
    })?;
    // A resize on its way to the disk: the larger of both is held.
    let growing = pod
        .flights
        .get(&StepKey::Journal)
        .map(|flight| &flight.step);
    let demand = match growing {
        Some(Step::Allocate { demand: asked, .. }) => Arc::new(demand.or_more(asked)),
        _ => demand,
    };
    let ending = pod.leaving || pod.order.is_some() || pod.journal.terminal.is_some();
    Some(Holder { demand, ending })
}
