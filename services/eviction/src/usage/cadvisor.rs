//! All cgroups of the node, as cAdvisor lists them.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use jiff::Timestamp;
use polylet_cri::RuntimeClient;
use polylet_machine::Identity;

use super::summary::SummaryPod;
use super::{NodePaths, Sampler, pod};
use crate::core::exposition::machine::MachineInfo;
use crate::core::exposition::measured::{CadvisorSample, CgroupIdentity, CgroupSeries};
use crate::core::stats::{CgroupStats, MemoryUsage, MountedFilesystem};
use crate::sample::cgroup::CgroupMounts;
use crate::sample::cgroup_stats::{self, Detail};
use crate::sample::{machine, network, node, processes};

/// The image of sandboxes where the runtime does not say which one it is.
const SANDBOX_IMAGE: &str = "pause";

/// The image of sandboxes, once it is known. Clones share it.
#[derive(Clone, Default)]
pub(super) struct SandboxImage(Rc<OnceCell<String>>);

impl SandboxImage {
    /// The image that the runtime never removes. With pods it is there: a runtime that marks none then
    /// is not asked again.
    async fn get(&self, runtime: &RuntimeClient, has_pods: bool) -> String {
        if let Some(image) = self.0.get() {
            return image.clone();
        }
        let Ok(images) = runtime.list_images(None).await else {
            return SANDBOX_IMAGE.to_owned();
        };
        let mut pinned = images.into_iter().filter(|image| image.pinned);
        let image = pinned.find_map(|image| image.repo_tags.into_iter().next());
        let is_final = image.is_some() || has_pods;
        let image = image.unwrap_or_else(|| SANDBOX_IMAGE.to_owned());
        match is_final {
            true => self.0.get_or_init(|| image).clone(),
            false => image,
        }
    }
}

/// What was measured before the cgroups are read.
pub(super) struct CadvisorJob {
    mounts: CgroupMounts,
    paths: NodePaths,
    pods: Vec<SummaryPod>,
    filesystems: Vec<MountedFilesystem>,
    sandbox_image: String,
}

impl CadvisorJob {
    /// What does not need the cgroups.
    pub(super) async fn prepare(sampler: &Sampler, pods: Vec<SummaryPod>) -> Self {
        let excluded = vec![sampler.pods.paths.root.clone()];
        let filesystems = async {
            let mut observer = sampler.observer.lock().await;
            observer.mounted(excluded).await
        };
        let image = sampler
            .sandbox_image
            .get(&sampler.pods.runtime, !pods.is_empty());
        let (filesystems, sandbox_image) = futures::join!(filesystems, image);
        Self {
            mounts: sampler.pods.mounts.clone(),
            paths: sampler.pods.paths.clone(),
            pods,
            filesystems,
            sandbox_image,
        }
    }

    /// Reads the cgroups, `now`.
    pub(super) fn run(self, now: Timestamp) -> CadvisorSample {
        let mut cgroups = vec![self.root()];
        let system = self.paths.system_cgroups.iter();
        let groups = system.map(|(_, candidates)| candidates);
        let mut known = BTreeSet::from(["/"]);
        for candidates in groups.chain(&self.paths.qos_cgroups) {
            let id = self.mounts.first_existing(candidates);
            let id = id.filter(|id| known.insert(*id));
            cgroups.extend(id.map(|id| {
                self.series(CgroupIdentity {
                    id,
                    ..CgroupIdentity::default()
                })
            }));
        }
        for pod in &self.pods {
            self.pod(pod, &mut cgroups);
        }
        CadvisorSample {
            at: now,
            machine: machine_info(),
            has_pressure: self.mounts.is_unified() && cgroup_stats::has_pressure(),
            cgroups,
        }
    }

    fn series(&self, identity: CgroupIdentity<'_>) -> CgroupSeries {
        CgroupSeries {
            labels: identity.labels(),
            stats: self.mounts.stats(identity.id, Detail::Full),
            ..CgroupSeries::default()
        }
    }

    /// The root cgroup stands for the node.
    fn root(&self) -> CgroupSeries {
        let mut root = self.series(CgroupIdentity {
            id: "/",
            ..CgroupIdentity::default()
        });
        root.filesystems = self.filesystems.clone();
        root.network = network::interfaces(1).unwrap_or_default();
        root.stats.tasks.max_open_files = processes::max_open_files(1);
        complete_root(&mut root.stats);
        root
    }

    /// The cgroups of a pod, its sandbox, which has the network, and its containers.
    fn pod(&self, summary: &SummaryPod, cgroups: &mut Vec<CgroupSeries>) {
        let pod = &summary.pod;
        let Some(cgroup) = pod::pod_cgroup(&self.mounts, summary.spec.as_deref()) else {
            return;
        };
        let identity = CgroupIdentity {
            id: &cgroup,
            namespace: &pod.namespace,
            pod: &pod.name,
            ..CgroupIdentity::default()
        };
        cgroups.push(self.series(identity));
        if let Some(name) = &pod.sandbox
            && let Some(id) = pod::container_cgroup(&self.mounts, Some(&cgroup), name)
        {
            let image = &self.sandbox_image;
            let mut sandbox = self.container(CgroupIdentity {
                id: &id,
                name,
                image,
                ..identity
            });
            let interfaces = sandbox.stats.tasks.first.and_then(network::interfaces);
            sandbox.network = interfaces.unwrap_or_default();
            cgroups.push(sandbox);
        }
        for container in &pod.running {
            let id = pod::container_cgroup(&self.mounts, Some(&cgroup), &container.id);
            cgroups.extend(id.map(|id| {
                self.container(CgroupIdentity {
                    id: &id,
                    name: &container.id,
                    image: &container.image,
                    container: &container.name,
                    ..identity
                })
            }));
        }
    }

    fn container(&self, identity: CgroupIdentity<'_>) -> CgroupSeries {
        let mut series = self.series(identity);
        let tasks = &mut series.stats.tasks;
        tasks.max_open_files = tasks.first.and_then(processes::max_open_files);
        series
    }
}

/// The root cgroup has the machine's memory as its limit, and with cgroup v2 no memory of its own.
fn complete_root(stats: &mut CgroupStats) {
    let Some(memory) = node::memory() else { return };
    let own = stats.memory.get_or_insert_with(|| MemoryUsage {
        usage: memory.usage(),
        working_set: memory.working_set(),
        rss: memory.anonymous,
        inactive_file: memory.inactive_file,
        swap: memory.swap_total.saturating_sub(memory.swap_free),
        ..MemoryUsage::default()
    });
    own.limit = Some(memory.total);
    own.raw_swap_limit = Some(memory.swap_total);
}

fn machine_info() -> MachineInfo {
    let identity = Identity::read();
    let memory = node::memory().unwrap_or_default();
    let topology = machine::topology();
    MachineInfo {
        machine_id: identity.machine_id,
        system_uuid: identity.system_uuid,
        boot_id: identity.boot_id,
        kernel_version: identity.kernel_version,
        os_image: identity.os_image,
        cores: topology.cores,
        physical_cores: topology.physical_cores,
        sockets: topology.sockets,
        memory: memory.total,
        swap: memory.swap_total,
    }
}
