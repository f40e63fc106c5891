//! Steps: what is to be done now, and what came of it.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{Outcome, State};
use crate::core::layout::VolumeId;
use crate::core::plan::{ActualPod, ActualVolume, Asked, Holds, Step, Work, plan};

impl State {
    /// What to do now. The steps count as begun.
    pub fn next(&mut self, now: Timestamp) -> Vec<Step> {
        let due = self.wakes.iter().filter(|(_, at)| **at <= now);
        let mut uids: BTreeSet<String> = due.map(|(uid, _)| uid.clone()).collect();
        uids.append(&mut self.to_plan);
        let mut steps = Vec::new();
        for uid in uids {
            if self.wakes.remove(&uid).is_some() {
                // What is told may be a matter of time.
                self.to_tell.insert(uid.clone());
            }
            let desired = self.desired(&uid);
            let Some(actual) = self.actual.get(&uid) else {
                continue;
            };
            let plan = plan(&uid, &desired, actual, now);
            if let Some(at) = plan.wake_at {
                self.wakes.insert(uid.clone(), at);
            }
            plan.steps.iter().for_each(|step| self.begin(step));
            if !plan.steps.is_empty() {
                self.to_tell.insert(uid);
            }
            steps.extend(plan.steps);
        }
        steps
    }

    fn begin(&mut self, step: &Step) {
        match step {
            Step::SetUp(id, what) | Step::Ask(id, what, _) => {
                let pod = self.actual.entry(id.uid.clone()).or_default();
                let slot = (id.plugin.clone(), id.name.clone());
                let volume = pod.volumes.entry(slot).or_default();
                volume.work.begin(Some(what));
                volume.in_use = what.in_use().or(volume.in_use.take());
            }
            Step::TearDown(id) => {
                if let Some(volume) = self.volume(id) {
                    volume.work.begin(None);
                }
            }
            Step::RemovePod(uid) => self.actual.entry(uid.clone()).or_default().work.begin(None),
        }
    }

    /// When to ask for steps again if nothing is heard.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.wakes.values().min().copied()
    }

    /// A step has ended.
    pub fn finished(&mut self, outcome: Outcome, now: Timestamp) {
        let Outcome { step, result } = outcome;
        match step {
            Step::SetUp(id, what) => {
                let Some(volume) = self.volume(&id) else {
                    return;
                };
                volume.work = match result {
                    Ok(()) => {
                        volume.holds = Holds::Exactly(what);
                        volume.published_at = Some(now);
                        volume.not_grown = None;
                        Work::Idle
                    }
                    Err(why) if why.in_use => {
                        volume.holds = Holds::Exactly(what);
                        volume.not_grown = Some(why.message);
                        Work::Idle
                    }
                    Err(message) => volume.work.failed(message, Some(what), now),
                };
            }
            Step::Ask(id, what, asked) => {
                let Some(volume) = self.volume(&id) else {
                    return;
                };
                if asked == Asked::Publish {
                    volume.published_at = Some(now);
                }
                volume.work = match result {
                    Ok(()) => {
                        volume.holds = Holds::Exactly(what);
                        Work::Idle
                    }
                    Err(why) if why.in_use => {
                        volume.not_grown = Some(why.message);
                        Work::Idle
                    }
                    Err(message) => volume.work.failed(message, Some(what), now),
                };
            }
            Step::TearDown(id) => match result {
                Ok(()) => {
                    self.touch(&id.uid);
                    let slot = (id.plugin.clone(), id.name.clone());
                    if let Some(pod) = self.actual.get_mut(&id.uid) {
                        pod.volumes.remove(&slot);
                    }
                    self.left(&id);
                }
                Err(message) => {
                    let Some(volume) = self.volume(&id) else {
                        return;
                    };
                    volume.holds = Holds::Nothing;
                    volume.work = volume.work.failed(message, None, now);
                }
            },
            Step::RemovePod(uid) => {
                self.touch(&uid);
                match result {
                    Ok(()) => self.removed(&uid),
                    Err(message) => {
                        let pod = self.actual.entry(uid).or_default();
                        pod.work = pod.work.failed(message, None, now);
                    }
                }
            }
        }
    }

    fn removed(&mut self, uid: &str) {
        self.noted.remove(uid);
        self.actual.remove(uid);
        if self.declarations.may_destroy(uid) {
            self.refers_to(uid, BTreeSet::new());
            self.holds(uid, BTreeSet::new(), BTreeSet::new());
            self.declarations.forget(uid);
        } else if self.declarations.get(uid).is_some() {
            // Declared again in the meantime.
            self.actual.insert(uid.to_owned(), ActualPod::default());
        }
    }

    fn volume(&mut self, id: &VolumeId) -> Option<&mut ActualVolume> {
        self.touch(&id.uid);
        let pod = self.actual.get_mut(&id.uid)?;
        pod.volumes.get_mut(&(id.plugin.clone(), id.name.clone()))
    }
}
