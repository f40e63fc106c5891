//! What is told of pods, and noted of them on disk.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;

use super::{State, resolve};
use crate::core::claims;
use crate::core::declare::Wish;
use crate::core::layout::{self, VolumeId};
use crate::core::plan::Slot;
use crate::core::spec::{PodName, PodSpec, SetUp, Wants};
use crate::core::sub_path::{self, SubPath};
use crate::core::view::{Known, Phase, PodView, VolumeView, view};

impl State {
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
            let refused = |view: &PodView| view.volumes.iter().any(|volume| volume.refused);
            if let Some(view) = &after {
                let is_news = refused(view) && !before.is_some_and(refused);
                self.recount(&uid, view.refused_at.filter(|due| *due > now), is_news);
            }
            let before = self.views.get(&uid);
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

    /// Where each volume of a pod lies.
    fn slots(&self, uid: &str) -> BTreeMap<String, Slot> {
        let Some(Wish::Keep(spec)) = self.declarations.get(uid).map(|d| &d.wish) else {
            return BTreeMap::new();
        };
        let volumes = spec.volumes.iter();
        volumes
            .filter_map(|volume| Some((volume.name.clone(), resolve(volume, self)?.0)))
            .collect()
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
            slots: self.slots(uid),
            noted: self
                .noted
                .get(uid)
                .map_or(&none, |(_, host_paths)| host_paths),
        };
        let mut view = view(&known, &self.layout, self.views.get(uid), now);
        for told in &mut view.volumes {
            told.group = spec.and_then(|spec| self.group(spec, &told.name));
        }
        Some(view)
    }

    /// The group that the persistent volume behind a pod's volume names.
    fn group(&self, spec: &PodSpec, volume: &str) -> Option<i64> {
        let volume = spec.volumes.iter().find(|known| known.name == volume)?;
        match &volume.wants {
            Wants::Claim(claim) => claims::bound_to(claim, self)?.1.gid,
            _ => None,
        }
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
                // The directories do not tell whose claim led to them.
                Wants::Claim(_) => {
                    let told = view.volumes.iter().find(|told| told.name == volume.name)?;
                    Some((volume.name.clone(), told.host_path.clone()))
                }
                _ => None,
            });
        Some((self.pod(uid), host_paths.collect()))
    }
}
