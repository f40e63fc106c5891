//! From what is wished and what is there to what to do next, for one pod at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::csi::Lacks;
use super::growth::{self, Growth};
use super::layout::VolumeId;
use super::payload::Blocked;
use super::spec::SetUp;

/// A volume within its pod: plugin directory and name.
pub type Slot = (String, String);

/// What shall be of one pod.
#[derive(Debug, Clone, PartialEq)]
pub enum Desired {
    /// These volumes, as far as they are known.
    Keep(BTreeMap<Slot, Result<Arc<SetUp>, Blocked>>),
    /// Nothing.
    Gone,
    /// Nobody has said: leave all as it is.
    Unsaid,
}

/// What is there of one pod.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ActualPod {
    /// Its volumes.
    pub volumes: BTreeMap<Slot, ActualVolume>,
    /// What goes on with its directory as a whole.
    pub work: Work,
}

/// What is there of one volume.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ActualVolume {
    /// What it holds.
    pub holds: Holds,
    /// What goes on with it.
    pub work: Work,
    /// When its driver was asked last to publish it.
    pub published_at: Option<Timestamp>,
    /// As the Node's status names it, if it was attached: until it is taken away.
    pub in_use: Option<String>,
    /// Why it is not made larger any more until it is set up anew.
    pub not_grown: Option<String>,
}

/// What a volume holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Holds {
    /// Nothing that anybody could use.
    #[default]
    Nothing,
    /// It was there when this process started.
    Found {
        /// It had been set up to the end.
        ready: bool,
    },
    /// Exactly this.
    Exactly(Arc<SetUp>),
}

impl Holds {
    /// Whether containers can use it.
    pub fn is_usable(&self) -> bool {
        matches!(self, Self::Found { ready: true } | Self::Exactly(_))
    }
}

/// What goes on with something.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Work {
    /// Nothing.
    #[default]
    Idle,
    /// A step is under way; its result will come.
    Busy {
        /// How many attempts failed before it.
        failed: u32,
    },
    /// The last attempts failed.
    Failed(Failure),
}

/// How an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Why {
    /// What could not be done, in upstream's words; none for setting up as a whole.
    pub doing: Option<&'static str>,
    /// Why.
    pub message: String,
    /// All was done but making the volume larger, which cannot be done while it is in use: it is
    /// not tried again.
    pub in_use: bool,
}

impl<T: Into<String>> From<T> for Why {
    fn from(message: T) -> Self {
        let message = message.into();
        Why {
            doing: None,
            message,
            in_use: false,
        }
    }
}

/// Attempts that failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// How the last one failed.
    pub why: Why,
    /// How many there were in a row.
    pub attempts: u32,
    /// When to try again.
    pub retry_at: Timestamp,
    /// What was tried; `None` when it was taking away. Something else is tried at once.
    pub what: Option<Arc<SetUp>>,
}

impl Failure {
    /// Whether it was making a volume larger, which had been set up already or with it.
    pub fn grows(&self, is_set_up: bool) -> bool {
        let what = self.what.as_deref();
        let last = self.why.doing.is_some_and(growth::is_last);
        what.is_some_and(|what| what.growth().is_asked()) && (is_set_up || last)
    }
}

const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(120);

impl Work {
    /// Begins a step.
    pub fn begin(&mut self, what: Option<&Arc<SetUp>>) {
        let failed = match self {
            Self::Failed(failure) if failure.what.as_ref() == what => failure.attempts,
            _ => 0,
        };
        *self = Self::Busy { failed };
    }

    /// What a failed attempt leaves.
    pub fn failed(&self, why: Why, what: Option<Arc<SetUp>>, now: Timestamp) -> Self {
        let before = match self {
            Self::Busy { failed } => *failed,
            _ => 0,
        };
        let attempts = before.saturating_add(1);
        let wait = FIRST_WAIT
            .saturating_mul(1 << before.min(16))
            .min(LONGEST_WAIT);
        let retry_at = now.checked_add(wait).unwrap_or(now);
        Self::Failed(Failure {
            why,
            attempts,
            retry_at,
            what,
        })
    }

    /// May `what` be begun? Otherwise when, if time alone decides.
    fn may_begin(
        &self,
        what: Option<&Arc<SetUp>>,
        now: Timestamp,
    ) -> Result<(), Option<Timestamp>> {
        match self {
            Self::Idle => Ok(()),
            Self::Busy { .. } => Err(None),
            Self::Failed(failure) if failure.what.as_ref() != what => Ok(()),
            Self::Failed(failure) if failure.retry_at <= now => Ok(()),
            Self::Failed(failure) => Err(Some(failure.retry_at)),
        }
    }
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Bring a volume to hold exactly this. Doing it again changes nothing.
    SetUp(VolumeId, Arc<SetUp>),
    /// Ask the driver of a volume that is mounted once more.
    Ask(VolumeId, Arc<SetUp>, Asked),
    /// Unmount a volume and remove what is left of it.
    TearDown(VolumeId),
    /// Remove the directory of a pod that has no volumes any more.
    RemovePod(String),
}

/// What a driver is asked for of a volume that is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// To publish it again.
    Publish,
    /// To make it larger.
    Grow,
}

/// How often a driver that wants that is asked to publish again: upstream does with each look at a
/// pod, which is 60 to 90 s apart.
const PUBLISHED_AGAIN: Duration = Duration::from_secs(75);

/// What to do now, and when to ask again if nothing happens.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Independent of each other.
    pub steps: Vec<Step>,
    /// The next retry.
    pub wake_at: Option<Timestamp>,
}

impl Plan {
    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }

    fn consider(
        &mut self,
        work: &Work,
        what: Option<&Arc<SetUp>>,
        now: Timestamp,
        step: impl FnOnce() -> Step,
    ) {
        match work.may_begin(what, now) {
            Ok(()) => self.steps.push(step()),
            Err(Some(at)) => self.wake(at),
            Err(None) => {}
        }
    }
}

/// The plan for one pod.
pub fn plan(uid: &str, desired: &Desired, actual: &ActualPod, now: Timestamp) -> Plan {
    match desired {
        Desired::Unsaid => Plan::default(),
        // The directory is on its way out: what is wished instead waits for the end of that.
        _ if matches!(actual.work, Work::Busy { .. }) => Plan::default(),
        Desired::Keep(volumes) => keep(uid, volumes, actual, now),
        Desired::Gone => take_away(uid, actual, now),
    }
}

fn keep(
    uid: &str,
    volumes: &BTreeMap<Slot, Result<Arc<SetUp>, Blocked>>,
    actual: &ActualPod,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    let nothing = ActualVolume::default();
    for ((plugin, name), wanted) in volumes {
        let Ok(wanted) = wanted else { continue };
        let slot = (plugin.clone(), name.clone());
        let there = actual.volumes.get(&slot).unwrap_or(&nothing);
        let lacks = match &there.holds {
            Holds::Exactly(holds) => match holds.lacks(wanted) {
                Lacks::Growth if there.not_grown.is_some() => Lacks::Nothing,
                lacks => lacks,
            },
            // No container has it: it has its size when it is set up.
            _ if wanted.growth() == Growth::Announced && !there.holds.is_usable() => continue,
            _ => Lacks::All,
        };
        let due = match there.published_at.filter(|_| wanted.is_published_again()) {
            Some(last) => last.checked_add(PUBLISHED_AGAIN).ok(),
            None => None,
        };
        let asked = match (lacks, due) {
            (Lacks::All, _) => None,
            (Lacks::Growth, _) => Some(Asked::Grow),
            (Lacks::Publishing, _) => Some(Asked::Publish),
            (Lacks::Nothing, Some(due)) if due <= now => Some(Asked::Publish),
            (Lacks::Nothing, due) => {
                due.into_iter().for_each(|due| plan.wake(due));
                continue;
            }
        };
        plan.consider(&there.work, Some(wanted), now, || {
            let id = VolumeId::new(uid, plugin, name);
            match asked {
                Some(asked) => Step::Ask(id, wanted.clone(), asked),
                None => Step::SetUp(id, wanted.clone()),
            }
        });
    }
    plan
}

fn take_away(uid: &str, actual: &ActualPod, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    for ((plugin, name), there) in &actual.volumes {
        plan.consider(&there.work, None, now, || {
            Step::TearDown(VolumeId::new(uid, plugin, name))
        });
    }
    if actual.volumes.is_empty() {
        plan.consider(&actual.work, None, now, || Step::RemovePod(uid.to_owned()));
    }
    plan
}
