//! Everything this service knows, and what follows from each thing it hears.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;

use super::declare::{Declarations, Refusal, Wish};
use super::layout::{self, Layout, VolumeId};
use super::objects::{ObjectKey, ObjectState};
use super::payload;
use super::plan::{ActualPod, Desired, Holds, Slot, Step, Work, plan};
use super::spec::{PodName, PodSpec, SetUp, Wants};
use super::sub_path::{self, SubPath};
use super::view::{Known, Phase, PodView, VolumeView, view};

/// What was found of one pod at the start.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The pod, as far as it was noted.
    pub pod: PodName,
    /// Its volumes on disk, and whether each was set up to the end.
    pub volumes: BTreeMap<Slot, bool>,
    /// Its hostPath volumes by name, as noted.
    pub host_paths: BTreeMap<String, String>,
}

/// What came of a step.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The step.
    pub step: Step,
    /// Done, or why not.
    pub result: Result<(), String>,
}

/// The state of the whole service.
#[derive(Debug)]
pub struct State {
    layout: Layout,
    declarations: Declarations,
    objects: BTreeMap<ObjectKey, ObjectState>,
    users: BTreeMap<ObjectKey, BTreeSet<String>>,
    actual: BTreeMap<String, ActualPod>,
    noted: BTreeMap<String, (PodName, BTreeMap<String, String>)>,
    views: BTreeMap<String, PodView>,
    to_plan: BTreeSet<String>,
    to_tell: BTreeSet<String>,
    wakes: BTreeMap<String, Timestamp>,
}

static UNHEARD: ObjectState = ObjectState::Unheard;

impl State {
    /// The state of a process that has found this.
    pub fn new(layout: Layout, found: Vec<Found>) -> Self {
        let mut state = Self {
            layout,
            declarations: Declarations::default(),
            objects: BTreeMap::new(),
            users: BTreeMap::new(),
            actual: BTreeMap::new(),
            noted: BTreeMap::new(),
            views: BTreeMap::new(),
            to_plan: BTreeSet::new(),
            to_tell: BTreeSet::new(),
            wakes: BTreeMap::new(),
        };
        for found in found {
            let uid = found.pod.uid.clone();
            let mut pod = ActualPod::default();
            for (slot, ready) in found.volumes {
                pod.volumes.entry(slot).or_default().holds = Holds::Found { ready };
            }
            state.actual.insert(uid.clone(), pod);
            state
                .noted
                .insert(uid.clone(), (found.pod, found.host_paths));
            state.touch(&uid);
        }
        state
    }

    /// Where things are.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A pod's volumes are wanted. Says whether that is news.
    pub fn apply(
        &mut self,
        declarer: &str,
        sequence: u64,
        pod: PodName,
        spec: Arc<PodSpec>,
    ) -> Result<bool, Refusal> {
        let uid = pod.uid.clone();
        let objects = spec.objects();
        let news = self.declarations.apply(declarer, sequence, pod, spec)?;
        if news {
            self.refers_to(&uid, objects);
            self.actual.entry(uid.clone()).or_default();
        }
        self.touch(&uid);
        Ok(news)
    }

    /// A pod's containers are gone for good.
    pub fn release(&mut self, declarer: &str, sequence: u64, pod: PodName) -> Result<(), Refusal> {
        let uid = pod.uid.clone();
        self.declarations.release(declarer, sequence, pod)?;
        if self.declarations.get(&uid).is_some() {
            self.refers_to(&uid, BTreeSet::new());
            self.actual.entry(uid.clone()).or_default();
        }
        self.touch(&uid);
        Ok(())
    }

    /// All that is wanted has been declared.
    pub fn complete(&mut self, declarer: &str, pods: u32) -> Result<(), Refusal> {
        self.declarations.complete(declarer, pods)?;
        let known = self.actual.keys().chain(self.declarations.uids());
        let known: Vec<String> = known.cloned().collect();
        known.iter().for_each(|uid| self.touch(uid));
        Ok(())
    }

    /// An object is this now.
    pub fn object(&mut self, key: &ObjectKey, state: ObjectState) {
        let Some(users) = self.users.get(key) else {
            return;
        };
        if self.objects.get(key) != Some(&state) {
            let users = users.clone();
            self.objects.insert(key.clone(), state);
            users.iter().for_each(|uid| self.touch(uid));
        }
    }

    /// The objects to watch: referred to, and not known to never change.
    pub fn watched(&self) -> BTreeSet<ObjectKey> {
        let changes = |key: &&ObjectKey| !matches!(self.objects.get(key), Some(ObjectState::Present(object)) if object.immutable);
        self.users.keys().filter(changes).cloned().collect()
    }

    /// Something about the pod has changed: plan for it, and tell of it.
    fn touch(&mut self, uid: &str) {
        self.to_plan.insert(uid.to_owned());
        self.to_tell.insert(uid.to_owned());
    }

    fn refers_to(&mut self, uid: &str, objects: BTreeSet<ObjectKey>) {
        for users in self.users.values_mut() {
            users.remove(uid);
        }
        for key in objects {
            self.users.entry(key).or_default().insert(uid.to_owned());
        }
        self.users.retain(|_, users| !users.is_empty());
        let users = &self.users;
        self.objects.retain(|key, _| users.contains_key(key));
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
                        Work::Idle
                    }
                    Err(message) => volume.work.failed(message, Some(what), now),
                };
            }
            Step::TearDown(id) => match result {
                Ok(()) => {
                    self.touch(&id.uid);
                    if let Some(pod) = self.actual.get_mut(&id.uid) {
                        pod.volumes.remove(&(id.plugin, id.name));
                    }
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
            self.declarations.forget(uid);
        } else if self.declarations.get(uid).is_some() {
            // Declared again in the meantime.
            self.actual.insert(uid.to_owned(), ActualPod::default());
        }
    }

    fn volume(&mut self, id: &VolumeId) -> Option<&mut super::plan::ActualVolume> {
        self.touch(&id.uid);
        let pod = self.actual.get_mut(&id.uid)?;
        pod.volumes.get_mut(&(id.plugin.clone(), id.name.clone()))
    }

    /// What shall be of a pod.
    pub fn desired(&self, uid: &str) -> Desired {
        if self.declarations.may_destroy(uid) {
            return Desired::Gone;
        }
        let Some(Wish::Keep(spec)) = self.declarations.get(uid).map(|d| &d.wish) else {
            return Desired::Unsaid;
        };
        let object = |key: &ObjectKey| self.objects.get(key).unwrap_or(&UNHEARD);
        let mut volumes = BTreeMap::new();
        for volume in &spec.volumes {
            let Some(plugin) = volume.plugin() else {
                continue;
            };
            let wanted = match &volume.wants {
                Wants::Plain(set_up) => Ok(Arc::new(set_up.clone())),
                Wants::Files(files) => {
                    payload::files(files, &object).map(|files| Arc::new(SetUp::Files(files)))
                }
                Wants::Refused(_) => continue,
            };
            volumes.insert((plugin.to_owned(), volume.name.clone()), wanted);
        }
        Desired::Keep(volumes)
    }

    /// What to do now. The steps count as begun.
    pub fn next(&mut self, now: Timestamp) -> Vec<Step> {
        let due = self.wakes.iter().filter(|(_, at)| **at <= now);
        let mut uids: BTreeSet<String> = due.map(|(uid, _)| uid.clone()).collect();
        uids.append(&mut self.to_plan);
        let mut steps = Vec::new();
        for uid in uids {
            self.wakes.remove(&uid);
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
            Step::SetUp(id, what) => {
                let pod = self.actual.entry(id.uid.clone()).or_default();
                let slot = (id.plugin.clone(), id.name.clone());
                pod.volumes.entry(slot).or_default().work.begin(Some(what));
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

    /// Whether containers could use the volume before: nothing waits for what is done to it now.
    pub fn is_usable(&self, id: &VolumeId) -> bool {
        let slot = (id.plugin.clone(), id.name.clone());
        let volume = self
            .actual
            .get(&id.uid)
            .and_then(|pod| pod.volumes.get(&slot));
        let noted = self
            .noted
            .get(&id.uid)
            .filter(|_| id.plugin == layout::HOST_PATH);
        volume.is_some_and(|volume| volume.holds.is_usable())
            || noted.is_some_and(|(_, host_paths)| host_paths.contains_key(&id.name))
    }

    /// The places of the volumes of which a container mounts parts.
    ///
    /// # Errors
    /// What the container's status says of the first part that may not be asked for, or whose
    /// volume cannot be used.
    pub fn sub_paths(
        &self,
        uid: &str,
        container: &str,
        parts: Vec<SubPath>,
    ) -> Result<Vec<(PathBuf, SubPath)>, String> {
        let volumes = self.views.get(uid).map(|view| view.volumes.as_slice());
        let place = |part: SubPath| {
            sub_path::check(container, &part)?;
            let is_it =
                |volume: &&VolumeView| volume.name == part.volume && volume.phase == Phase::Mounted;
            let volume = volumes.unwrap_or_default().iter().find(is_it);
            let volume = volume.ok_or_else(|| sub_path::no_volume(container, &part.volume))?;
            Ok((PathBuf::from(&volume.host_path), part))
        };
        parts.into_iter().map(place).collect()
    }

    /// A pod as it is known, declared or noted.
    pub fn pod(&self, uid: &str) -> PodName {
        let declared = self.declarations.get(uid).map(|declared| &declared.pod);
        let noted = || self.noted.get(uid).map(|(pod, _)| pod);
        let unknown = || PodName {
            uid: uid.to_owned(),
            ..PodName::default()
        };
        declared.or_else(noted).cloned().unwrap_or_else(unknown)
    }

    /// What changed since the last time: the pods' views, `None` for those of which nothing is left.
    pub fn changes(&mut self, now: Timestamp) -> Vec<(String, Option<PodView>)> {
        let mut changes = Vec::new();
        for uid in std::mem::take(&mut self.to_tell) {
            let before = self.views.get(&uid);
            let after = self.view(&uid, now);
            if after.as_ref() == before {
                continue;
            }
            match &after {
                Some(view) => self.views.insert(uid.clone(), view.clone()),
                None => self.views.remove(&uid),
            };
            changes.push((uid, after));
        }
        changes
    }

    /// What is told of a pod now.
    pub fn view(&self, uid: &str, now: Timestamp) -> Option<PodView> {
        let actual = self.actual.get(uid)?;
        let declared = self.declarations.get(uid);
        let spec = declared.and_then(|declared| match &declared.wish {
            Wish::Keep(spec) => Some(spec),
            Wish::Release(spec) => spec.as_ref(),
        });
        let desired = self.desired(uid);
        let none = BTreeMap::new();
        let known = Known {
            pod: self.pod(uid),
            sequence: declared.map_or(0, |declared| declared.sequence),
            spec: spec.map(Arc::as_ref),
            desired: &desired,
            actual,
            noted: self
                .noted
                .get(uid)
                .map_or(&none, |(_, host_paths)| host_paths),
        };
        Some(view(&known, &self.layout, self.views.get(uid), now))
    }

    /// What should be noted on disk of a pod whose volumes can all be used.
    pub fn note(&self, uid: &str) -> Option<(PodName, BTreeMap<String, String>)> {
        let Some(Wish::Keep(spec)) = self.declarations.get(uid).map(|d| &d.wish) else {
            return None;
        };
        let view = self.views.get(uid)?;
        if view
            .volumes
            .iter()
            .any(|volume| volume.phase != Phase::Mounted)
        {
            return None;
        }
        let host_paths = spec
            .volumes
            .iter()
            .filter_map(|volume| match &volume.wants {
                Wants::Plain(SetUp::HostPath { path, .. }) => {
                    Some((volume.name.clone(), path.clone()))
                }
                _ => None,
            });
        Some((self.pod(uid), host_paths.collect()))
    }
}
