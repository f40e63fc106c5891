//! Measures the node and its pods: signals, candidates for eviction, local storage, the stats summary.
//! Nothing here decides, and nothing waits without a deadline.

mod cadvisor;
mod cpu_rates;
mod disk;
mod local;
mod observe;
mod pod;
mod pod_sampler;
mod summary;
mod summary_requests;
mod volume_dirs;
mod volume_health;
mod writable_layers;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use polylet_cri::RuntimeClient;
use polylet_kit::subprocess::{SubprocessLimits, SubprocessPool};
use polylet_kit::{Channel, Ctx};
use polylet_model::PodUid;
use polylet_model::cgroup::{CgroupDriver, CgroupName};
use polylet_model::qos::QosClass;
use polylet_wire::common::v1::PodRef;
use polylet_wire::volume::v1::volume_service_client::VolumeServiceClient;
use polylet_wire::volume::v1::{GetVolumeStatsRequest, VolumeStats};
use tokio::sync::Mutex;

use crate::DESCRIPTOR;
use crate::config::Config;
use crate::core::pods::{NodePods, PodUsageSpec, RuntimePod};
use crate::core::rank::Candidate;
use crate::core::signal::{Observations, Signal};
use crate::sample::cgroup::CgroupMounts;
use crate::sample::processes;
use cadvisor::SandboxImage;
use cpu_rates::CpuRates;
use disk::{DiskMeasurer, ServiceChildren};
pub(crate) use local::LocalStorageSample;
use observe::{NodeFilesystems, NodeObserver};
use pod_sampler::PodSampler;
pub(crate) use summary_requests::{
    SummaryError, SummaryRequest, SummaryRequests, TimedReport, UsageReport,
};
use volume_dirs::VolumeLister;
use volume_health::RemoteVolumes;
pub(crate) use volume_health::{FIRST_VOLUME_CHECK, VOLUME_CHECK_PERIOD};
use writable_layers::WritableLayers;

const RUNTIME_TIMEOUT: Duration = Duration::from_secs(10);
/// For volume-manager and the drivers that it calls.
const VOLUMES_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a health condition stays after a measurement has failed, unless one succeeds: perhaps nobody
/// asks again.
const NOT_MEASURED_DURATION: Duration = Duration::from_secs(60);
/// Child processes at once, of all purposes.
const CHILDREN: SubprocessLimits = SubprocessLimits {
    active: 8,
    total: 64,
    per_pod: 4,
};

const DRIVERS: [CgroupDriver; 2] = [CgroupDriver::Cgroupfs, CgroupDriver::Systemd];

/// A running pod: uid, spec and state.
pub(crate) type SampledPod = (String, PodUsageSpec, RuntimePod);

/// A copy of a running pod, to be measured beside the event loop.
pub(crate) fn sampled_pod((uid, spec, pod): (&PodUid, &PodUsageSpec, &RuntimePod)) -> SampledPod {
    (uid.to_string(), spec.clone(), pod.clone())
}

/// Measures on demand. Clones share the observer and the counters.
#[derive(Clone)]
pub(crate) struct Sampler {
    pods: PodSampler,
    volumes: Channel,
    observer: Rc<Mutex<NodeObserver>>,
    volume_lister: Rc<Mutex<VolumeLister>>,
    remote_volumes: Rc<Mutex<RemoteVolumes>>,
    rates: CpuRates,
    sandbox_image: SandboxImage,
}

#[derive(Clone)]
struct NodePaths {
    root: PathBuf,
    pod_logs: PathBuf,
    /// Possible cgroups of all pods, one for each cgroup driver.
    pods_cgroup: Vec<String>,
    /// Possible cgroups of the summary's system containers, by their names.
    system_cgroups: Vec<(&'static str, Vec<String>)>,
    /// Possible cgroups of the classes of pods.
    qos_cgroups: Vec<Vec<String>>,
}

/// Paths as a directory that pods cannot write to, and the path below it.
impl NodePaths {
    fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    fn volume(&self, uid: &str, plugin: &str, name: &str) -> (PathBuf, PathBuf) {
        (
            self.pods(),
            Path::new(uid).join("volumes").join(plugin).join(name),
        )
    }

    fn hosts_file(&self, uid: &str) -> (PathBuf, PathBuf) {
        (self.pods(), Path::new(uid).join("etc-hosts"))
    }

    fn pod_logs(&self, uid: &str, pod: &RuntimePod) -> (PathBuf, PathBuf) {
        let name = format!("{}_{}_{uid}", pod.namespace, pod.name);
        (self.pod_logs.clone(), PathBuf::from(name))
    }

    fn container_logs(&self, uid: &str, pod: &RuntimePod, name: &str) -> (PathBuf, PathBuf) {
        let (base, dir) = self.pod_logs(uid, pod);
        (base, dir.join(name))
    }
}

impl Sampler {
    pub(crate) fn new(config: &Config, ctx: &Ctx) -> Self {
        let pods = CgroupName::kubepods(&config.cgroup_root);
        let mounts = CgroupMounts::detect();
        let runtime = RuntimeClient::connect(&config.runtime_endpoint, RUNTIME_TIMEOUT);
        let pods_cgroup: Vec<String> = DRIVERS.map(|driver| pods.path(driver)).into();
        let paths = NodePaths {
            root: config.root_directory.clone(),
            pod_logs: config.pod_logs.clone(),
            system_cgroups: system_cgroups(config, &pods_cgroup),
            qos_cgroups: [QosClass::BestEffort, QosClass::Burstable]
                .map(|class| {
                    let name = CgroupName::qos_class(&config.cgroup_root, class);
                    DRIVERS.map(|driver| name.path(driver)).into()
                })
                .into(),
            pods_cgroup,
        };
        let observer = NodeObserver::new(
            runtime.clone(),
            mounts.clone(),
            paths.pods_cgroup.clone(),
            paths.root.clone(),
            ctx.conditions(),
        );
        let children = ServiceChildren {
            pool: SubprocessPool::new(&DESCRIPTOR, CHILDREN),
            notices: ctx.notices().clone(),
        };
        Self {
            pods: PodSampler {
                mounts,
                runtime,
                paths,
                disk: DiskMeasurer::new(Rc::new(children), ctx.conditions()),
                conditions: ctx.conditions(),
            },
            volumes: ctx.peer("volume-manager").channel(),
            observer: Rc::new(Mutex::new(observer)),
            volume_lister: Rc::default(),
            remote_volumes: Rc::default(),
            rates: CpuRates::default(),
            sandbox_image: SandboxImage::default(),
        }
    }

    /// The present signals, and the file systems behind them. Takes a few seconds at most.
    pub(crate) async fn observe(&self) -> (Observations, NodeFilesystems) {
        self.observer.lock().await.observe().await
    }

    /// Forgets what is known about pods that are gone.
    pub(crate) fn retain_pods(&self, pods: &NodePods) {
        self.pods
            .disk
            .retain_pods(|uid| pods.runtime.contains_key(uid));
    }

    /// All running pods with their usage: see [`PodSampler::candidates`].
    pub(crate) async fn candidates(
        &self,
        running: Vec<SampledPod>,
        signal: Signal,
        one_filesystem: bool,
    ) -> Option<Vec<Candidate>> {
        let candidates = self.pods.candidates(running, signal, one_filesystem);
        candidates.await
    }

    /// Measures the local storage of pods with limits. Pods that could not be measured are left out.
    pub(crate) async fn measure_local_storage(
        &self,
        pods: Vec<SampledPod>,
    ) -> Vec<LocalStorageSample> {
        self.pods.measure_local_storage(pods).await
    }

    /// The volumes of volume-manager by host path; none while it is unavailable.
    async fn volume_stats(&self) -> HashMap<PathBuf, VolumeStats> {
        let mut client = VolumeServiceClient::new(self.volumes.clone());
        let call = client.get_volume_stats(GetVolumeStatsRequest {});
        let response = match tokio::time::timeout(VOLUMES_TIMEOUT, call).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) => {
                tracing::debug!(error = status.message(), "failed to get volume stats");
                return HashMap::new();
            }
            Err(_) => {
                tracing::debug!("timed out getting volume stats");
                return HashMap::new();
            }
        };
        let volumes = response.volumes.into_iter();
        volumes
            .map(|volume| (PathBuf::from(&volume.host_path), volume))
            .collect()
    }
}

/// The cgroups of the agent, of other services of the system, and of all pods.
fn system_cgroups(config: &Config, pods: &[String]) -> Vec<(&'static str, Vec<String>)> {
    let mut cgroups = Vec::new();
    let agent = match config.agent_cgroup.as_str() {
        "" => processes::own_cgroup(),
        configured => Some(configured.to_owned()),
    };
    cgroups.extend(agent.map(|agent| ("kubelet", vec![agent])));
    if !config.system_cgroup.is_empty() {
        cgroups.push(("misc", vec![config.system_cgroup.clone()]));
    }
    cgroups.push(("pods", pods.to_vec()));
    cgroups
}

fn pod_ref(uid: &str, pod: &RuntimePod) -> PodRef {
    PodRef {
        uid: uid.to_owned(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
    }
}

/// Bytes and inodes that the runtime has on the file system of images, if it says so.
async fn image_usage(runtime: &RuntimeClient) -> Option<(u64, u64)> {
    let info = runtime.image_fs_info().await.ok()?;
    let usage = info.image_filesystems.into_iter().next()?;
    Some((usage.used_bytes?.value, usage.inodes_used?.value))
}
