//! Effects: each step of a plan, carried out to the letter.

pub mod cgroup;
pub mod container;
pub mod devices;
pub mod env;
pub mod env_file;
pub mod files;
pub mod hook;
pub mod hosts;
pub mod image;
pub mod leftovers;
pub mod logs;
pub mod mounts;
pub mod node;
pub mod notices;
pub mod object;
pub mod refresh;
pub mod resize;
pub mod resolver;
pub mod resources;
pub mod runtime_class;
pub mod sandbox;
pub mod security;
pub mod services;
pub mod slice;
pub mod stop;
pub mod trace;
pub mod userns;
pub mod volumes;

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use polylet_cri::{About, Runtime};
use polylet_kit::{Channel, Ctx, LARGEST_MESSAGE, started};
use polylet_machine::Machine;
use polylet_model::Manifest;
use polylet_model::node::Numbers;
use polylet_model::resources::ClassRequests;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::pleg::v1::pleg_service_client::PlegServiceClient;
use polylet_wire::podconfig::v1::object_service_client::ObjectServiceClient;
use polylet_wire::volume::v1::volume_service_client::VolumeServiceClient;
use tokio::sync::Semaphore;

use crate::core::learn::{Outcome, Trouble};
use crate::core::observed::{Observed, SeenSandbox};
use crate::core::step::Step;
use crate::core::view::{Journal, SeenVolume};
use crate::journal::Book;

/// How many calls that end something are under way at once: tearing a sandbox down
/// loads the runtime like making one.
const TEARDOWNS: usize = 16;

/// What effects work with. Shared by all of them.
pub struct Hands {
    /// The process.
    pub ctx: Ctx,
    /// The container runtime.
    pub runtime: Runtime,
    /// Who says what the runtime holds.
    pub pleg: PlegServiceClient<Channel>,
    /// Who mounts.
    pub volumes: VolumeServiceClient<Channel>,
    /// ConfigMaps and Secrets.
    pub objects: ObjectServiceClient<Channel>,
    /// The Services that containers are told of.
    pub services: services::Services,
    /// The journal.
    pub book: Book,
    /// Images on their way.
    pub images: image::Images,
    /// The node's cgroups.
    pub cgroups: cgroup::Cgroups,
    /// The node in numbers.
    pub machine: Machine,
    /// User ids of pods.
    pub userns: userns::Userns,
    /// What all pods together may ask for.
    pub allocatable: Numbers,
    /// What the node has without what is reserved: eviction keeps some of it free.
    pub most: Numbers,
    /// TLS of hooks.
    pub tls: polylet_http::Tls,
    /// Places for calls that end something.
    pub teardowns: Semaphore,
    /// Polylet was started, and not this service alone: people are told of the node.
    pub is_start: bool,
}

impl Hands {
    /// Takes hold of everything; nothing is called yet.
    pub fn new(ctx: &Ctx, book: Book, kept: image::Kept) -> Rc<Self> {
        let kubelet = &ctx.config().kubelet;
        let runtime = Runtime::connect(
            &kubelet.container_runtime_endpoint,
            kubelet.runtime_request_timeout,
        );
        let images = Runtime::connect(kubelet.image_endpoint(), kubelet.runtime_request_timeout);
        let pod_config = ctx.peer("pod-config");
        let machine = Machine::read();
        Rc::new(Hands {
            pleg: PlegServiceClient::new(ctx.peer("pleg").channel()),
            volumes: VolumeServiceClient::new(ctx.peer("volume-manager").channel()),
            objects: ObjectServiceClient::new(pod_config.channel())
                .max_decoding_message_size(LARGEST_MESSAGE),
            services: services::Services::default(),
            images: image::Images::new(images, kubelet, kept),
            cgroups: cgroup::Cgroups::new(ctx),
            userns: userns::Userns::open(ctx.config()),
            allocatable: polylet_machine::allocatable(ctx.config(), machine),
            most: polylet_model::node::without_reserved(
                &polylet_machine::capacity(ctx.config(), machine),
                &[&kubelet.system_reserved, &kubelet.kube_reserved],
            ),
            machine,
            tls: polylet_http::Tls::default(),
            teardowns: Semaphore::new(TEARDOWNS),
            is_start: started::for_the_first_time(ctx),
            ctx: ctx.clone(),
            runtime,
            book,
        })
    }

    /// Where pods' logs are.
    pub fn pod_logs(&self) -> PathBuf {
        PathBuf::from(&self.ctx.config().kubelet.pod_logs_dir)
    }
}

/// One step with all that it needs to know.
pub struct Job {
    /// The pod.
    pub pod: PodRef,
    /// Its manifest; none of an orphan.
    pub manifest: Option<Manifest>,
    /// What to do.
    pub step: Step,
    /// What the runtime holds.
    pub observed: Observed,
    /// Where its volumes are.
    pub volumes: Vec<SeenVolume>,
    /// What is to be on disk about it.
    pub journal: Journal,
    /// Number of a declaration to volume-manager.
    pub sequence: u64,
    /// Which name of this life it declares under.
    pub declarer: u32,
    /// What the pods of each class ask for together, once this step is done.
    pub class_requests: ClassRequests,
    /// Which handlers of the runtime can give a pod a user namespace.
    pub handlers: Arc<userns::Handlers>,
    /// The node's addresses as its object tells them, one of each family; empty while there is none.
    pub host_ips: Arc<[String]>,
    /// What set it off.
    pub cause: Option<Cause>,
}

impl Job {
    /// The runtime, for calls whose spans say what they are about.
    pub fn runtime(&self, hands: &Hands) -> Runtime {
        let attempt_of = |id: &str| self.observed.container(id).map(|seen| seen.attempt);
        let (container, attempt) = match &self.step {
            Step::StartContainer {
                container, attempt, ..
            } => (Some(container), Some(*attempt)),
            Step::StopContainer { container, id, .. }
            | Step::PreStop { container, id, .. }
            | Step::PostStart { container, id, .. }
            | Step::ResetContainer { container, id }
            | Step::RemoveContainer { container, id } => (Some(container), attempt_of(id)),
            Step::PullImage { container } => (Some(container), None),
            Step::StopSandbox { id } | Step::RemoveSandbox { id } => {
                (None, self.sandbox(id).map(|seen| seen.attempt))
            }
            _ => (None, None),
        };
        hands.runtime.about(About {
            pod_uid: Some(self.pod.uid.clone()),
            pod_name: Some(self.pod.name.clone()),
            namespace: Some(self.pod.namespace.clone()),
            container: container.cloned(),
            attempt,
        })
    }

    /// Groups that its volumes name.
    pub fn volume_groups(&self) -> Vec<i64> {
        let groups = self.volumes.iter().filter(|volume| volume.mounted);
        groups.filter_map(|volume| volume.group).collect()
    }

    /// The sandbox of an id.
    pub fn sandbox(&self, id: &str) -> Option<&SeenSandbox> {
        self.observed.sandbox(id)
    }
}

/// Carries a step out.
pub async fn carry_out(hands: &Rc<Hands>, job: &Job) -> Outcome {
    let done = match &job.step {
        Step::Journal | Step::Decide(_) | Step::TornDown | Step::Allocate { .. } => {
            journal(hands, job).await
        }
        Step::Resize { changes } => resize::carry(hands, job, changes).await,
        Step::EnsureCgroup => cgroup::ensure(hands, job).await,
        Step::ApplyVolumes => volumes::apply(hands, job).await,
        Step::ReleaseVolumes => volumes::release(hands, job).await,
        Step::CreateSandbox { attempt } => sandbox::create(hands, job, *attempt).await,
        Step::PullImage { container } => image::ensure(hands, job, container).await,
        Step::CreateContainer { .. } => container::create(hands, job).await,
        Step::StartContainer {
            container,
            attempt,
            id,
        } => container::start(hands, job, container, *attempt, id).await,
        Step::PostStart {
            id,
            container,
            hook,
        } => hook::post_start(hands, job, id, container, hook).await,
        Step::PreStop {
            id,
            container,
            hook,
            limit,
        } => hook::pre_stop(hands, job, id, container, hook, *limit).await,
        Step::StopContainer { id, grace, .. } => stop::container(hands, job, id, *grace).await,
        Step::StopSandbox { id } => stop::sandbox(hands, job, id).await,
        Step::ResetContainer { id, container } => {
            stop::reset_container(hands, job, id, container).await
        }
        Step::RemoveContainer { id, container } => {
            stop::remove_container(hands, job, id, container).await
        }
        Step::RemoveSandbox { id } => stop::remove_sandbox(hands, job, id).await,
        Step::RemoveCgroup => cgroup::remove(hands, job).await,
        Step::RemoveFiles => files::remove(hands, job).await,
    };
    let outcome = done.unwrap_or_else(Outcome::Failed);
    notices::after(hands, job, &outcome);
    outcome
}

async fn journal(hands: &Rc<Hands>, job: &Job) -> Result<Outcome, Trouble> {
    let (book, uid) = (hands.book.clone(), job.pod.uid.clone());
    let journal = job.journal.after(&job.step);
    let saved = tokio::task::spawn_blocking(move || book.save(&uid, &journal)).await;
    if matches!(job.step, Step::TornDown)
        && let Err(error) = hands.userns.release(&job.pod.uid)
    {
        tracing::warn!(k8s.pod.uid = job.pod.uid, %error, "the pod's user namespace is kept");
    }
    match saved {
        Ok(Ok(())) => Ok(Outcome::Done),
        Ok(Err(error)) => Err(trouble("JournalError", &error)),
        Err(error) => Err(trouble("JournalError", &error)),
    }
}

/// A trouble out of an error and all its causes.
pub fn trouble(reason: &str, error: &(dyn std::error::Error + 'static)) -> Trouble {
    Trouble {
        reason: reason.to_owned(),
        message: polylet_kit::report(error),
        ..Trouble::default()
    }
}

/// A trouble in words.
pub fn said(reason: &str, message: impl Into<String>) -> Trouble {
    Trouble {
        reason: reason.to_owned(),
        message: message.into(),
        ..Trouble::default()
    }
}

/// A failed call to the runtime.
pub fn runtime_said(reason: &str, error: &polylet_cri::CriError) -> Trouble {
    Trouble {
        reason: reason.to_owned(),
        message: error.message().to_owned(),
        unknown: error.is_deadline() || error.is_unavailable(),
        reserved: error.message().contains("is reserved for"),
        ..Trouble::default()
    }
}

/// The manifest of a step that has one by its nature.
pub fn manifest(job: &Job) -> Result<&Manifest, Trouble> {
    job.manifest
        .as_ref()
        .ok_or_else(|| said("NoManifest", "the pod's manifest is not known"))
}

/// A manifest out of a pod's spec.
#[cfg(test)]
pub(crate) fn manifest_of(spec: serde_json::Value) -> Manifest {
    let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec});
    Manifest::from_json(pod.to_string().as_bytes()).expect("a manifest")
}
