//! The queue of status requests: which are in flight, which wait, and which is next. One request per
//! pod at a time; changes in the meantime go into the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use polylet_model::PodUid;
use polylet_schedule::{DueQueue, TokenBucket};

use super::desired::{ApiStatus, DesiredStatus, Priority};
use super::pod_entry::{PendingRequest, PodEntry};
use super::request::{PatchResult, StatusRequest};
use crate::core::shared_status::SharedStatus;

/// Requests in flight at most.
const MAX_IN_FLIGHT: usize = 8;

/// Status requests of all pods. Times are relative to the start of the process.
#[derive(Default)]
pub(crate) struct PatchQueue {
    /// Boxed, as a map has room for twice as many values.
    pods: BTreeMap<PodUid, Box<PodEntry>>,
    waiting: WaitingPods,
    in_flight: usize,
    /// No request before this time, and then a single one, as the API server was unavailable.
    unavailable_until: Option<Duration>,
    /// The rate limit allows no request before this time.
    rate_limited_until: Duration,
}

/// Pods with a pending request and none in flight.
#[derive(Default)]
struct WaitingPods {
    /// Those whose requests were not due yet, and when they are.
    later: DueQueue<PodUid, Duration>,
    /// Those whose requests are due, in the order in which they are sent: by priority, then by due time.
    due: DueQueue<PodUid, (Priority, Duration)>,
    /// Those of both whose requests are repeats.
    repeats: BTreeSet<PodUid>,
}

impl WaitingPods {
    /// The number of those whose requests are no repeats.
    fn active(&self) -> usize {
        self.later.len() + self.due.len() - self.repeats.len()
    }

    /// The number of those beside one pod whose requests are no repeats.
    fn other_active(&self, pod: &str) -> usize {
        let waits = self.later.due(pod).is_some() || self.due.due(pod).is_some();
        self.active() - usize::from(waits && !self.repeats.contains(pod))
    }

    /// Adds a pod with its request, or replaces its former request.
    fn set(&mut self, pod: &PodUid, pending: &PendingRequest) {
        self.replace(pod, pending);
        self.later.set(pod.clone(), pending.due);
    }

    /// The same for a request that is due.
    fn set_due(&mut self, pod: &PodUid, pending: &PendingRequest) {
        self.replace(pod, pending);
        let order = (pending.priority, pending.due);
        self.due.set(pod.clone(), order);
    }

    /// Removes the former request of a pod, and records whether its new one is a repeat.
    fn replace(&mut self, pod: &PodUid, pending: &PendingRequest) {
        self.cancel(pod);
        if pending.is_repeat {
            self.repeats.insert(pod.clone());
        }
    }

    fn cancel(&mut self, pod: &str) {
        self.due.cancel(pod);
        self.later.cancel(pod);
        self.repeats.remove(pod);
    }

    /// When the first request is due; at the start of the process if one was due at the last look.
    fn next_due(&self) -> Option<Duration> {
        if self.due.is_empty() {
            self.later.next_due()
        } else {
            Some(Duration::ZERO)
        }
    }

    /// Removes and returns the pod whose request is sent next, of those in `due`.
    fn pop_first(&mut self) -> Option<PodUid> {
        let first = self.due.next_due()?;
        let pod = self.due.pop_due(first)?;
        self.repeats.remove(&pod);
        Some(pod)
    }
}

impl PatchQueue {
    /// Sets a pod's desired status; `None` once the pod is removed from this node.
    pub(crate) fn set_desired(
        &mut self,
        pod: &PodUid,
        desired: Option<DesiredStatus>,
        now: Duration,
    ) {
        let entry = self.pods.entry(pod.clone()).or_default();
        if entry.desired != desired {
            entry.desired = desired;
            entry.changed_at.get_or_insert(now);
            self.update(pod, now);
        }
        self.remove_if_unused(pod);
    }

    /// A pod's desired status.
    pub(crate) fn desired_status(&self, pod: &str) -> Option<&SharedStatus> {
        let desired = self.pods.get(pod)?.desired.as_ref();
        desired.map(|desired| &desired.status)
    }

    /// Keeps a pod's statuses as JSON alone, until they are read again. Those that are equal to `own` share
    /// it.
    pub(crate) fn drop_parsed(&mut self, pod: &str, own: &SharedStatus) {
        if let Some(entry) = self.pods.get_mut(pod) {
            entry.drop_parsed(own);
        }
    }

    /// Sets a pod's status at the API server as the watch reports it.
    pub(crate) fn set_api_status(&mut self, pod: &PodUid, api: Option<ApiStatus>, now: Duration) {
        let entry = self.pods.entry(pod.clone()).or_default();
        if entry.api == api {
            return self.remove_if_unused(pod);
        }
        let uid = |api: &Option<ApiStatus>| api.as_ref().map(|api| api.uid.clone());
        if uid(&entry.api) != uid(&api) {
            entry.patched = None;
            entry.deleted = false;
            entry.settled = None;
        }
        entry.api = api;
        entry.not_before = Duration::ZERO;
        self.update(pod, now);
        self.remove_if_unused(pod);
    }

    /// Whether the API server has everything that is published about a pod.
    #[cfg(test)]
    pub(crate) fn is_acknowledged(&self, pod: &str) -> bool {
        let entry = self.pods.get(pod);
        entry.is_some_and(|entry| {
            entry.api.is_some()
                && !entry.in_flight
                && !matches!(&entry.pending, Some(pending) if pending.action != super::desired::ApiAction::Delete)
        })
    }

    fn remove_if_unused(&mut self, pod: &str) {
        let entry = self.pods.get(pod);
        if entry.is_some_and(|e| e.desired.is_none() && e.api.is_none() && !e.in_flight) {
            self.pods.remove(pod);
            self.waiting.cancel(pod);
        }
    }

    /// Recomputes the pending request of a pod.
    fn update(&mut self, pod: &PodUid, now: Duration) {
        let Some(entry) = self.pods.get_mut(pod) else {
            return;
        };
        entry.update(self.waiting.other_active(pod), now);
        match entry.pending.as_ref().filter(|_| !entry.in_flight) {
            Some(pending) => self.waiting.set(pod, pending),
            None => self.waiting.cancel(pod),
        }
    }

    /// Whether the API server is known to be unavailable.
    pub(crate) fn is_unavailable(&self, now: Duration) -> bool {
        self.unavailable_until.is_some_and(|until| now < until)
    }

    /// Whether a request is in flight, or pending and no repeat: one pod whose status is never stored does
    /// not make the node busy.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight > 0 || self.waiting.active() > 0
    }

    /// When the next request may be due, unless something changes before.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let max_in_flight = if self.unavailable_until.is_some() {
            1
        } else {
            MAX_IN_FLIGHT
        };
        if self.in_flight >= max_in_flight {
            return None;
        }
        let due = self.waiting.next_due()?;
        Some(
            due.max(self.unavailable_until.unwrap_or_default())
                .max(self.rate_limited_until),
        )
    }

    /// The requests to send now, by priority.
    pub(crate) fn take_due(
        &mut self,
        rate_limit: &mut TokenBucket<Duration>,
        now: Duration,
    ) -> Vec<StatusRequest> {
        let mut requests = Vec::new();
        let max_in_flight = match self.unavailable_until {
            Some(until) if now < until => 0,
            Some(_) => 1,
            None => MAX_IN_FLIGHT,
        };
        if self.in_flight >= max_in_flight || now < self.rate_limited_until {
            return requests;
        }
        self.collect_due(now);
        while self.in_flight < max_in_flight
            && let Some(pod) = self.waiting.pop_first()
        {
            match self.request(&pod, rate_limit, now) {
                Ok(request) => requests.extend(request),
                Err(at) => {
                    self.rate_limited_until = at;
                    break;
                }
            }
        }
        requests
    }

    /// Orders the requests that have become due by priority.
    fn collect_due(&mut self, now: Duration) {
        while let Some(pod) = self.waiting.later.pop_due(now) {
            let entry = self.pods.get(&pod);
            match entry.and_then(|entry| entry.pending.as_ref()) {
                Some(pending) => self.waiting.set_due(&pod, pending),
                None => self.waiting.cancel(&pod),
            }
        }
    }

    /// The request of a pod that is not among the waiting ones any more, to be sent now; `None` if it is not
    /// due any more.
    ///
    /// # Errors
    /// The rate limit allows none before this time: the pod waits again.
    fn request(
        &mut self,
        pod: &PodUid,
        rate_limit: &mut TokenBucket<Duration>,
        now: Duration,
    ) -> Result<Option<StatusRequest>, Duration> {
        let Some(entry) = self.pods.get_mut(pod) else {
            return Ok(None);
        };
        // Apparent drift may be settled by now, and a batch may wait for more pods.
        if entry.depends_on_time() {
            entry.update(self.waiting.active(), now);
        }
        let (Some(request), Some(pending)) = (entry.request(pod), &entry.pending) else {
            return Ok(None);
        };
        if pending.due > now {
            self.waiting.set(pod, pending);
            return Ok(None);
        }
        if let Err(at) = rate_limit.try_take(now) {
            self.waiting.set_due(pod, pending);
            return Err(at);
        }
        entry.on_sent(now);
        self.in_flight += 1;
        Ok(Some(request))
    }

    /// The pods whose requests are due, in the order in which they are sent, computed from all pods.
    #[cfg(test)]
    pub(crate) fn all_due(&self, now: Duration) -> Vec<PodUid> {
        let due = self.pods.iter().filter_map(|(pod, entry)| {
            let pending = entry.pending.as_ref().filter(|_| !entry.in_flight)?;
            (pending.due <= now).then(|| (pending.priority, pending.due, pod.clone()))
        });
        let mut due: Vec<_> = due.collect();
        due.sort();
        due.into_iter().map(|(_, _, pod)| pod).collect()
    }

    /// The number of pods that wait with a request that is no repeat, computed from all pods, and as it is
    /// known.
    #[cfg(test)]
    pub(crate) fn active_counts(&self) -> (usize, usize) {
        let is_active = |entry: &PodEntry| {
            let pending = entry.pending.as_ref().filter(|_| !entry.in_flight);
            pending.is_some_and(|pending| !pending.is_repeat)
        };
        let counted = self.pods.values().filter(|entry| is_active(entry)).count();
        (counted, self.waiting.active())
    }

    /// Records the result of a request. After a patch: the time since the first change in it.
    pub(crate) fn on_completed(
        &mut self,
        request: &StatusRequest,
        result: PatchResult,
        now: Duration,
    ) -> Option<Duration> {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.unavailable_until = match &result {
            PatchResult::Unavailable(_) if self.is_unavailable(now) => self.unavailable_until,
            PatchResult::Unavailable(wait) => Some(now + *wait),
            PatchResult::Patched(_) | PatchResult::Deleted | PatchResult::Rejected => None,
        };
        let entry = self.pods.get_mut(&request.pod);
        let since_change = entry.and_then(|entry| entry.on_completed(request, result, now));
        self.update(&request.pod, now);
        self.remove_if_unused(&request.pod);
        since_change
    }
}
