//! What image-gc knows, and what follows from it: everything of the one task but its effects.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::follow::podconfig::SOURCES;
use polylet_model::pod::Manifest;
use polylet_watch::Update;
use polylet_wire::podconfig::v1::{Pod, PodSource};

use crate::convert;
use crate::core::plan::{self, Disk, Policy, Removal};
use crate::core::records::{self, Listed, Look, Records};

/// The state of the one task.
pub struct Desk {
    pub(crate) policy: Policy,
    wanted: BTreeMap<String, Vec<String>>,
    /// Sources heard to the end in this life: before all have spoken, nothing goes.
    heard: BTreeSet<i32>,
    records: Records,
}

impl Desk {
    /// Has heard nobody yet; knows the ages that a former life kept.
    pub fn new(policy: Policy, records: Records) -> Self {
        Desk {
            policy,
            wanted: BTreeMap::new(),
            heard: BTreeSet::new(),
            records,
        }
    }

    /// A source says what should run. Gives a pod whose images are spared from now on.
    pub fn pod(
        &mut self,
        source: PodSource,
        update: Update<String, Pod>,
    ) -> Option<(Manifest, Vec<String>)> {
        match update {
            Update::Upsert(uid, pod) => match Manifest::from_json(&pod.manifest) {
                Ok(manifest) => {
                    let wanted = convert::wanted(&manifest);
                    let before = self.wanted.insert(uid, wanted.clone());
                    before.is_none().then_some((manifest, wanted))
                }
                Err(error) => {
                    let error = polylet_kit::report(&error);
                    tracing::warn!(pod = uid, error, "a pod that cannot be read");
                    None
                }
            },
            Update::Remove(uid) => {
                self.wanted.remove(&uid);
                None
            }
            Update::Synced => {
                self.heard.insert(source.into());
                None
            }
            // What was wanted stays wanted; only a source never heard holds removals back.
            Update::Stale(_) => None,
        }
    }

    /// Whether all sources have spoken in this life.
    pub fn all_heard(&self) -> bool {
        self.heard.len() == SOURCES.len()
    }

    /// Ages of images, to be kept.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// The runtime holds these images, and its containers, listed after them, use those.
    pub fn look(&mut self, images: Vec<Listed>, used: BTreeSet<String>, now: Timestamp) -> Look {
        let look = Look {
            images,
            used,
            wanted: self.wanted.values().flatten().cloned().collect(),
        };
        self.records = records::observe(&self.records, &look, now);
        look
    }

    /// What goes for its age.
    pub fn too_old(&self, look: &Look, now: Timestamp) -> Vec<Removal> {
        plan::too_old(&self.policy, look, &self.records, now)
    }

    /// What goes because the disk is full, and how many bytes that should free.
    pub fn too_much(&self, look: &Look, disk: Disk, now: Timestamp) -> (Vec<Removal>, u64) {
        let over = plan::bytes_over(&self.policy, disk);
        if over == 0 {
            return (Vec::new(), 0);
        }
        let age = self.policy.minimum_age;
        let room = plan::make_room(look, &self.records, now, age, Some(over));
        (room, over)
    }

    /// What goes because somebody needs so many bytes; zero are all that can be had.
    pub fn asked_for(
        &self,
        look: &Look,
        bytes: u64,
        minimum_age: Duration,
        now: Timestamp,
    ) -> Vec<Removal> {
        let wanted = (bytes > 0).then_some(bytes);
        plan::make_room(look, &self.records, now, minimum_age, wanted)
    }

    /// An image is gone.
    pub fn removed(&mut self, id: &str) {
        self.records.remove(id);
    }
}
