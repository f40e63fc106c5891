//! Every pod's report: what is under way, what waits, and what comes next. One request a pod at a
//! time; what changes meanwhile goes into the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use polylet_model::hash::fnv1a_32;

use super::want::{Haste, Holds, Says, Step, removable, wanted};
use crate::core::bucket::{Bucket, Moment};

/// How long steps on the way wait for others to go with them, and how much longer for each other
/// pod that waits too: when many start at once each takes longer, and what it says on the way costs
/// the others time.
const GATHER: Duration = Duration::from_millis(400);
const GATHER_MORE: Duration = Duration::from_millis(50);
const GATHER_MOST: Duration = Duration::from_secs(4);
/// And after one was told the next of the same pod waits so long: a start is told once on the way,
/// however slow the node is.
const GATHER_APART: Duration = Duration::from_secs(2);
/// How long the watch may take to tell what the API server has answered.
const ECHO: Duration = Duration::from_secs(3);
/// What somebody else has written over is set right at once, and then no more often than this.
const REPAIR: Duration = Duration::from_secs(10);
/// The same, where the API server does not keep what it is told (it is older, or somebody behind it
/// knows better): twice as long each time, so often.
const MOST_DOUBLED: u32 = 6;
/// So many requests at once.
const WORKERS: usize = 8;
/// After a refusal a pod waits so long, and twice as long each time, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

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
    Patched(Box<PodStatus>),
    /// Deleted, or on its way out.
    Deleted,
    /// The API server would not take it: the pod is gone or another one there, which the watch will
    /// tell; or something else is amiss with this one.
    Refused,
    /// The API server is away or has too much to do: everybody waits so long.
    Away(Duration),
}

#[derive(Default)]
struct Pod {
    says: Option<Says>,
    holds: Option<Holds>,
    /// What the API server answered, while the watch has not told it.
    answered: Option<(PodStatus, Moment)>,
    want: Option<Want>,
    under_way: bool,
    deleted: bool,
    failures: u32,
    not_before: Moment,
    /// When the oldest change that still gathers came.
    gathers_since: Option<Moment>,
    /// When a step on the way was told last.
    gathered_at: Option<Moment>,
    /// What was said when the cluster last knew everything.
    settled: Option<Says>,
    repaired_at: Option<Moment>,
    /// What was said when the request under way began.
    sent: Option<Says>,
    /// So many times in a row the API server took a patch and did not make it so.
    in_vain: u32,
}

struct Want {
    step: Step,
    haste: Haste,
    at: Moment,
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
        entry.look(self.waiting.len(), now);
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
            entry.look(self.waiting.len(), now);
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

impl Pod {
    fn look(&mut self, waiting: usize, now: Moment) {
        let before = self.want.take();
        let (Some(says), Some(holds)) = (&self.says, &self.holds) else {
            self.gathers_since = None;
            return;
        };
        // An API server that does not keep a field, since it is older, never knows everything.
        let in_vain = self.in_vain > 0;
        let wanted = |holds: &Holds| match in_vain && removable(says, holds) {
            true => Some((Step::Delete, Haste::First)),
            false => wanted(says, holds),
        };
        let mut of_watch = wanted(holds);
        if let Some((status, until)) = &self.answered {
            let known = Holds {
                uid: holds.uid.clone(),
                status: status.clone(),
            };
            let settled = of_watch.is_none() || *status == holds.status;
            if settled || now >= *until {
                self.answered = None;
            } else {
                let told = of_watch.take();
                of_watch = wanted(&known);
                if of_watch.is_none() && told.is_some() {
                    // Either the watch is behind, or somebody has written since: seen then.
                    let (step, haste) = told.unwrap_or((Step::Delete, Haste::Gather));
                    self.want = Some(Want {
                        step,
                        haste,
                        at: *until,
                    });
                    return;
                }
            }
        }
        let Some((step, haste)) =
            of_watch.filter(|(step, _)| *step != Step::Delete || !self.deleted)
        else {
            self.gathers_since = None;
            if self.answered.is_none() {
                self.settled = Some(says.clone());
            }
            return;
        };
        let gathers = haste == Haste::Gather;
        let mut at = now;
        if gathers {
            at = *self.gathers_since.get_or_insert(now) + gather(waiting);
            let apart = self.gathered_at.map(|told| told + GATHER_APART);
            at = at.max(apart.unwrap_or_default());
        }
        let drift = self.settled.as_ref() == Some(says) && step != Step::Delete;
        if let Some(repaired_at) = self.repaired_at.filter(|_| drift) {
            at = at.max(repaired_at + REPAIR * (1 << self.in_vain.min(MOST_DOUBLED)));
        }
        // What waits already does not wait longer for being looked at again.
        if let Some(before) = before.filter(|before| before.step == step) {
            at = at.min(before.at);
        }
        let at = at.max(self.not_before);
        self.want = Some(Want { step, haste, at });
    }

    fn job(&self, pod: &str) -> Option<Job> {
        let (says, holds, want) = (
            self.says.as_ref()?,
            self.holds.as_ref()?,
            self.want.as_ref()?,
        );
        Some(Job {
            pod: pod.to_owned(),
            uid: holds.uid.clone(),
            namespace: says.namespace.clone(),
            name: says.name.clone(),
            step: want.step.clone(),
        })
    }

    fn begin(&mut self, now: Moment) {
        let want = self.want.take();
        if matches!(&want, Some(want) if want.haste == Haste::Gather) {
            self.gathered_at = Some(now);
        }
        let patches = want.is_some_and(|want| want.step != Step::Delete);
        if patches && self.says == self.settled {
            self.repaired_at = Some(now);
        }
        self.sent.clone_from(&self.says);
        self.gathers_since = None;
        self.under_way = true;
    }

    fn ended(&mut self, job: &Job, end: End, now: Moment) {
        self.under_way = false;
        let same = self
            .holds
            .as_ref()
            .is_some_and(|holds| holds.uid == job.uid);
        match end {
            End::Patched(status) => {
                self.failures = 0;
                self.taken(&status, now);
                let told = self.holds.as_ref().is_some_and(|h| h.status == *status);
                self.answered = (same && !told).then(|| (*status, now + ECHO));
            }
            End::Deleted => {
                self.failures = 0;
                self.deleted = same;
            }
            End::Refused => {
                self.failures = self.failures.saturating_add(1);
                let wait = waits(&job.pod, self.failures);
                self.not_before = if same { now + wait } else { Moment::ZERO };
            }
            End::Away(_) => {}
        }
    }
}

impl Pod {
    /// A patch was taken. Should the answer not say what was sent, saying it again helps little.
    fn taken(&mut self, status: &PodStatus, now: Moment) {
        let (Some(sent), Some(holds)) = (self.sent.take(), &self.holds) else {
            return;
        };
        let answered = Holds {
            uid: holds.uid.clone(),
            status: status.clone(),
        };
        if matches!(wanted(&sent, &answered), Some((Step::Patch(_), _))) {
            self.in_vain = self.in_vain.saturating_add(1);
            self.repaired_at = Some(now);
            self.settled = Some(sent);
        } else {
            self.in_vain = 0;
        }
    }
}

/// How long a step on the way waits while so many pods have something to say.
fn gather(waiting: usize) -> Duration {
    let more = GATHER_MORE.saturating_mul(u32::try_from(waiting).unwrap_or(u32::MAX));
    (GATHER + more).min(GATHER_MOST)
}

/// How long a pod waits after so many refusals: longer by up to a half, and no two pods alike.
fn waits(pod: &str, failures: u32) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(1 << failures.saturating_sub(1).min(16));
    let drawn = fnv1a_32(format!("{pod} {failures}").as_bytes());
    let share = f64::from(drawn) / f64::from(u32::MAX);
    doubled.min(LONGEST_WAIT).mul_f64(1.0 + share / 2.0)
}
