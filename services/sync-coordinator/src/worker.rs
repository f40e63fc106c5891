//! One pod's worker: its state, and what goes with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use polylet_kit::CancellationToken;
use polylet_model::Manifest;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::sync::v1::PodSync;

use crate::convert;
use crate::core::hooks::Lifecycle;
use crate::core::plan::{Phase, Plan};
use crate::core::step::StepKey;
use crate::core::view::Pod;
use crate::core::wanted::Wanted;

/// One pod.
pub(crate) struct Worker {
    /// Names it.
    pub(crate) reference: PodRef,
    /// Which came first, among pods of one name.
    pub(crate) arrival: u64,
    /// All that decisions are made from.
    pub(crate) pod: Pod,
    /// The source that serves it; zero while it is known from the runtime alone.
    pub(crate) source: i32,
    /// As it should run.
    pub(crate) manifest: Option<Manifest>,
    /// What the next steps follow from.
    pub(crate) cause: Option<Cause>,
    /// The last step's own cause.
    pub(crate) last_step: Option<Cause>,
    /// Everything was as it should be once: what comes now is a story of its own.
    pub(crate) settled: bool,
    /// The manifest for which that was so.
    pub(crate) digest_synced: String,
    /// The last plan.
    pub(crate) plan: Plan,
    /// Ends steps that nobody needs.
    pub(crate) cancels: BTreeMap<StepKey, CancellationToken>,
    /// Waits for objects without which steps failed.
    pub(crate) awaited: BTreeMap<StepKey, CancellationToken>,
    /// Stops and hooks under way, as they are on disk.
    pub(crate) lifecycle_kept: Lifecycle,
    /// The runtime is being asked for this pod.
    pub(crate) refreshing: bool,
    /// The moment of its last word when it was asked.
    pub(crate) asked_at: Option<Timestamp>,
    /// And must be asked again.
    pub(crate) refresh_again: bool,
    /// The wait for a place among the pods that start, as a span.
    pub(crate) slot_wait: Option<tracing::Span>,
    /// Known from what it left on the node alone.
    pub(crate) relic: bool,
    /// When to look again.
    pub(crate) wake: Option<Timestamp>,
}

impl Worker {
    /// A pod of which nothing is known yet.
    pub(crate) fn new(reference: PodRef, arrival: u64) -> Self {
        Worker {
            pod: Pod {
                uid: reference.uid.clone(),
                ..Pod::default()
            },
            reference,
            arrival,
            source: 0,
            manifest: None,
            cause: None,
            last_step: None,
            settled: false,
            digest_synced: String::new(),
            plan: Plan::default(),
            cancels: BTreeMap::new(),
            awaited: BTreeMap::new(),
            lifecycle_kept: Lifecycle::default(),
            refreshing: false,
            asked_at: None,
            refresh_again: false,
            slot_wait: None,
            relic: false,
            wake: None,
        }
    }

    /// Its source serves it in this state. True when that is news.
    pub(crate) fn want(
        &mut self,
        source: i32,
        manifest: Manifest,
        wanted: Wanted,
        cause: Option<Cause>,
    ) -> bool {
        let news = self
            .manifest
            .as_ref()
            .is_none_or(|known| known.digest() != manifest.digest());
        self.source = source;
        self.pod.listed = true;
        if news {
            self.cause = cause;
            // Other containers are another try; labels and the like are not.
            let before = self.pod.wanted.as_ref();
            if before.is_none_or(|before| before.containers != wanted.containers) {
                self.pod.failures.retain(|key, _| {
                    !matches!(
                        key,
                        StepKey::Pull(_) | StepKey::Create(_) | StepKey::Start(_)
                    )
                });
            }
            self.pod.leaving |= wanted.deletion_grace.is_some();
            self.pod.wanted = Some(Arc::new(wanted));
        }
        // The same again is let go: decisions hold what was told first.
        if self.manifest.as_ref() != Some(&manifest) {
            self.manifest = Some(manifest);
        }
        news
    }

    /// As its containers are made: with the resources that it was given, while it asks for others.
    pub(crate) fn allocated_manifest(&self) -> Option<Manifest> {
        let manifest = self.manifest.as_ref()?;
        let given = self.pod.journal.allocated.as_ref();
        let given = given.filter(|given| given.differs(manifest.spec()));
        Some(given.map_or_else(|| manifest.clone(), |given| given.put_into(manifest)))
    }

    /// As its cgroup is bounded: with the resources from before a change that is under way.
    pub(crate) fn manifest_in_cgroup(&self) -> Option<Manifest> {
        match &self.pod.journal.in_cgroup {
            Some(before) => Some(before.put_into(self.manifest.as_ref()?)),
            None => self.allocated_manifest(),
        }
    }

    /// Ends steps that nobody needs any more.
    pub(crate) fn cancel(&mut self, which: impl Fn(&StepKey) -> bool) {
        self.cancels.retain(|key, cancel| {
            let needless = which(key);
            if needless {
                cancel.cancel();
            }
            !needless
        });
    }

    /// "name_namespace".
    pub(crate) fn full_name(&self) -> String {
        polylet_model::names::full_name(&self.reference.name, &self.reference.namespace)
    }

    /// Whether anything of it is here, or about to be.
    pub(crate) fn begun(&self) -> bool {
        !self.pod.flights.is_empty() || self.pod.observed.as_ref().is_some_and(|o| !o.is_empty())
    }

    /// Takes up a new plan; notes when all is as it should be.
    pub(crate) fn planned(&mut self, plan: Plan) {
        let quiet = plan.steps.is_empty() && plan.waiting.is_empty() && plan.notes.is_empty();
        if plan.phase == Phase::Syncing && quiet && self.pod.flights.is_empty() {
            self.settled = true;
            if let Some(wanted) = &self.pod.wanted {
                self.digest_synced.clone_from(&wanted.digest);
            }
        }
        self.plan = plan;
    }

    /// What is told of it; nothing of a pod that is not judged yet.
    pub(crate) fn told(&self) -> Option<PodSync> {
        if self.plan.phase == Phase::Unjudged {
            return None;
        }
        let last = self
            .manifest
            .as_ref()
            .filter(|_| !self.pod.listed)
            .map(Manifest::raw);
        let told = convert::Told {
            pod: &self.reference,
            digest_synced: &self.digest_synced,
            last_manifest: last,
            cause: self.last_step.as_ref(),
        };
        Some(convert::pod_sync(&told, &self.pod, &self.plan))
    }
}
