//! Execution of steps against the container runtime, the node's kernel and other services. Nothing is
//! decided here: each step of a plan is executed as it is.

pub mod call_permits;
pub mod capacity;
pub mod cgroup;
pub mod container;
pub mod container_metadata;
pub mod delay;
pub mod devices;
pub mod dns;
pub mod env;
pub mod env_file;
pub mod env_objects;
pub mod events;
pub mod files;
pub mod hook;
pub mod hosts;
pub mod image;
pub mod logs;
pub mod metrics;
pub mod mounts;
pub mod objects;
pub mod orphans;
pub mod plugin_devices;
pub mod pod_refresh;
pub mod resize;
pub mod resources;
pub mod runtime_class;
pub mod sandbox;
pub mod security;
pub mod service_env;
pub mod sub_paths;
pub mod terminate;
pub mod trace;
pub mod userns;
pub mod volumes;

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use polylet_cri::{CallContext, RuntimeClient};
use polylet_kit::{Channel, Ctx, MAX_MESSAGE_SIZE, boot_marker};
use polylet_machine::Machine;
use polylet_model::Manifest;
use polylet_model::node::ResourceList;
use polylet_model::resources::QosRequests;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::device::v1::device_service_client::DeviceServiceClient;
use polylet_wire::pleg::v1::pleg_service_client::PlegServiceClient;
use polylet_wire::podconfig::v1::object_service_client::ObjectServiceClient;
use polylet_wire::volume::v1::volume_service_client::VolumeServiceClient;

use self::call_permits::CallPermits;
use self::metrics::limits::LimitedCalls;
use crate::checkpoint::pod_store::CheckpointStore;
use crate::convert;
use crate::core::checkpoint::PodCheckpoint;
use crate::core::concurrency_limit::ConcurrencyLimit;
use crate::core::devices::{PodDeviceRequest, PreparedDevices};
use crate::core::runtime_state::{PodRuntimeState, SandboxRecord};
use crate::core::step::{PreparedSubPath, Step, StepFailure, StepOutcome};
use crate::core::volume_state::ObservedVolume;

/// Clients and node facts that steps are executed with. Shared by all steps.
pub struct RuntimeManager {
    /// The process context.
    pub ctx: Ctx,
    /// The container runtime.
    pub runtime: RuntimeClient,
    /// Pod states of the runtime.
    pub pleg: PlegServiceClient<Channel>,
    /// Mounts of volumes.
    pub volumes: VolumeServiceClient<Channel>,
    /// Devices of device plugins.
    pub devices: DeviceServiceClient<Channel>,
    /// ConfigMaps, Secrets and other objects, from pod-config.
    pub objects: ObjectServiceClient<Channel>,
    /// Services for environment variables.
    pub services: service_env::ServiceEnv,
    /// Checkpoints of pods.
    pub checkpoints: CheckpointStore,
    /// Image pulls.
    pub images: image::Images,
    /// The node's cgroups.
    pub cgroups: cgroup::Cgroups,
    /// Facts about the machine.
    pub machine: Machine,
    /// User namespaces of pods.
    pub userns: userns::UsernsManager,
    /// The node's allocatable resources.
    pub allocatable: ResourceList,
    /// The node's capacity without reserved resources, but with the eviction thresholds.
    pub unreserved: ResourceList,
    /// HTTP client of lifecycle hooks.
    pub http: polylet_http::Client,
    /// Stops of sandboxes, which call network plugins.
    sandbox_stops: CallPermits,
    /// Removals of containers and sandboxes.
    removals: CallPermits,
    /// The whole agent was started, and not this service alone: node events are recorded.
    pub is_agent_start: bool,
}

impl RuntimeManager {
    /// Creates all clients; nothing is called yet.
    pub fn new(
        ctx: &Ctx,
        checkpoints: CheckpointStore,
        image_state: image::ImageState,
    ) -> Rc<Self> {
        let kubelet = &ctx.config().kubelet;
        let runtime = RuntimeClient::connect(
            &kubelet.container_runtime_endpoint,
            kubelet.runtime_request_timeout,
        );
        let images =
            RuntimeClient::connect(kubelet.image_endpoint(), kubelet.runtime_request_timeout);
        let pod_config = ctx.peer("pod-config");
        let machine = Machine::read();
        Rc::new(RuntimeManager {
            pleg: PlegServiceClient::new(ctx.peer("pleg").channel()),
            volumes: VolumeServiceClient::new(ctx.peer("volume-manager").channel()),
            devices: DeviceServiceClient::new(ctx.peer("device-manager").channel()),
            objects: ObjectServiceClient::new(pod_config.channel())
                .max_decoding_message_size(MAX_MESSAGE_SIZE),
            services: service_env::ServiceEnv::default(),
            images: image::Images::new(images, kubelet, image_state),
            cgroups: cgroup::Cgroups::new(ctx),
            userns: userns::UsernsManager::open(ctx.config()),
            allocatable: polylet_machine::allocatable(ctx.config(), machine),
            unreserved: polylet_model::node::without_reserved(
                &polylet_machine::capacity(ctx.config(), machine),
                &[&kubelet.system_reserved, &kubelet.kube_reserved],
            ),
            machine,
            http: polylet_http::Client::for_probes(),
            sandbox_stops: CallPermits::new(
                LimitedCalls::StopSandbox,
                ConcurrencyLimit::measured(),
            ),
            removals: CallPermits::new(LimitedCalls::Remove, ConcurrencyLimit::measured()),
            is_agent_start: boot_marker::is_first_start(ctx),
            ctx: ctx.clone(),
            runtime,
            checkpoints,
        })
    }

    /// The directory of all pods' logs.
    pub fn pod_logs_dir(&self) -> PathBuf {
        PathBuf::from(&self.ctx.config().kubelet.pod_logs_dir)
    }
}

/// A step and what it is executed with. Cheap to create: everything large is shared.
pub struct StepContext {
    /// Name, namespace and UID of the pod.
    pub pod: PodRef,
    /// The pod's manifest; `None` for an orphan.
    pub manifest: Option<Manifest>,
    /// The step to execute.
    pub step: Step,
    /// The pod's state in the runtime.
    pub observed: Rc<PodRuntimeState>,
    /// The state of its volumes.
    pub volumes: Rc<[ObservedVolume]>,
    /// The devices that the pod requests, for steps that allocate or prepare them.
    pub device_request: Option<PodDeviceRequest>,
    /// Prepared devices of the container to create.
    pub prepared_devices: Option<Rc<PreparedDevices>>,
    /// Prepared subPaths of the container to create.
    pub sub_paths: Vec<PreparedSubPath>,
    /// The checkpoint to save, of steps that save one.
    pub checkpoint: Option<PodCheckpoint>,
    /// Sequence number of a volume declaration.
    pub sequence: u64,
    /// Epoch of the client ID of a volume declaration.
    pub client_epoch: u32,
    /// Resources requested by the pods of each QoS class once this step is done.
    pub qos_requests: QosRequests,
    /// Runtime handlers and whether they support user namespaces.
    pub runtime_handlers: Arc<userns::RuntimeHandlers>,
    /// The addresses in the node object's status, one per family; empty without an object.
    pub host_ips: Arc<[String]>,
    /// The span that causes the step.
    pub cause: Option<Cause>,
}

impl StepContext {
    /// The runtime client, for calls whose spans have this step's attributes.
    pub fn runtime(&self, manager: &RuntimeManager) -> RuntimeClient {
        let attempt_of = |id: &str| self.observed.container(id).map(|c| c.attempt);
        let (container, attempt) = match &self.step {
            Step::StartContainer {
                container, attempt, ..
            } => (Some(container), Some(*attempt)),
            Step::StopContainer { container, id, .. }
            | Step::PreStop { container, id, .. }
            | Step::PostStart { container, id, .. }
            | Step::RemoveForRestart { container, id }
            | Step::RemoveContainer { container, id } => (Some(container), attempt_of(id)),
            Step::PullImage { container }
            | Step::FindImage { container }
            | Step::PrepareSubPaths { container, .. } => (Some(container), None),
            Step::StopSandbox { id } | Step::RemoveSandbox { id } => {
                (None, self.sandbox(id).map(|sandbox| sandbox.attempt))
            }
            _ => (None, None),
        };
        manager.runtime.with_context(CallContext {
            pod_uid: Some(self.pod.uid.clone()),
            pod_name: Some(self.pod.name.clone()),
            namespace: Some(self.pod.namespace.clone()),
            container: container.cloned(),
            attempt,
        })
    }

    /// `<namespace>/<name>`, for logs.
    pub fn pod_name(&self) -> String {
        convert::pod_name(&self.pod)
    }

    /// Supplemental groups of the mounted volumes.
    pub fn volume_groups(&self) -> Vec<i64> {
        let mounted = self.volumes.iter().filter(|volume| volume.mounted);
        mounted
            .filter_map(|volume| volume.supplemental_group)
            .collect()
    }

    /// A sandbox by ID.
    pub fn sandbox(&self, id: &str) -> Option<&SandboxRecord> {
        self.observed.sandbox(id)
    }
}

/// Executes a step.
pub async fn execute(manager: &Rc<RuntimeManager>, context: &StepContext) -> StepOutcome {
    let result = match &context.step {
        Step::Checkpoint
        | Step::CheckpointTermination(_)
        | Step::CheckpointTerminated
        | Step::CheckpointAllocation { .. } => save_checkpoint(manager, context).await,
        Step::Resize { changes } => resize::resize(manager, context, changes).await,
        Step::AllocateDevices => plugin_devices::allocate(manager, context).await,
        Step::EnsureCgroup => cgroup::ensure(manager, context).await,
        Step::ApplyVolumes => volumes::apply(manager, context).await,
        Step::ReleaseVolumes => volumes::release(manager, context).await,
        Step::CreateSandbox { attempt } => sandbox::create(manager, context, *attempt).await,
        Step::PullImage { container } => image::ensure(manager, context, container).await,
        Step::FindImage { container } => image::find(manager, context, container).await,
        Step::PrepareDevices { container } => {
            plugin_devices::prepare(manager, context, container).await
        }
        Step::PrepareSubPaths {
            container,
            sandbox_id,
        } => sub_paths::prepare(manager, context, container, sandbox_id).await,
        Step::CreateContainer { .. } => container::create(manager, context).await,
        Step::StartContainer {
            container,
            attempt,
            id,
        } => container::start(manager, context, container, *attempt, id).await,
        Step::PostStart {
            id,
            container,
            hook,
        } => hook::post_start(manager, context, id, container, hook).await,
        Step::PreStop {
            id,
            container,
            hook,
            timeout,
        } => hook::pre_stop(manager, context, id, container, hook, *timeout).await,
        Step::StopContainer {
            id, grace_period, ..
        } => terminate::stop_container(manager, context, id, *grace_period).await,
        Step::StopSandbox { id } => terminate::stop_sandbox(manager, context, id).await,
        Step::RemoveForRestart { id, container } => {
            terminate::remove_for_restart(manager, context, id, container).await
        }
        Step::RemoveContainer { id, container } => {
            terminate::remove_container(manager, context, id, container).await
        }
        Step::RemoveSandbox { id } => terminate::remove_sandbox(manager, context, id).await,
        Step::RemoveCgroup => cgroup::remove(manager, context).await,
        Step::RemoveFiles => files::remove(manager, context).await,
    };
    let outcome = result.unwrap_or_else(StepOutcome::Failed);
    if let StepOutcome::Failed(failure) = &outcome {
        log_failure(context, failure);
    }
    events::record_outcome(manager, context, &outcome);
    metrics::count_outcome(context, &outcome);
    outcome
}

/// Within the step's span, so that the entry has its trace.
fn log_failure(context: &StepContext, failure: &StepFailure) {
    let (pod, pod_uid, step) = (context.pod_name(), &context.pod.uid, context.step.key());
    let (reason, error) = (&failure.reason, &failure.message);
    // The runtime still handles a call of a previous process instance, which ends soon.
    if failure.name_reserved {
        tracing::debug!(
            pod,
            pod_uid,
            ?step,
            error,
            "step conflicts with a call in progress; retrying"
        );
    } else {
        tracing::warn!(pod, pod_uid, ?step, reason, error, "step failed; retrying");
    }
}

async fn save_checkpoint(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
) -> Result<StepOutcome, StepFailure> {
    const REASON: &str = "CheckpointError";
    let (checkpoints, uid) = (manager.checkpoints.clone(), context.pod.uid.clone());
    let checkpoint = context.checkpoint.clone().unwrap_or_default();
    let saved = tokio::task::spawn_blocking(move || checkpoints.save(&uid, checkpoint)).await;
    if matches!(context.step, Step::CheckpointTerminated)
        && let Err(error) = manager.userns.release(&context.pod.uid)
    {
        tracing::warn!(pod = context.pod_name(), pod_uid = context.pod.uid, %error,
            "failed to release user namespace of terminated pod");
    }
    match saved {
        Ok(Ok(())) => Ok(StepOutcome::Done),
        Ok(Err(error)) => Err(failure_from(REASON, &error)),
        Err(error) => Err(failure_from(REASON, &error)),
    }
}

/// A failure with the message of an error and all its sources.
pub fn failure_from(reason: &str, error: &(dyn std::error::Error + 'static)) -> StepFailure {
    failure(reason, polylet_kit::report(error))
}

/// A failure with a message.
pub fn failure(reason: &str, message: impl Into<String>) -> StepFailure {
    StepFailure {
        reason: reason.to_owned(),
        message: message.into(),
        ..StepFailure::default()
    }
}

/// The failure of a container that cannot be configured.
pub fn config_error(message: impl Into<String>) -> StepFailure {
    failure(
        polylet_model::constants::reason::CREATE_CONTAINER_CONFIG_ERROR,
        message,
    )
}

/// The failure of a call to the runtime.
pub fn cri_failure(reason: &str, error: &polylet_cri::CriError) -> StepFailure {
    StepFailure {
        outcome_unknown: error.is_deadline() || error.is_unavailable(),
        name_reserved: error.message().contains("is reserved for"),
        ..failure(reason, error.message())
    }
}

/// The manifest, for steps that need one.
pub fn require_manifest(context: &StepContext) -> Result<&Manifest, StepFailure> {
    let manifest = context.manifest.as_ref();
    manifest.ok_or_else(|| failure("NoManifest", "the pod has no manifest"))
}

/// A manifest with a spec.
#[cfg(test)]
pub(crate) fn test_manifest(spec: serde_json::Value) -> Manifest {
    let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec});
    Manifest::from_json(pod.to_string().as_bytes()).expect("a manifest")
}
