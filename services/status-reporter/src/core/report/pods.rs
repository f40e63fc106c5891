//! Every pod's report: what is under way, what waits, and what comes next. One request a pod at a
//! time; what changes meanwhile goes into the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;

use super::pod::Pod;
use super::want::{Holds, Says, Step};
use crate::core::bucket::{Bucket, Moment};

/// So many requests at once.
const WORKERS: usize = 8;

/// A request to be made now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Job {
    /// The pod here.
    pub(crate) pod: String,
    /// The pod there.
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) step: Step,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    /// Patched; the status as the API server holds it now.
    Patched(Arc<PodStatus>),
    /// Deleted, or on its way out.
    Deleted,
    /// The API server would not take it: the pod is gone or another one there, which the watch will
    /// tell; or something else is amiss with this one.
    Refused,
    /// The API server is away or has too much to do: everybody waits so long.
    Away(Duration),
}

/// All of them.
#[derive(Default)]
pub(crate) struct Pods {
    pods: BTreeMap<String, Pod>,
    /// Those with something to do and nothing under way.
    waiting: BTreeSet<String>,
    under_way: usize,
    /// The API server is away: until when nobody asks, and then only one.
    away_until: Option<Moment>,
    /// The rate allows no more before this.
    rate_until: Moment,
}

impl Pods {
    /// What is said of a pod, or that it is gone from here.
    pub(crate) fn say(&mut self, pod: &str, says: Option<Says>, now: Moment) {
        let entry = self.pods.entry(pod.to_owned()).or_default();
        if entry.says != says {
            entry.says = says;
            self.look(pod, now);
        }
        self.forget(pod);
    }

    /// What the watch says that the cluster holds of a pod.
    pub(crate) fn hold(&mut self, pod: &str, holds: Option<Holds>, now: Moment) {
        let entry = self.pods.entry(pod.to_owned()).or_default();
        if entry.holds == holds {
            return self.forget(pod);
        }
        let uid = |holds: &Option<Holds>| holds.as_ref().map(|holds| holds.uid.clone());
        if uid(&entry.holds) != uid(&holds) {
            entry.answered = None;
            entry.deleted = false;
            entry.settled = None;
        }
        entry.holds = holds;
        entry.not_before = Moment::ZERO;
        self.look(pod, now);
        self.forget(pod);
    }

    /// Whether the cluster knows all that is said of a pod.
    #[cfg(test)]
    pub(crate) fn is_acknowledged(&self, pod: &str) -> bool {
        let entry = self.pods.get(pod);
        entry.is_some_and(|entry| {
            entry.holds.is_some()
                && !entry.under_way
                && !matches!(&entry.want, Some(want) if want.step != Step::Delete)
        })
    }

    fn forget(&mut self, pod: &str) {
        let entry = self.pods.get(pod);
        if entry.is_some_and(|e| e.says.is_none() && e.holds.is_none() && !e.under_way) {
            self.pods.remove(pod);
            self.waiting.remove(pod);
        }
    }

    /// Works out anew what a pod wants.
    fn look(&mut self, pod: &str, now: Moment) {
        let Some(entry) = self.pods.get_mut(pod) else {
            return;
        };
        entry.look(others(&self.waiting, pod), now);
        if entry.want.is_some() && !entry.under_way {
            self.waiting.insert(pod.to_owned());
        } else {
            self.waiting.remove(pod);
        }
    }

    /// Whether the API server is known to be away.
    pub(crate) fn is_away(&self, now: Moment) -> bool {
        self.away_until.is_some_and(|until| now < until)
    }

    /// Whether a request is under way, or something waits for one.
    pub(crate) fn is_busy(&self) -> bool {
        self.under_way > 0 || !self.waiting.is_empty()
    }

    /// When something may be due, if nothing is heard until then.
    pub(crate) fn next_due(&self) -> Option<Moment> {
        let workers = if self.away_until.is_some() {
            1
        } else {
            WORKERS
        };
        if self.under_way >= workers {
            return None;
        }
        let wants = self.waiting.iter().filter_map(|pod| self.pods.get(pod));
        let due = wants.filter_map(|pod| Some(pod.want.as_ref()?.at)).min()?;
        Some(
            due.max(self.away_until.unwrap_or_default())
                .max(self.rate_until),
        )
    }

    /// The requests to make now, those that others wait for first.
    pub(crate) fn due(&mut self, bucket: &mut Bucket, now: Moment) -> Vec<Job> {
        let mut jobs = Vec::new();
        let workers = match self.away_until {
            Some(until) if now < until => 0,
            Some(_) => 1,
            None => WORKERS,
        };
        for pod in self.ready(now) {
            if self.under_way >= workers {
                break;
            }
            let Some(entry) = self.pods.get_mut(&pod) else {
                continue;
            };
            // What looked like drift may have been settled since.
            entry.look(others(&self.waiting, &pod), now);
            let Some(job) = entry.job(&pod) else {
                self.waiting.remove(&pod);
                continue;
            };
            if entry.want.as_ref().is_some_and(|want| want.at > now) {
                continue;
            }
            if let Err(at) = bucket.take(now) {
                self.rate_until = at;
                break;
            }
            entry.begin(now);
            self.waiting.remove(&pod);
            self.under_way += 1;
            jobs.push(job);
        }
        jobs
    }

    fn ready(&self, now: Moment) -> Vec<String> {
        let wants = self.waiting.iter().filter_map(|pod| {
            let want = self.pods.get(pod)?.want.as_ref()?;
            (want.at <= now).then(|| (want.haste, want.at, pod.clone()))
        });
        let mut wants: Vec<_> = wants.collect();
        wants.sort();
        wants.into_iter().map(|(_, _, pod)| pod).collect()
    }

    /// A request ended.
    pub(crate) fn ended(&mut self, job: &Job, end: End, now: Moment) {
        self.under_way = self.under_way.saturating_sub(1);
        self.away_until = match &end {
            End::Away(_) if self.is_away(now) => self.away_until,
            End::Away(wait) => Some(now + *wait),
            End::Patched(_) | End::Deleted | End::Refused => None,
        };
        if let Some(entry) = self.pods.get_mut(&job.pod) {
            entry.ended(job, end, now);
        }
        self.look(&job.pod, now);
        self.forget(&job.pod);
    }
}

/// How many wait beside one.
fn others(waiting: &BTreeSet<String>, pod: &str) -> usize {
    waiting.len() - usize::from(waiting.contains(pod))
}
