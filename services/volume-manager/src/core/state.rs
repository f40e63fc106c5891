//! Everything this service knows, and what follows from each thing it hears.

mod drivers;
mod known;
mod limits;
mod shared;
mod told;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use super::certificates::{self, Certificate, CertificateKey};
use super::csi::Registered;
use super::declare::{Declarations, Refusal, Wish};
use super::layout::Layout;
use super::objects::{ObjectKey, ObjectState};
use super::payload::Known;
use super::place::Place;
use super::plan::{ActualPod, Desired, Holds, Slot, Step, Why};
use super::spec::{PodName, PodSpec};
use super::tokens::{Issued, Token, TokenKey};
use super::view::PodView;

pub(super) use known::resolve;

pub use drivers::{Bound, Growing, Mounted, Stands};

/// What was found of one pod at the start.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The pod, as far as it was noted.
    pub pod: PodName,
    /// Its volumes on disk.
    pub volumes: BTreeMap<Slot, FoundVolume>,
    /// Its hostPath volumes by name, as noted.
    pub host_paths: BTreeMap<String, String>,
}

/// What was found of one volume at the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundVolume {
    /// It was set up to the end.
    pub ready: bool,
    /// As the Node's status names it, if it was attached.
    pub in_use: Option<String>,
}

/// What came of a step.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The step.
    pub step: Step,
    /// Done, or why not.
    pub result: Result<(), Why>,
}

/// The state of the whole service.
#[derive(Debug)]
pub struct State {
    layout: Layout,
    declarations: Declarations,
    objects: BTreeMap<ObjectKey, ObjectState>,
    users: BTreeMap<ObjectKey, BTreeSet<String>>,
    /// Drivers on this node, by the socket that they registered with.
    drivers: BTreeMap<PathBuf, Registered>,
    /// This node's name.
    node: String,
    /// What the cluster says of this node, once it has been heard.
    place: Option<Place>,
    /// Tokens that pods hold.
    tokens: BTreeMap<TokenKey, Token>,
    /// Certificates that pods hold.
    certificates: BTreeMap<CertificateKey, Certificate>,
    actual: BTreeMap<String, ActualPod>,
    noted: BTreeMap<String, (PodName, BTreeMap<String, String>)>,
    views: BTreeMap<String, PodView>,
    to_plan: BTreeSet<String>,
    to_tell: BTreeSet<String>,
    wakes: BTreeMap<String, Timestamp>,
    /// How often each driver has been found to have reached its limit.
    exhausted: BTreeMap<String, u64>,
}

impl State {
    /// The state of a process that has found this.
    pub fn new(layout: Layout, found: Vec<Found>) -> Self {
        let mut state = Self {
            layout,
            declarations: Declarations::default(),
            objects: BTreeMap::new(),
            users: BTreeMap::new(),
            drivers: BTreeMap::new(),
            node: String::new(),
            place: None,
            tokens: BTreeMap::new(),
            certificates: BTreeMap::new(),
            actual: BTreeMap::new(),
            noted: BTreeMap::new(),
            views: BTreeMap::new(),
            to_plan: BTreeSet::new(),
            to_tell: BTreeSet::new(),
            wakes: BTreeMap::new(),
            exhausted: BTreeMap::new(),
        };
        for found in found {
            let uid = found.pod.uid.clone();
            let mut pod = ActualPod::default();
            for (slot, found) in found.volumes {
                let volume = pod.volumes.entry(slot).or_default();
                volume.holds = Holds::Found { ready: found.ready };
                volume.in_use = found.in_use;
            }
            state.actual.insert(uid.clone(), pod);
            state
                .noted
                .insert(uid.clone(), (found.pod, found.host_paths));
            state.touch(&uid);
        }
        state
    }

    /// The same, on a node of this name.
    pub fn on(self, node: &str) -> Self {
        Self {
            node: node.to_owned(),
            ..self
        }
    }

    /// A driver has made itself known, or is gone.
    pub fn driver(&mut self, socket: &Path, driver: Option<Registered>) {
        match driver {
            Some(driver) => drop(self.drivers.insert(socket.to_owned(), driver)),
            None => drop(self.drivers.remove(socket)),
        }
        self.look_at_drivers();
        self.look_at_all();
    }

    /// The cluster says this of the node.
    pub fn placed(&mut self, place: Place) {
        if self.place.as_ref() != Some(&place) {
            self.place = Some(place);
            self.look_at_all();
        }
    }

    fn look_at_all(&mut self) {
        let known: Vec<String> = self.actual.keys().cloned().collect();
        for uid in &known {
            self.look_further(uid);
            self.touch(uid);
        }
    }

    /// The drivers on this node, by name: of two of one name the one that speaks the newer CSI.
    pub fn drivers(&self) -> BTreeMap<String, Registered> {
        let names = self.drivers.values().map(|driver| driver.name.as_str());
        let known = names.filter_map(|name| Known::registered(self, name));
        known.map(|d| (d.name.clone(), d.clone())).collect()
    }

    /// This node's name.
    pub fn node(&self) -> &str {
        &self.node
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
            self.look_further(&uid);
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
            self.holds(&uid, BTreeSet::new(), BTreeSet::new());
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
        // What was told before stands.
        let stands = |known: &ObjectState| !matches!(known, ObjectState::Unknown(_));
        let silent = matches!(state, ObjectState::Unknown(_) | ObjectState::Unheard);
        if silent && self.objects.get(key).is_some_and(stands) {
            return;
        }
        if self.objects.get(key) != Some(&state) {
            let users = users.clone();
            self.objects.insert(key.clone(), state);
            for uid in &users {
                self.look_further(uid);
                self.touch(uid);
            }
        }
    }

    /// The objects to watch: referred to, and not known to never change.
    pub fn watched(&self) -> BTreeSet<ObjectKey> {
        let changes = |key: &&ObjectKey| !matches!(self.objects.get(key), Some(ObjectState::Present(object)) if object.immutable);
        self.users.keys().filter(changes).cloned().collect()
    }

    /// The tokens to be had, and to be had anew before they end.
    pub fn tokens(&self) -> BTreeSet<TokenKey> {
        self.tokens.keys().cloned().collect()
    }

    /// A token was asked for.
    pub fn token(&mut self, key: &TokenKey, answer: Result<Issued, String>, now: Timestamp) {
        let Some(token) = self.tokens.get_mut(key) else {
            return;
        };
        if token.learn(answer, now) {
            self.touch(&key.uid);
        }
    }

    /// The certificates to be had.
    pub fn certificates(&self) -> BTreeSet<CertificateKey> {
        self.certificates.keys().cloned().collect()
    }

    /// A certificate is this now.
    pub fn certificate(&mut self, key: &CertificateKey, told: certificates::Told) {
        let Some(certificate) = self.certificates.get_mut(key) else {
            return;
        };
        if certificate.learn(told) {
            self.touch(&key.uid);
        }
    }

    fn holds(
        &mut self,
        uid: &str,
        tokens: BTreeSet<TokenKey>,
        certificates: BTreeSet<CertificateKey>,
    ) {
        self.tokens
            .retain(|key, _| key.uid != uid || tokens.contains(key));
        self.certificates
            .retain(|key, _| key.uid != uid || certificates.contains(key));
        for key in tokens {
            self.tokens.entry(key).or_default();
        }
        for key in certificates {
            self.certificates.entry(key).or_default();
        }
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

    /// What shall be of a pod.
    pub fn desired(&self, uid: &str) -> Desired {
        if self.declarations.may_destroy(uid) {
            return Desired::Gone;
        }
        let Some(Wish::Keep(spec)) = self.declarations.get(uid).map(|d| &d.wish) else {
            return Desired::Unsaid;
        };
        let known = spec.volumes.iter();
        let known = known.filter_map(|volume| resolve(volume, self));
        let volumes = known.collect();
        Desired::Keep(volumes)
    }
}
