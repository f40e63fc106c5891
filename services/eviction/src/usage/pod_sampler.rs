//! Measures the pods that may be evicted: candidates, and pods with local storage limits.

use std::collections::BTreeMap;
use std::time::Duration;

use polylet_cri::RuntimeClient;
use polylet_kit::HealthConditions;

use super::disk::{DiskMeasurer, MeasuredPod};
use super::{LocalStorageSample, NodePaths, SampledPod, local, pod, pod_ref};
use crate::core::rank::Candidate;
use crate::core::signal::{EvictionResource, Signal};
use crate::sample::cgroup::CgroupMounts;

/// The time to walk the files of all candidates: pods with more files have at least what was found.
const CANDIDATES_BUDGET: Duration = Duration::from_secs(15);
/// The same for limits, where nobody waits.
const LIMITS_BUDGET: Duration = Duration::from_secs(60);

/// Measures pods on demand. Clones share what is known about those that do not answer.
#[derive(Clone)]
pub(super) struct PodSampler {
    pub(super) mounts: CgroupMounts,
    pub(super) runtime: RuntimeClient,
    pub(super) paths: NodePaths,
    pub(super) disk: DiskMeasurer,
    pub(super) conditions: HealthConditions,
}

impl PodSampler {
    /// All running pods with their usage. Files are measured only for a signal about files: a walk can
    /// take long, and memory pressure cannot wait. `None` when nothing could be measured, or the runtime
    /// does not report the writable layers, which count for the signal: as upstream, nobody is evicted
    /// in place of the pod that fills its layer.
    pub(super) async fn candidates(
        &self,
        running: Vec<SampledPod>,
        signal: Signal,
        one_filesystem: bool,
    ) -> Option<Vec<Candidate>> {
        let with_files = matches!(
            signal.resource(),
            EvictionResource::Disk | EvictionResource::Inodes
        );
        let (layers, disk) = if with_files {
            let pods = running.iter().map(|(uid, spec, pod)| MeasuredPod {
                pod: pod_ref(uid, pod),
                paths: pod::candidate_paths(&self.paths, uid, spec, pod),
            });
            let disk = self
                .disk
                .measure("candidates", pods.collect(), CANDIDATES_BUDGET);
            let (layers, disk) = futures::join!(self.writable_layers(), disk);
            if layers.is_none() && signal.counts_layers(one_filesystem) {
                tracing::warn!("writable layers are unknown; evicting no pod");
                return None;
            }
            match disk {
                Ok(disk) => (layers.unwrap_or_default(), disk),
                Err(error) => {
                    let error = polylet_kit::report(&error);
                    tracing::warn!(error, "failed to measure candidates for eviction");
                    return None;
                }
            }
        } else {
            (BTreeMap::new(), BTreeMap::new())
        };
        let mounts = self.mounts.clone();
        let measure = move || {
            let candidate = |(uid, spec, pod): SampledPod| {
                let files = pod::CandidateFiles {
                    disk: disk.get(&uid),
                    layers: &layers,
                };
                pod::candidate(&mounts, with_files.then_some(&files), uid, &spec, &pod)
            };
            running.into_iter().map(candidate).collect()
        };
        // Cgroups always answer.
        tokio::task::spawn_blocking(measure).await.ok()
    }

    /// Measures the local storage of pods with limits. Pods that could not be measured are left out.
    pub(super) async fn measure_local_storage(
        &self,
        pods: Vec<SampledPod>,
    ) -> Vec<LocalStorageSample> {
        let with_layers = pods
            .iter()
            .any(|(_, spec, _)| spec.storage_limits.limits_containers());
        let (mut measured, mut kinds) = (Vec::new(), Vec::new());
        for (uid, spec, pod) in &pods {
            let (paths, kind) = local::limited_paths(&self.paths, uid, spec, pod);
            kinds.push(kind);
            measured.push(MeasuredPod {
                pod: pod_ref(uid, pod),
                paths,
            });
        }
        let layers = async {
            match with_layers {
                true => self.writable_layers().await.unwrap_or_default(),
                false => BTreeMap::new(),
            }
        };
        let disk = self.disk.measure("limits", measured, LIMITS_BUDGET);
        let (layers, disk) = futures::join!(layers, disk);
        let disk = disk.unwrap_or_else(|error| {
            let error = polylet_kit::report(&error);
            tracing::warn!(error, "failed to measure pods with local storage limits");
            BTreeMap::new()
        });
        let sample = |((uid, spec, pod), kinds): (SampledPod, Vec<local::LocalPath>)| {
            let measured = disk.get(&uid)?;
            Some(local::sample(uid, &spec, &pod, &layers, &kinds, measured))
        };
        pods.into_iter().zip(kinds).filter_map(sample).collect()
    }
}

#[cfg(test)]
#[path = "pod_sampler_tests.rs"]
mod tests;
