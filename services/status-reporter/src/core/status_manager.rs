//! The statuses of all pods: which are published, and which change when facts change.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use k8s_openapi::api::core::v1::PodStatus;
use polylet_model::PodUid;
use polylet_model::pod::RecentlyParsed;

use super::compute::compute;
use super::fact_store::FactStore;
use super::facts::{DesiredManifest, ManifestSource, SyncProgress};
use super::normal_form;
use super::previous_status;
use super::published::{PublishedStatus, StatusChange};
use super::shared_status::SharedStatus;

/// Computes statuses from facts and knows what is published.
pub(crate) struct StatusManager {
    pub(crate) facts: FactStore,
    published: BTreeMap<PodUid, PublishedStatus>,
    /// Last statuses of the previous process instance.
    restored: BTreeMap<PodUid, SharedStatus>,
    /// Statuses of API pods as the API server has them.
    api_statuses: BTreeMap<PodUid, SharedStatus>,
    parsed: RecentlyParsed,
    /// Pods whose manifests and statuses are kept as JSON alone since the last call of
    /// [`StatusManager::take_dropped`].
    dropped: Vec<PodUid>,
}

impl StatusManager {
    pub(crate) fn new(restored: BTreeMap<PodUid, SharedStatus>) -> Self {
        // A former version may have written them in another form.
        let normal = |(uid, status)| (uid, normal_form::renormalized(status));
        let restored = restored.into_iter().map(normal);
        Self {
            facts: FactStore::new(),
            published: BTreeMap::new(),
            restored: restored.collect(),
            api_statuses: BTreeMap::new(),
            parsed: RecentlyParsed::default(),
            dropped: Vec::new(),
        }
    }

    /// A source has added, changed or removed a pod.
    pub(crate) fn set_desired(
        &mut self,
        source: ManifestSource,
        uid: PodUid,
        desired: Option<DesiredManifest>,
    ) {
        self.note_parsed(&uid);
        self.facts.set_desired(source, uid, desired);
    }

    /// The manifest or a status of a pod is about to be read.
    fn note_parsed(&mut self, uid: &PodUid) {
        if let Some(oldest) = self.parsed.insert(uid) {
            self.drop_parsed(&oldest);
        }
    }

    /// Nothing has happened for a while: keeps manifests and statuses as JSON alone.
    pub(crate) fn drop_all_parsed(&mut self) {
        for uid in self.parsed.take() {
            self.drop_parsed(&uid);
        }
    }

    /// Pods whose statuses are kept as JSON alone since the last call, and these statuses.
    pub(crate) fn take_dropped(&mut self) -> impl Iterator<Item = (PodUid, SharedStatus)> {
        let dropped = std::mem::take(&mut self.dropped).into_iter();
        dropped.filter_map(|uid| {
            let status = self.published.get(&uid)?.status.clone();
            Some((uid, status))
        })
    }

    fn drop_parsed(&mut self, uid: &PodUid) {
        let desired = self.facts.drop_parsed(uid);
        let Some(published) = self.published.get_mut(uid) else {
            return;
        };
        let shared = desired.filter(|desired| *desired == published.manifest);
        published.manifest = shared.unwrap_or_else(|| published.manifest.unparsed());
        published.status = published.status.unparsed();
        if let Some(known) = self.api_statuses.get_mut(uid) {
            *known = known.unparsed().shared_with([&published.status]);
        }
        self.dropped.push(uid.clone());
    }

    /// The status of a pod at the API server. The pod is reconciled when others than this node
    /// have changed it.
    pub(crate) fn set_api_status(&mut self, uid: &PodUid, status: Option<SharedStatus>) {
        self.note_parsed(uid);
        let known = self.api_statuses.get(uid);
        // One copy of a status that was published and has come back, or that is the same as before.
        let same = self.last(uid).into_iter().chain(known);
        let status = status.map(|status| status.shared_with(same));
        let foreign = status.as_deref().map(previous_status::foreign_fields);
        let known = known.map(Deref::deref);
        let changed = known.map(previous_status::foreign_fields) != foreign;
        match status {
            Some(status) => self.api_statuses.insert(uid.clone(), status),
            None => self.api_statuses.remove(uid),
        };
        if changed {
            self.facts.mark_dirty(uid);
        }
    }

    pub(crate) fn api_status(&self, uid: &str) -> Option<&SharedStatus> {
        self.api_statuses.get(uid)
    }

    /// Pods to reconcile.
    pub(crate) fn take_dirty(&mut self) -> BTreeSet<PodUid> {
        self.facts.take_dirty(self.published.keys())
    }

    /// Recomputes the status of one pod.
    pub(crate) fn reconcile(&mut self, uid: &PodUid) -> StatusChange {
        if self.facts.is_gone(uid) {
            // A status that only the previous process instance published is removed from the file as well.
            let was_restored = self.restored.remove(uid).is_some();
            self.api_statuses.remove(uid);
            return match self.published.remove(uid) {
                None if !was_restored => StatusChange::Unknown,
                last => StatusChange::Removed {
                    last: last.map(Box::new),
                },
            };
        }
        self.note_parsed(uid);
        let current = self.published.get(uid);
        let last_manifest = current.map(|published| &published.manifest);
        let previous = |progress: &SyncProgress| self.previous(uid, progress);
        let Some(mut published) = compute(&self.facts, uid, last_manifest, previous) else {
            return StatusChange::Unchanged;
        };
        // One copy of a status that stays, or that the API server had first.
        let last = self.last(uid);
        let known = last.into_iter().chain(self.api_statuses.get(uid));
        published.status = published.status.shared_with(known);
        if current == Some(&published) {
            return StatusChange::Unchanged;
        }
        let changed = last != Some(&published.status);
        let was_admitted = current.is_none_or(|current| !current.unadmitted);
        let before = last.filter(|_| was_admitted).cloned();
        self.restored.remove(uid);
        self.published.insert(uid.clone(), published.clone());
        StatusChange::Updated {
            published: Box::new(published),
            changed,
            before,
        }
    }

    fn previous(&self, uid: &str, progress: &SyncProgress) -> Option<PodStatus> {
        let last = self.last(uid).filter(|last| same_run(last, progress));
        let api = self.api_statuses.get(uid);
        let desired = self.facts.desired(uid).map(|(_, desired)| desired);
        let is_restored = !self.published.contains_key(uid);
        let restored = last.zip(desired).filter(|_| is_restored);
        let restored = restored.map(|(last, desired)| {
            previous_status::forget_init_containers(last, &desired.manifest)
        });
        let last = restored.as_ref().or(last.map(Deref::deref));
        previous_status::previous(last, api.map(Deref::deref))
    }

    /// The last status of a pod, of this process instance or the previous.
    fn last(&self, uid: &str) -> Option<&SharedStatus> {
        let published = self.published.get(uid);
        published
            .map(|published| &published.status)
            .or_else(|| self.restored.get(uid))
    }

    /// The last status of every pod, to be persisted.
    pub(crate) fn statuses(&self) -> BTreeMap<PodUid, SharedStatus> {
        let published = self
            .published
            .iter()
            .map(|(uid, published)| (uid.clone(), published.status.clone()));
        self.restored.clone().into_iter().chain(published).collect()
    }

    /// Drops the restored statuses of pods that no longer exist; for use once everything has synced
    /// and is reconciled. Whether there were any.
    pub(crate) fn drop_restored(&mut self) -> bool {
        !std::mem::take(&mut self.restored).is_empty()
    }
}

/// Whether a status is of the present run of the pod: the same manifest put back starts over.
fn same_run(last: &PodStatus, progress: &SyncProgress) -> bool {
    match (&last.start_time, progress.acknowledged_at) {
        (Some(start), Some(acknowledged)) => start.0.as_second() == acknowledged.as_second(),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
