//! What is told of drivers' volumes: which are in use, which grow, which there are to ask about.

use std::collections::{BTreeMap, BTreeSet};

use super::State;
use crate::core::claims;
use crate::core::csi::Csi;
use crate::core::declare::Wish;
use crate::core::growth::Growth;
use crate::core::layout::VolumeId;
use crate::core::plan::{ActualVolume, Holds, Work};
use crate::core::spec::{ClaimSpec, PodSpec, SetUp, Wants};
use crate::core::view::Phase;

/// How the growth of a claim's volume stands here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stands {
    /// It is about to be asked for.
    InProgress,
    /// It is done.
    Finished,
    /// The driver cannot; why.
    Failed(String),
}

/// A claim whose volume grows here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growing {
    /// Its uid.
    pub uid: String,
    /// The size to come, as the API writes it.
    pub size: String,
    /// How that stands.
    pub stands: Stands,
}

/// A mounted volume of a pod, for statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// The pod's uid.
    pub uid: String,
    /// The volume's name in the pod.
    pub name: String,
    /// Where it is.
    pub host_path: String,
    /// The name of its claim, if it has one.
    pub claim: String,
    /// The driver to ask, of a driver's volume; none where the driver says nothing of that.
    pub driver: Option<Option<Box<Csi>>>,
}

impl State {
    /// The attachable volumes that pods here use or are about to use, as the Node's status names
    /// them: each until it is taken away, also of pods of which nobody has spoken yet.
    pub fn in_use(&self) -> BTreeSet<String> {
        let held = self.actual.values().flat_map(|pod| pod.volumes.values());
        let held = held.filter_map(|volume| volume.in_use.clone());
        let wanted = self
            .claims()
            .filter_map(|(_, spec)| claims::attachable(spec, self));
        held.chain(wanted).collect()
    }

    /// The claims of pods whose volumes shall be there, with the pods' uids.
    fn claims(&self) -> impl Iterator<Item = (&str, &ClaimSpec)> {
        self.kept().flat_map(|(uid, spec)| {
            let volumes = spec.volumes.iter();
            volumes.filter_map(move |volume| match &volume.wants {
                Wants::Claim(claim) => Some((uid, claim)),
                _ => None,
            })
        })
    }

    fn kept(&self) -> impl Iterator<Item = (&str, &PodSpec)> {
        let uids = self
            .actual
            .keys()
            .filter(|uid| !self.declarations.may_destroy(uid));
        uids.filter_map(|uid| match &self.declarations.get(uid)?.wish {
            Wish::Keep(spec) => Some((uid.as_str(), spec.as_ref())),
            Wish::Release(_) => None,
        })
    }

    fn held(&self, uid: &str, name: &str) -> Option<(&ActualVolume, &Csi)> {
        let mut volumes = self.actual.get(uid)?.volumes.iter();
        volumes.find_map(|((_, slot), volume)| match &volume.holds {
            Holds::Exactly(what) if slot == name => match &**what {
                SetUp::Csi(csi) => Some((volume, &**csi)),
                _ => None,
            },
            _ => None,
        })
    }

    /// The claims whose volumes grow here, by namespace and name.
    pub fn growing(&self) -> BTreeMap<(String, String), Growing> {
        let mut all = BTreeMap::new();
        for (uid, spec) in self.claims() {
            let Some((claim, persistent)) = claims::sizes(spec, self) else {
                continue;
            };
            let size = persistent.capacity.1;
            let Some((volume, held)) = self.held(uid, &persistent.name) else {
                continue;
            };
            let wanted = crate::core::growth::growth(&claim.growth, size);
            let failure = match &volume.work {
                Work::Failed(failure) if failure.grows() => Some(failure.why.message.clone()),
                _ => None,
            };
            let stands = match wanted {
                Growth::Announced => Stands::InProgress,
                Growth::Asked if held.size >= size => Stands::Finished,
                Growth::Asked => match failure {
                    Some(why) => Stands::Failed(why),
                    None => continue,
                },
                _ => continue,
            };
            let growing = Growing {
                uid: claim.uid,
                size: persistent.capacity.0,
                stands,
            };
            let key = (spec.key.namespace.clone(), spec.key.name.clone());
            // Another pod of this node may have made it larger already.
            let known = all.entry(key).or_insert_with(|| growing.clone());
            if growing.stands == Stands::Finished {
                *known = growing;
            }
        }
        all
    }

    /// All volumes that containers can use now.
    pub fn mounted(&self) -> Vec<Mounted> {
        let mut all = Vec::new();
        for (uid, spec) in self.kept() {
            let told = self.views.get(uid).map(|view| view.volumes.as_slice());
            for told in told.unwrap_or_default() {
                if told.phase != Phase::Mounted {
                    continue;
                }
                let volume = spec.volumes.iter().find(|volume| volume.name == told.name);
                let claim = match volume.map(|volume| &volume.wants) {
                    Some(Wants::Claim(claim)) => claim.key.name.clone(),
                    _ => String::new(),
                };
                all.push(Mounted {
                    uid: uid.to_owned(),
                    name: told.name.clone(),
                    host_path: told.host_path.clone(),
                    claim,
                    driver: self.asked_of(uid, &told.host_path),
                });
            }
        }
        all
    }

    fn asked_of(&self, uid: &str, host_path: &str) -> Option<Option<Box<Csi>>> {
        let mut volumes = self.actual.get(uid)?.volumes.iter();
        volumes.find_map(|((plugin, name), volume)| {
            let at = self.layout.mounted(&VolumeId::new(uid, plugin, name));
            let Holds::Exactly(what) = &volume.holds else {
                return None;
            };
            let SetUp::Csi(csi) = &**what else {
                return None;
            };
            let known = self.drivers().remove(&csi.driver);
            let tells = known.is_some_and(|driver| driver.tells) && !csi.block;
            (at.as_os_str() == host_path).then(|| tells.then(|| csi.clone()))
        })
    }
}
