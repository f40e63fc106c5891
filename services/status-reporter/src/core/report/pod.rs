//! One pod's report: what is said, what the cluster holds, and the step that follows.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use polylet_model::hash::fnv1a_32;

use super::pods::{End, Job};
use super::want::{Haste, Holds, Says, Step, removable, wanted};
use crate::core::bucket::Moment;

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
/// After a refusal a pod waits so long, and twice as long each time, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Pod {
    pub(super) says: Option<Says>,
    pub(super) holds: Option<Holds>,
    /// What the API server answered, while the watch has not told it.
    pub(super) answered: Option<(Arc<PodStatus>, Moment)>,
    pub(super) want: Option<Want>,
    pub(super) under_way: bool,
    pub(super) deleted: bool,
    pub(super) failures: u32,
    pub(super) not_before: Moment,
    /// When the oldest change that still gathers came, and how long it does.
    pub(super) gathers: Option<(Moment, Duration)>,
    /// When a step on the way was told last.
    pub(super) gathered_at: Option<Moment>,
    /// What was said when the cluster last knew everything.
    pub(super) settled: Option<Says>,
    pub(super) repaired_at: Option<Moment>,
    /// What was said when the request under way began.
    pub(super) sent: Option<Says>,
    /// So many times in a row the API server took a patch and did not make it so.
    pub(super) in_vain: u32,
}

pub(super) struct Want {
    pub(super) step: Step,
    pub(super) haste: Haste,
    pub(super) at: Moment,
}

impl Pod {
    pub(super) fn look(&mut self, waiting: usize, now: Moment) {
        let before = self.want.take();
        let (Some(says), Some(holds)) = (&self.says, &self.holds) else {
            self.gathers = None;
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
            self.gathers = None;
            if self.answered.is_none() {
                self.settled = Some(says.clone());
            }
            return;
        };
        let gathers = haste == Haste::Gather;
        let mut at = now;
        if gathers {
            let (since, longest) = self.gathers.get_or_insert((now, Duration::ZERO));
            // The last of those that start at once has waited longest, and is about to be ready.
            *longest = gather(waiting).max(*longest);
            at = *since + *longest;
            let apart = self.gathered_at.map(|told| told + GATHER_APART);
            at = at.max(apart.unwrap_or_default());
        }
        let drift = self.settled.as_ref() == Some(says) && step != Step::Delete;
        if let Some(repaired_at) = self.repaired_at.filter(|_| drift) {
            at = at.max(repaired_at + REPAIR * (1 << self.in_vain.min(MOST_DOUBLED)));
        }
        // What waits already does not wait longer for being looked at again, unless it gathers: then
        // more pods that start have come, and it has an end of its own.
        if let Some(before) = before.filter(|before| before.step == step && !gathers) {
            at = at.min(before.at);
        }
        let at = at.max(self.not_before);
        self.want = Some(Want { step, haste, at });
    }

    pub(super) fn job(&self, pod: &str) -> Option<Job> {
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

    pub(super) fn begin(&mut self, now: Moment) {
        let want = self.want.take();
        if matches!(&want, Some(want) if want.haste == Haste::Gather) {
            self.gathered_at = Some(now);
        }
        let patches = want.is_some_and(|want| want.step != Step::Delete);
        if patches && self.says == self.settled {
            self.repaired_at = Some(now);
        }
        self.sent.clone_from(&self.says);
        self.gathers = None;
        self.under_way = true;
    }

    pub(super) fn ended(&mut self, job: &Job, end: End, now: Moment) {
        self.under_way = false;
        let same = self
            .holds
            .as_ref()
            .is_some_and(|holds| holds.uid == job.uid);
        match end {
            End::Patched(status) => {
                self.failures = 0;
                self.taken(&status, now);
                let told = self.holds.as_ref().is_some_and(|h| h.status == status);
                self.answered = (same && !told).then(|| (status, now + ECHO));
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

    /// A patch was taken. Should the answer not say what was sent, saying it again helps little.
    fn taken(&mut self, status: &Arc<PodStatus>, now: Moment) {
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
