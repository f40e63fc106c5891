use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt, TryStreamExt};
use polylet_harness::{HarnessError, Node, containerd, cri, machine};
use polylet_wire::runtime::v1::runtime_service_client::RuntimeServiceClient;
use polylet_wire::runtime::v1::security_profile::ProfileType;
use polylet_wire::runtime::v1::{
    ContainerConfig, ContainerMetadata, ContainerState, ContainerStatusRequest,
    CreateContainerRequest, DnsConfig, ImageSpec, LinuxContainerConfig, LinuxContainerResources,
    LinuxContainerSecurityContext, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, Mount,
    NamespaceMode, NamespaceOption, PodSandboxConfig, PodSandboxMetadata, RemoveContainerRequest,
    RemovePodSandboxRequest, RunPodSandboxRequest, SecurityProfile, StartContainerRequest,
    StopContainerRequest, StopPodSandboxRequest,
};
use rustix::process::Signal;
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::manifests::{IMAGE, INIT_SCRIPT, SCRIPT, VOLUMES_AND_TOKEN, VolumeMount};
use crate::pod_hooks::PodHooks;
use crate::pods::pid_of;

/// Paths that Kubernetes masks in a container by default.
const MASKED: &[&str] = &[
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: &[&str] = &[
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The minimal CRI calls for a pod of one container, requesting what Kubernetes guarantees a container
/// (namespaces, seccomp, masked paths, DNS, `/etc/hosts`, a termination log) and nothing else. The
/// sandboxes have no pod labels, so the node ignores them.
pub(crate) struct Baseline {
    client: RuntimeServiceClient<Channel>,
    cgroup: String,
    logs: String,
    files: PathBuf,
}

/// Times of many pods.
#[derive(Clone, Copy)]
pub(crate) struct BurstTimes {
    /// Until all had started.
    pub(crate) up: Duration,
    /// Until all were removed.
    pub(crate) gone: Duration,
}

/// What a pod has besides its container.
#[derive(Clone, Copy, Default)]
pub(crate) struct BaselineShape {
    /// An init container.
    pub(crate) init: bool,
    /// Directories that exist before. Those that are not read-only are mounted into the init container, too.
    pub(crate) volumes: &'static [VolumeMount],
}

struct BaselinePod {
    sandbox: String,
    /// Container ids, the main container last.
    containers: Vec<String>,
}

impl Baseline {
    pub(crate) fn new(node: &Node) -> Result<Self, HarnessError> {
        let socket = containerd::socket(node.scratch());
        let files = node.scratch().join("floor-files");
        let volumes = VOLUMES_AND_TOKEN.iter().map(|(name, ..)| files.join(name));
        let made = std::fs::create_dir_all(&files)
            .and_then(|()| volumes.into_iter().try_for_each(std::fs::create_dir_all))
            .and_then(|()| std::fs::write(files.join("hosts"), "127.0.0.1 localhost\n"))
            .and_then(|()| std::fs::write(files.join("end"), ""));
        made.map_err(|source| HarnessError::File {
            what: "write",
            path: files.clone(),
            source,
        })?;
        Ok(Self {
            files,
            client: RuntimeServiceClient::new(cri::channel(&socket)?),
            cgroup: format!("{}/floor", node.cgroup()),
            logs: node.scratch().join("floor-logs").display().to_string(),
        })
    }

    /// Start and removal time of one pod, with the hooks.
    pub(crate) async fn one(
        &self,
        n: usize,
        shape: BaselineShape,
        hooks: &impl PodHooks,
    ) -> Result<(Duration, Duration), HarnessError> {
        let began = Instant::now();
        let up = self.start_with(n, n, shape, hooks).await?;
        let started = began.elapsed();
        let began = Instant::now();
        self.stop_with(n, up, hooks).await?;
        Ok((started, began.elapsed()))
    }

    /// Time from the exit of a container's process until the runtime reports it. The runtime is polled,
    /// because it sends each event to one subscriber only, and the node needs them.
    pub(crate) async fn exit(&self, n: usize, node: &Node) -> Result<Duration, HarnessError> {
        let up = self.start(n, BaselineShape::default()).await?;
        let main = up.containers.last().cloned().unwrap_or_default();
        let pid = pid_of(node, &main).await?;
        let began = Instant::now();
        machine::signal(pid, Signal::KILL);
        self.ended(&main).await?;
        let took = began.elapsed();
        self.stop(up).await?;
        Ok(took)
    }

    /// Times to start `count` pods, a few at a time, and to remove them as many at a time, with the hooks.
    /// Calls `report` once all are up.
    pub(crate) async fn many(
        &self,
        count: usize,
        at_a_time: usize,
        hooks: &impl PodHooks,
        report: impl FnOnce(),
    ) -> Result<BurstTimes, HarnessError> {
        let began = Instant::now();
        let all: Vec<(usize, BaselinePod)> = stream::iter(0..count)
            .map(async |n| {
                let shape = BaselineShape::default();
                let up = self.start_with(n, 1000 + n, shape, hooks).await?;
                Ok::<_, HarnessError>((n, up))
            })
            .buffer_unordered(at_a_time)
            .try_collect()
            .await?;
        let up = began.elapsed();
        report();
        let began = Instant::now();
        stream::iter(all)
            .map(|(n, up)| self.stop_with(n, up, hooks))
            .buffer_unordered(at_a_time)
            .try_collect::<Vec<()>>()
            .await?;
        let gone = began.elapsed();
        Ok(BurstTimes { up, gone })
    }

    async fn start_with(
        &self,
        n: usize,
        sandbox: usize,
        shape: BaselineShape,
        hooks: &impl PodHooks,
    ) -> Result<BaselinePod, HarnessError> {
        hooks.before_start(n).await?;
        let up = self.start(sandbox, shape).await?;
        hooks.after_start(n).await?;
        Ok(up)
    }

    async fn stop_with(
        &self,
        n: usize,
        up: BaselinePod,
        hooks: &impl PodHooks,
    ) -> Result<(), HarnessError> {
        hooks.before_stop(n).await?;
        self.stop(up).await?;
        hooks.after_stop(n).await
    }

    fn mount(&self, file: &str, at: &str) -> Mount {
        Mount {
            host_path: self.files.join(file).display().to_string(),
            container_path: at.to_owned(),
            ..Mount::default()
        }
    }

    /// What each container has, and volumes.
    fn mounts<'a>(&self, volumes: impl Iterator<Item = &'a VolumeMount>) -> Vec<Mount> {
        let volumes = volumes.map(|(name, at, readonly)| Mount {
            readonly: *readonly,
            ..self.mount(name, at)
        });
        let files = [
            self.mount("hosts", "/etc/hosts"),
            self.mount("end", "/dev/termination-log"),
        ];
        files.into_iter().chain(volumes).collect()
    }

    async fn start(&self, n: usize, shape: BaselineShape) -> Result<BaselinePod, HarnessError> {
        let mut client = self.client.clone();
        let config = self.sandbox(n);
        let run = RunPodSandboxRequest {
            config: Some(config.clone()),
            ..RunPodSandboxRequest::default()
        };
        let sandbox = rpc("RunPodSandbox", client.run_pod_sandbox(run).await)?.pod_sandbox_id;
        let mut containers = Vec::new();
        if shape.init {
            let mounts = self.mounts(shape.volumes.iter().filter(|(_, _, readonly)| !readonly));
            let id = self
                .container(&sandbox, &config, ("init", INIT_SCRIPT), mounts)
                .await?;
            self.ended(&id).await?;
            containers.push(id);
        }
        let mounts = self.mounts(shape.volumes.iter());
        let main = self.container(&sandbox, &config, ("main", SCRIPT), mounts);
        containers.push(main.await?);
        Ok(BaselinePod {
            sandbox,
            containers,
        })
    }

    fn sandbox(&self, n: usize) -> PodSandboxConfig {
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: format!("floor-{n}"),
                uid: format!("floor-{n}"),
                namespace: "floor".to_owned(),
                attempt: 0,
            }),
            hostname: format!("floor-{n}"),
            log_directory: format!("{}/{n}", self.logs),
            labels: HashMap::new(),
            dns_config: Some(DnsConfig {
                servers: vec!["127.0.0.1".to_owned()],
                ..DnsConfig::default()
            }),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: self.cgroup.clone(),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(own_namespaces()),
                    seccomp: Some(profile(ProfileType::RuntimeDefault)),
                    ..LinuxSandboxSecurityContext::default()
                }),
                ..LinuxPodSandboxConfig::default()
            }),
            ..PodSandboxConfig::default()
        }
    }

    /// Creates and starts a container.
    async fn container(
        &self,
        sandbox: &str,
        of: &PodSandboxConfig,
        (name, script): (&str, &str),
        mounts: Vec<Mount>,
    ) -> Result<String, HarnessError> {
        let mut client = self.client.clone();
        let container = ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: name.to_owned(),
                attempt: 0,
            }),
            image: Some(ImageSpec {
                image: IMAGE.to_owned(),
                ..ImageSpec::default()
            }),
            command: ["sh", "-c", script].map(str::to_owned).into(),
            log_path: format!("{name}/0.log"),
            mounts,
            linux: Some(LinuxContainerConfig {
                resources: Some(LinuxContainerResources {
                    cpu_shares: 2,
                    oom_score_adj: 1000,
                    ..LinuxContainerResources::default()
                }),
                security_context: Some(LinuxContainerSecurityContext {
                    namespace_options: Some(own_namespaces()),
                    seccomp: Some(profile(ProfileType::Unconfined)),
                    masked_paths: MASKED.iter().map(|path| (*path).to_owned()).collect(),
                    readonly_paths: READ_ONLY.iter().map(|path| (*path).to_owned()).collect(),
                    ..LinuxContainerSecurityContext::default()
                }),
            }),
            ..ContainerConfig::default()
        };
        let create = CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(container),
            sandbox_config: Some(of.clone()),
        };
        let created = rpc("CreateContainer", client.create_container(create).await)?;
        let container_id = created.container_id;
        let start = StartContainerRequest {
            container_id: container_id.clone(),
        };
        rpc("StartContainer", client.start_container(start).await)?;
        Ok(container_id)
    }

    /// Waits until a container has exited. Polls, because the runtime may not support events.
    async fn ended(&self, container_id: &str) -> Result<(), HarnessError> {
        let mut client = self.client.clone();
        let mut pause = tokio::time::interval(Duration::from_millis(2));
        loop {
            pause.tick().await;
            let request = ContainerStatusRequest {
                container_id: container_id.to_owned(),
                verbose: false,
            };
            let answer = rpc("ContainerStatus", client.container_status(request).await)?;
            let exited = i32::from(ContainerState::ContainerExited);
            if answer.status.is_some_and(|status| status.state == exited) {
                return Ok(());
            }
        }
    }

    async fn stop(&self, up: BaselinePod) -> Result<(), HarnessError> {
        let mut client = self.client.clone();
        let main = up.containers.last().cloned().unwrap_or_default();
        let stop = StopContainerRequest {
            container_id: main,
            timeout: 5,
        };
        rpc("StopContainer", client.stop_container(stop).await)?;
        let stop = StopPodSandboxRequest {
            pod_sandbox_id: up.sandbox.clone(),
        };
        rpc("StopPodSandbox", client.stop_pod_sandbox(stop).await)?;
        for container_id in up.containers {
            let remove = RemoveContainerRequest { container_id };
            rpc("RemoveContainer", client.remove_container(remove).await)?;
        }
        let remove = RemovePodSandboxRequest {
            pod_sandbox_id: up.sandbox,
        };
        rpc("RemovePodSandbox", client.remove_pod_sandbox(remove).await)?;
        Ok(())
    }
}

/// Namespaces of a pod that shares none with the node.
fn own_namespaces() -> NamespaceOption {
    NamespaceOption {
        pid: NamespaceMode::Container.into(),
        ..NamespaceOption::default()
    }
}

fn profile(kind: ProfileType) -> SecurityProfile {
    SecurityProfile {
        profile_type: kind.into(),
        ..SecurityProfile::default()
    }
}

fn rpc<T>(call: &'static str, answer: Result<Response<T>, Status>) -> Result<T, HarnessError> {
    answer
        .map(Response::into_inner)
        .map_err(|source| HarnessError::Call {
            call,
            source: Box::new(source),
        })
}
