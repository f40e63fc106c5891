//! What is told of drivers' volumes: which are in use, which grow, which there are to ask about.

use std::collections::{BTreeMap, BTreeSet};

use super::State;
use crate::core::claims;
use crate::core::csi::Csi;
use crate::core::declare::Wish;
use crate::core::facts::{ClaimGrowth, Persistent};
use crate::core::growth::{self, Growth};
use crate::core::layout::VolumeId;
use crate::core::objects::ObjectKey;
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
    /// It cannot be now, and is tried again; why.
    Failed(String),
    /// It will never be; why.
    Infeasible(String),
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

/// A claim of a pod, and what it is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The claim.
    pub claim: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// Name and uid of the persistent volume.
    pub volume: (String, String),
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

/// How the growth of a volume stands of which the node has been asked.
fn failed_or_done(volume: &ActualVolume, claim: &ClaimGrowth, bytes: i64) -> Option<Stands> {
    let size = match &volume.holds {
        Holds::Exactly(what) => what.size(),
        _ => None,
    };
    let (why, attempts) = match (&volume.not_grown, &volume.work) {
        (Some(why), _) => (why.clone(), 1),
        (None, Work::Failed(failure)) if failure.grows(size.is_some()) => {
            (failure.why.message.clone(), failure.attempts)
        }
        _ => return (size?.bytes >= bytes).then_some(Stands::Finished),
    };
    // Who is older and tells nothing of this in the claim hears nothing of failures.
    claim.told.then(
        || match growth::is_infeasible(&why, attempts, claim, bytes) {
            true => Stands::Infeasible(why),
            false => Stands::Failed(why),
        },
    )
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

    /// The claims whose volumes grow here, by namespace and name.
    pub fn growing(&self) -> BTreeMap<(String, String), Growing> {
        let mut all = BTreeMap::new();
        for (uid, spec) in self.claims() {
            let Some((claim, persistent)) = claims::bound_to(spec, self) else {
                continue;
            };
            let Some(stands) = self.stands(uid, spec, &claim.growth, &persistent) else {
                continue;
            };
            let growing = Growing {
                uid: claim.uid,
                size: growth::aim(&claim.growth, &persistent.capacity).0.clone(),
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

    /// How the growth of a claim's volume stands for one pod; nothing where nobody is to be told.
    fn stands(
        &self,
        uid: &str,
        spec: &ClaimSpec,
        claim: &ClaimGrowth,
        persistent: &Persistent,
    ) -> Option<Stands> {
        let size = growth::growth(claim, &persistent.capacity, spec.read_only);
        match size.growth {
            Growth::Announced => {
                // Whatever else it waits for comes first.
                let wanted = claims::resolve(&persistent.name, spec, self).1.ok()?;
                (wanted.growth() == Growth::Announced).then_some(Stands::InProgress)
            }
            Growth::Asked => {
                let (slot, _) = claims::resolve(&persistent.name, spec, self);
                let volume = self.actual.get(uid)?.volumes.get(&slot)?;
                failed_or_done(volume, claim, size.bytes)
            }
            Growth::None | Growth::Elsewhere | Growth::Forbidden => None,
        }
    }

    /// The claim that a pod has a volume by, and the persistent volume.
    pub fn bound(&self, id: &VolumeId) -> Option<Bound> {
        let mut claims = self.claims().filter(|(uid, _)| *uid == id.uid);
        claims.find_map(|(_, spec)| {
            let (claim, volume) = claims::bound_to(spec, self)?;
            (volume.name == id.name).then(|| Bound {
                claim: spec.key.clone(),
                uid: claim.uid,
                volume: (volume.name.clone(), volume.uid.clone()),
            })
        })
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
