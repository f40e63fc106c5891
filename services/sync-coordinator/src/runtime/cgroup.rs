//! Cgroups of pods and of QoS classes, for cgroup v1 and v2 and both drivers.

mod limits;
mod node_allocatable;
pub(crate) mod pod_settings;
pub(crate) mod qos;
mod systemd_slice;
mod tree;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::PodSpec;
use polylet_cri::v1;
use polylet_kit::Ctx;
use polylet_model::cgroup::{CgroupDriver, CgroupName};
use polylet_model::qos::{QosClass, class as qos_class};
use polylet_model::resources::{self, PodResources, QosRequests};
use polylet_model::{Manifest, PodUid};
use tokio::sync::{Notify, OnceCell};

use super::resources::{memory_qos, period};
use super::{RuntimeManager, StepContext, failure, failure_from, metrics, require_manifest};
use crate::core::step::{StepFailure, StepOutcome};
use limits::Limits;
use systemd_slice::Slices;

pub use pod_settings::{CgroupSettings, memory_in_use, read_settings, write_settings};

/// The node's cgroups.
pub struct Cgroups {
    root: String,
    /// Pods have cgroups of their own (`cgroupsPerQOS`).
    per_pod: bool,
    /// Names of huge page sizes in the kernel.
    page_sizes: Vec<String>,
    configured: CgroupDriver,
    driver: OnceCell<CgroupDriver>,
    slices: Slices,
    /// Done once this process instance has tried to enforce node allocatable.
    node_allocatable_tried: OnceCell<()>,
    /// The limits of the cgroup of all pods.
    all_pods: RefCell<Limits>,
    /// Notifies that limits could not be set and are to be retried.
    retry: Notify,
    /// Whether the limits of the cgroup of all pods are set.
    enforced: Cell<bool>,
    /// Requests of the QoS classes whose limits are to be retried.
    pending_qos: Cell<Option<QosRequests>>,
    /// What the cgroups of the QoS classes were set from, unless it failed.
    applied_qos: Cell<Option<qos::AppliedRequests>>,
}

/// The delay before limits below the present usage are retried: evictions may reduce it.
const RETRY_DELAY: Duration = Duration::from_secs(60);

impl Cgroups {
    /// The cgroups below the configured root.
    pub fn new(ctx: &Ctx) -> Self {
        let kubelet = &ctx.config().kubelet;
        Cgroups {
            root: kubelet.cgroup_root.clone(),
            per_pod: kubelet.cgroups_per_qos,
            page_sizes: page_sizes(),
            configured: CgroupDriver::parse(&kubelet.cgroup_driver)
                .unwrap_or(CgroupDriver::Cgroupfs),
            driver: OnceCell::new(),
            slices: Slices::default(),
            node_allocatable_tried: OnceCell::new(),
            all_pods: RefCell::default(),
            retry: Notify::new(),
            enforced: Cell::new(false),
            pending_qos: Cell::new(None),
            applied_qos: Cell::new(None),
        }
    }

    /// Names of huge page sizes in the kernel.
    pub fn page_sizes(&self) -> &[String] {
        &self.page_sizes
    }

    /// Enforces node allocatable, and retries limits that could not be set. Never returns.
    pub async fn run(&self, manager: &RuntimeManager) {
        self.enforce(manager).await;
        loop {
            self.retry.notified().await;
            tokio::time::sleep(RETRY_DELAY).await;
            let driver = self.driver(manager).await;
            if !self.enforced.get() {
                node_allocatable::all_pods(manager, driver).await;
            }
            if let Some(requests) = self.pending_qos.take()
                && let Err(error) = self.update_qos(manager, driver, requests).await
            {
                let error = polylet_kit::report(&error);
                tracing::warn!(error, "failed to update QoS cgroups; keeping their limits");
            }
        }
    }

    async fn enforce(&self, manager: &RuntimeManager) {
        let driver = self.driver(manager).await;
        // While the runtime has not answered, its driver may differ from the configured one.
        if self.per_pod && self.driver.initialized() {
            let write = async || {
                node_allocatable::all_pods(manager, driver).await;
                node_allocatable::reserved(manager, driver).await;
            };
            self.node_allocatable_tried.get_or_init(write).await;
        }
    }

    /// Creates the cgroups of the QoS classes, with limits from the requests of their pods, unless that was just done.
    async fn update_qos(
        &self,
        manager: &RuntimeManager,
        driver: CgroupDriver,
        requests: QosRequests,
    ) -> Result<(), CgroupError> {
        let begun = Instant::now();
        if qos::are_current(manager, driver, requests, begun) {
            return Ok(());
        }
        self.applied_qos.set(None);
        let updated = qos::update(manager, driver, requests).await;
        metrics::count_cgroup("update", begun);
        let complete = updated?;
        let applied = qos::AppliedRequests {
            requests,
            at: begun,
        };
        self.applied_qos.set(complete.then_some(applied));
        self.pending_qos.set((!complete).then_some(requests));
        if !complete {
            self.retry.notify_one();
        }
        Ok(())
    }

    /// The runtime's cgroup driver, requested once; the configured one if the runtime reports none.
    pub async fn driver(&self, manager: &RuntimeManager) -> CgroupDriver {
        let driver = self.driver.get_or_try_init(|| async {
            match manager.runtime.runtime_config().await {
                Ok(response) => Ok(match response.linux.map(|linux| linux.cgroup_driver()) {
                    Some(v1::CgroupDriver::Systemd) => CgroupDriver::Systemd,
                    Some(v1::CgroupDriver::Cgroupfs) => CgroupDriver::Cgroupfs,
                    None => self.configured,
                }),
                Err(error) if error.is_unimplemented() => Ok(self.configured),
                Err(error) => Err(error),
            }
        });
        driver.await.copied().unwrap_or(self.configured)
    }

    fn qos_path(&self, class: QosClass, driver: CgroupDriver) -> String {
        CgroupName::qos_class(&self.root, class).path(driver)
    }

    fn pod_name(&self, manifest: &Manifest) -> CgroupName {
        CgroupName::pod(&self.root, qos_class(manifest.spec()), manifest.uid())
    }

    /// The directories with the cgroups of all pods: of each QoS class, in every hierarchy.
    pub async fn qos_dirs(&self, manager: &RuntimeManager) -> Vec<PathBuf> {
        let driver = self.driver(manager).await;
        [
            QosClass::Guaranteed,
            QosClass::Burstable,
            QosClass::BestEffort,
        ]
        .into_iter()
        .flat_map(|class| {
            tree::dirs(
                manager.machine.unified_cgroups,
                &self.qos_path(class, driver),
            )
        })
        .collect()
    }

    /// The parent cgroup of a pod's containers, for the runtime.
    pub async fn parent_for_runtime(
        &self,
        manager: &RuntimeManager,
        manifest: &Manifest,
    ) -> String {
        if !self.per_pod {
            return self.root.clone();
        }
        self.pod_name(manifest)
            .cgroup_parent(self.driver(manager).await)
    }
}

/// Creates the pod's cgroup and its parents, with their limits.
pub async fn ensure(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
) -> Result<StepOutcome, StepFailure> {
    let manifest = require_manifest(context)?;
    let kubelet = &manager.ctx.config().kubelet;
    let cgroups = &manager.cgroups;
    let driver = cgroups.driver(manager).await;
    if !manager.cgroups.per_pod {
        return Ok(StepOutcome::Done);
    }
    manager.cgroups.enforce(manager).await;
    let failed = |error: CgroupError| failure_from("CgroupError", &error);
    let updated = cgroups.update_qos(manager, driver, context.qos_requests);
    updated.await.map_err(failed)?;
    let path = cgroups.pod_name(manifest).path(driver);
    let resources =
        resources::pod_resources(manifest.spec(), kubelet.cpu_cfs_quota, period(kubelet));
    let limits = pod_limits(manager, manifest.spec(), &resources);
    let begun = Instant::now();
    let created = create(manager, driver, &path, &limits).await;
    metrics::count_cgroup("create", begun);
    created.map_err(failed)?;
    Ok(StepOutcome::Done)
}

/// The limits of a pod's cgroup.
fn pod_limits(manager: &RuntimeManager, spec: &PodSpec, resources: &PodResources) -> Limits {
    let pids = manager.ctx.config().kubelet.pod_pids_limit;
    let files = memory_qos(manager).map(|qos| qos.pod_files(spec));
    let page_sizes = manager.cgroups.page_sizes();
    Limits::of_pod(resources, pids, page_sizes, files.unwrap_or_default())
}

/// Removes the pod's cgroup, and kills processes that are still in it.
pub async fn remove(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
) -> Result<StepOutcome, StepFailure> {
    if !manager.cgroups.per_pod {
        return Ok(StepOutcome::Done);
    }
    let driver = manager.cgroups.driver(manager).await;
    let begun = Instant::now();
    let uid = PodUid::from(context.pod.uid.as_str());
    let names: Vec<CgroupName> = match &context.manifest {
        Some(manifest) => vec![manager.cgroups.pod_name(manifest)],
        // The QoS class of an orphan is unknown.
        None => [
            QosClass::Guaranteed,
            QosClass::Burstable,
            QosClass::BestEffort,
        ]
        .map(|class| CgroupName::pod(&manager.cgroups.root, class, &uid))
        .into(),
    };
    if driver == CgroupDriver::Systemd {
        for name in &names {
            let path = name.path(driver);
            let stopped = manager.cgroups.slices.stop(slice_of(&path)).await;
            stopped.map_err(|e| failure_from("CgroupError", &e))?;
        }
    }
    let dirs: Vec<PathBuf> = names
        .iter()
        .flat_map(|name| tree::dirs(manager.machine.unified_cgroups, &name.path(driver)))
        .collect();
    for attempt in 0..6_u32 {
        let left: Vec<&PathBuf> = dirs.iter().filter(|dir| !tree::remove_tree(dir)).collect();
        let Some(dir) = left.first() else {
            metrics::count_cgroup("destroy", begun);
            update_weights(manager, context.qos_requests).await;
            return Ok(StepOutcome::Done);
        };
        if attempt == 5 {
            return Err(failure(
                "RemoveCgroupError",
                format!("{} is still in use", dir.display()),
            ));
        }
        for dir in left {
            tree::kill_all(dir);
        }
        tokio::time::sleep(Duration::from_millis(5 << attempt)).await;
    }
    Ok(StepOutcome::Done)
}

/// Updates the weights of the QoS classes after a pod is gone or resized.
pub async fn update_weights(manager: &RuntimeManager, requests: QosRequests) {
    let cgroups = &manager.cgroups;
    let driver = cgroups.driver(manager).await;
    let path = cgroups.qos_path(QosClass::Burstable, driver);
    if !cgroups.per_pod || !tree::exists(manager.machine.unified_cgroups, &path) {
        return;
    }
    if let Err(error) = cgroups.update_qos(manager, driver, requests).await {
        tracing::warn!(
            error = polylet_kit::report(&error),
            "failed to update QoS cgroups; keeping their weights"
        );
    }
}

/// A cgroup could not be created.
#[derive(Debug, thiserror::Error)]
enum CgroupError {
    /// The kernel refused it.
    #[error(transparent)]
    Directory(#[from] tree::DirectoryError),
    /// systemd refused it.
    #[error(transparent)]
    Slice(#[from] systemd_slice::SliceError),
}

/// Creates a cgroup whose parents exist and sets its limits; limits that the kernel refuses are
/// logged.
async fn create(
    manager: &RuntimeManager,
    driver: CgroupDriver,
    path: &str,
    limits: &Limits,
) -> Result<(), CgroupError> {
    let unified = manager.machine.unified_cgroups;
    if driver == CgroupDriver::Systemd {
        let slices = &manager.cgroups.slices;
        slices.ensure(slice_of(path), limits, unified).await?;
    }
    // systemd does not use all hierarchies of v1, and has no property for some limits.
    tree::create(unified, path)?;
    limits.write(unified, path);
    Ok(())
}

/// Creates a cgroup and sets its limits.
///
/// # Errors
/// The first limit that the kernel or systemd refuses.
async fn create_strict(
    manager: &RuntimeManager,
    driver: CgroupDriver,
    path: &str,
    limits: &Limits,
) -> Result<(), String> {
    let unified = manager.machine.unified_cgroups;
    if driver == CgroupDriver::Systemd {
        let slices = &manager.cgroups.slices;
        let ensured = slices.ensure(slice_of(path), limits, unified).await;
        ensured.map_err(|error| polylet_kit::report(&error))?;
    }
    tree::create(unified, path).map_err(|error| polylet_kit::report(&error))?;
    limits.try_write(unified, path)
}

/// The name of the slice at the end of a path.
fn slice_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Names of the huge page sizes of this kernel.
fn page_sizes() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/kernel/mm/hugepages").into_iter();
    let size = |name: &str| {
        let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        let kib: u64 = kib.parse().ok()?;
        Some(match (kib % (1 << 20), kib % (1 << 10)) {
            (0, _) => format!("{}GB", kib >> 20),
            (_, 0) => format!("{}MB", kib >> 10),
            _ => format!("{kib}KB"),
        })
    };
    let names = entries.flatten().flatten().map(|entry| entry.file_name());
    let mut sizes: Vec<_> = names.filter_map(|name| size(name.to_str()?)).collect();
    sizes.sort();
    sizes
}
