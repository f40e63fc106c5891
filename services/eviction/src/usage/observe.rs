//! Observes the signals. Each file system is asked on its own and has a deadline of its own, so that
//! one that does not answer hides nothing but itself.

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use polylet_cri::RuntimeClient;
use polylet_kit::{BlockingCall, HealthConditions, report};

use crate::core::signal::{Observation, Observations, Signal};
use crate::core::stats::MountedFilesystem;
use crate::sample::cgroup::CgroupMounts;
use crate::sample::filesystem::{self, Filesystem};
use crate::sample::{mounted, node};

/// How long one measurement may take. What is later counts as failed in this sync iteration.
const DEADLINE: Duration = Duration::from_secs(2);
/// How long a call has before the next one gets a thread of its own.
const HEAD_START: Duration = Duration::from_millis(100);
/// The reason of the health condition.
const UNKNOWN: &str = "SignalsUnknown";

/// Where the runtime stores images.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ImageFs {
    /// It did not say yet.
    Unknown,
    Path(PathBuf),
}

/// Observes the node.
pub(crate) struct NodeObserver {
    runtime: RuntimeClient,
    mounts: CgroupMounts,
    pods_cgroup: Vec<String>,
    root: PathBuf,
    image_fs: ImageFs,
    memory: BlockingCall<NodeSample>,
    node_fs: BlockingCall<std::io::Result<Filesystem>>,
    images: BlockingCall<std::io::Result<Filesystem>>,
    mounted: BlockingCall<Vec<MountedFilesystem>>,
    conditions: HealthConditions,
}

/// The signals that come from `/proc` and cgroups.
#[derive(Clone, Copy, Default)]
struct NodeSample {
    memory: Option<Observation>,
    /// `None` when the pods' cgroup has no limit.
    allocatable: Option<Observation>,
    pids: Option<Observation>,
}

/// The file systems of the node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeFilesystems {
    /// Of pods, volumes and logs.
    pub(crate) node: Option<Filesystem>,
    /// Of images and writable layers.
    pub(crate) image: Option<Filesystem>,
}

impl NodeFilesystems {
    /// Whether both are one; `None` while one of them is unknown.
    pub(crate) fn is_one(&self) -> Option<bool> {
        Some(self.node?.id == self.image?.id)
    }
}

impl NodeObserver {
    pub(crate) fn new(
        runtime: RuntimeClient,
        mounts: CgroupMounts,
        pods_cgroup: Vec<String>,
        root: PathBuf,
        conditions: HealthConditions,
    ) -> Self {
        Self {
            runtime,
            mounts,
            pods_cgroup,
            root,
            image_fs: ImageFs::Unknown,
            memory: BlockingCall::default(),
            node_fs: BlockingCall::default(),
            images: BlockingCall::default(),
            mounted: BlockingCall::default(),
            conditions,
        }
    }

    /// The present signals and the file systems behind them. What cannot be observed within two seconds
    /// has failed.
    pub(crate) async fn observe(&mut self) -> (Observations, NodeFilesystems) {
        let (mounts, pods_cgroup) = (self.mounts.clone(), self.pods_cgroup.clone());
        let (sample, filesystems) = staggered(
            self.memory
                .run(DEADLINE, move || sample_node(&mounts, &pods_cgroup)),
            filesystems(
                &self.runtime,
                &self.root,
                &mut self.image_fs,
                &mut self.node_fs,
                &mut self.images,
                &self.conditions,
            ),
        )
        .await;
        self.conditions.record(UNKNOWN, "memory and pids", &sample);
        let mut observations = Observations::default();
        match sample {
            Ok(sample) => insert_sample(&mut observations, sample),
            Err(_) => insert_sample(&mut observations, NodeSample::default()),
        }
        insert_filesystems(&mut observations, filesystems);
        (observations, filesystems)
    }

    /// The local file systems that are mounted, but those below `excluded`; none if they do not answer.
    pub(crate) async fn mounted(&mut self, excluded: Vec<PathBuf>) -> Vec<MountedFilesystem> {
        let measure = move || mounted::filesystems(&excluded);
        self.mounted
            .run(DEADLINE, measure)
            .await
            .unwrap_or_default()
    }

    /// The file systems alone.
    pub(crate) async fn filesystems(&mut self) -> NodeFilesystems {
        filesystems(
            &self.runtime,
            &self.root,
            &mut self.image_fs,
            &mut self.node_fs,
            &mut self.images,
            &self.conditions,
        )
        .await
    }
}

async fn filesystems(
    runtime: &RuntimeClient,
    root: &std::path::Path,
    image_fs: &mut ImageFs,
    node_call: &mut BlockingCall<std::io::Result<Filesystem>>,
    image_call: &mut BlockingCall<std::io::Result<Filesystem>>,
    conditions: &HealthConditions,
) -> NodeFilesystems {
    let node = statvfs("nodefs", root.to_owned(), node_call, conditions);
    let image = async {
        if *image_fs == ImageFs::Unknown
            && let Some(path) = image_fs_path(runtime, conditions).await
        {
            *image_fs = ImageFs::Path(path);
        }
        match image_fs {
            ImageFs::Path(path) => statvfs("imagefs", path.clone(), image_call, conditions).await,
            ImageFs::Unknown => None,
        }
    };
    let (node, image) = staggered(node, image).await;
    NodeFilesystems { node, image }
}

/// The results of both. The second one begins when the first one has ended, so that their calls have the
/// same thread, or after a moment, if that one hangs.
async fn staggered<A, B>(
    first: impl Future<Output = A>,
    second: impl Future<Output = B>,
) -> (A, B) {
    let mut first = pin!(first);
    match tokio::time::timeout(HEAD_START, &mut first).await {
        Ok(first) => (first, second.await),
        Err(_) => futures::join!(first, second),
    }
}

/// The directory of the runtime's images.
async fn image_fs_path(runtime: &RuntimeClient, conditions: &HealthConditions) -> Option<PathBuf> {
    let answer = tokio::time::timeout(DEADLINE, runtime.image_fs_info()).await;
    let path = match answer {
        Ok(Ok(info)) => info
            .image_filesystems
            .into_iter()
            .find_map(|fs| fs.fs_id)
            .map(|id| PathBuf::from(id.mountpoint))
            .ok_or_else(|| "the runtime reports no image file system".to_owned()),
        Ok(Err(error)) => Err(report(&error)),
        Err(_) => Err("the runtime does not answer".to_owned()),
    };
    match path {
        Ok(path) => {
            conditions.clear(UNKNOWN, "imagefs");
            Some(path)
        }
        Err(error) => {
            conditions.set(UNKNOWN, "imagefs", error);
            None
        }
    }
}

async fn statvfs(
    name: &str,
    path: PathBuf,
    call: &mut BlockingCall<std::io::Result<Filesystem>>,
    conditions: &HealthConditions,
) -> Option<Filesystem> {
    let shown = path.display().to_string();
    let measured = call.run(DEADLINE, move || filesystem::measure(&path)).await;
    let error = match measured {
        Ok(Ok(filesystem)) => {
            conditions.clear(UNKNOWN, name);
            return Some(filesystem);
        }
        Ok(Err(error)) => report(&error),
        Err(error) => report(&error),
    };
    conditions.set(UNKNOWN, name, format!("statvfs of {shown}: {error}"));
    None
}

fn sample_node(mounts: &CgroupMounts, pods_cgroup: &[String]) -> NodeSample {
    NodeSample {
        memory: node::memory().map(|memory| node::available_memory(&memory)),
        allocatable: allocatable_memory(mounts, pods_cgroup),
        pids: node::pids(),
    }
}

/// The available memory of the pods' cgroup, if it has a limit.
fn allocatable_memory(mounts: &CgroupMounts, pods_cgroup: &[String]) -> Option<Observation> {
    let memory = mounts.usage(mounts.first_existing(pods_cgroup)?).memory?;
    let capacity = memory.limit?;
    Some(Observation {
        available: capacity.saturating_sub(memory.working_set),
        capacity,
    })
}

fn insert_sample(observations: &mut Observations, sample: NodeSample) {
    insert(observations, Signal::MemoryAvailable, sample.memory);
    insert(observations, Signal::PidAvailable, sample.pids);
    if let Some(allocatable) = sample.allocatable {
        observations.insert(Signal::AllocatableMemoryAvailable, allocatable);
    } else if sample.memory.is_none() {
        observations.fail(Signal::AllocatableMemoryAvailable);
    }
}

fn insert(observations: &mut Observations, signal: Signal, observed: Option<Observation>) {
    match observed {
        Some(observation) => observations.insert(signal, observation),
        None => observations.fail(signal),
    }
}

fn insert_filesystems(observations: &mut Observations, filesystems: NodeFilesystems) {
    let NodeFilesystems { node, image } = filesystems;
    for (fs, bytes, inodes) in [
        (node, Signal::NodeFsAvailable, Signal::NodeFsInodesFree),
        (image, Signal::ImageFsAvailable, Signal::ImageFsInodesFree),
        // Containers are where images are.
        (
            image,
            Signal::ContainerFsAvailable,
            Signal::ContainerFsInodesFree,
        ),
    ] {
        insert(observations, bytes, fs.map(|fs| fs.bytes));
        match fs {
            // Some file systems have no limit on inodes.
            Some(fs) if fs.inodes.capacity == 0 => {}
            fs => insert(observations, inodes, fs.map(|fs| fs.inodes)),
        }
    }
}
