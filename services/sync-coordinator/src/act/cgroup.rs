//! Cgroups of pods and of their classes, on both versions and with both drivers.

mod classes;
pub(super) mod limits;
mod reserved;
mod size;
mod tree;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodSpec;
use polylet_cri::v1;
use polylet_kit::Ctx;
use polylet_model::cgroup::{CgroupName, Driver};
use polylet_model::qos::{self, QosClass};
use polylet_model::resources::{self, ClassRequests, PodResources};
use polylet_model::{Manifest, PodUid};
use tokio::sync::{Notify, OnceCell};

use super::resources::{memory_qos, period};
use super::slice::Slices;
use super::{Hands, Job, manifest, said, trouble};
use crate::core::learn::{Outcome, Trouble};
use limits::Limits;

pub use size::{Now, memory_in_use, now, set};

/// The node's cgroups.
pub struct Cgroups {
    root: String,
    /// Pods have cgroups of their own.
    per_pod: bool,
    /// Sizes of huge pages, in the kernel's words.
    page_sizes: Vec<String>,
    configured: Driver,
    driver: OnceCell<Driver>,
    slices: Slices,
    /// What all pods together may use was tried once in this life.
    tried: OnceCell<()>,
    /// What that is.
    all_pods: RefCell<Limits>,
    /// A bound that could not be had yet: of all pods, or of classes that ask for so much.
    unmet: Notify,
    enforced: Cell<bool>,
    waiting: Cell<Option<ClassRequests>>,
}

/// How long until a bound is tried again that could not be had: evictions may make room for it.
const AGAIN: Duration = Duration::from_secs(60);

impl Cgroups {
    /// Below the configured root.
    pub fn new(ctx: &Ctx) -> Self {
        let kubelet = &ctx.config().kubelet;
        Cgroups {
            root: kubelet.cgroup_root.clone(),
            per_pod: kubelet.cgroups_per_qos,
            page_sizes: page_sizes(),
            configured: Driver::parse(&kubelet.cgroup_driver).unwrap_or(Driver::Cgroupfs),
            driver: OnceCell::new(),
            slices: Slices::default(),
            tried: OnceCell::new(),
            all_pods: RefCell::default(),
            unmet: Notify::new(),
            enforced: Cell::new(false),
            waiting: Cell::new(None),
        }
    }

    /// Sizes of huge pages, in the kernel's words.
    pub fn page_sizes(&self) -> &[String] {
        &self.page_sizes
    }

    /// Bounds all pods together, once in each life of the process, and tries again what could not
    /// be had.
    pub async fn keep(&self, hands: &Hands) {
        self.enforce(hands).await;
        loop {
            self.unmet.notified().await;
            tokio::time::sleep(AGAIN).await;
            let driver = self.driver(hands).await;
            if !self.enforced.get() {
                reserved::all_pods(hands, driver).await;
            }
            if let Some(asked) = self.waiting.take()
                && let Err(error) = self.weigh(hands, driver, asked).await
            {
                let error = polylet_kit::report(&error);
                tracing::warn!(error, "classes of pods keep their bounds");
            }
        }
    }

    async fn enforce(&self, hands: &Hands) {
        let driver = self.driver(hands).await;
        // A runtime that does not answer may have another driver than the configured one.
        if self.per_pod && self.driver.initialized() {
            let write = async || {
                reserved::all_pods(hands, driver).await;
                reserved::others(hands, driver).await;
            };
            self.tried.get_or_init(write).await;
        }
    }

    /// Makes the classes' cgroups, after what their pods ask for together.
    async fn weigh(
        &self,
        hands: &Hands,
        driver: Driver,
        asked: ClassRequests,
    ) -> Result<(), MakeError> {
        let settled = classes::refresh(hands, driver, asked).await?;
        self.waiting.set((!settled).then_some(asked));
        if !settled {
            self.unmet.notify_one();
        }
        Ok(())
    }

    /// The runtime's driver; the configured one where the runtime cannot say. Asked once.
    pub async fn driver(&self, hands: &Hands) -> Driver {
        let asked = self.driver.get_or_try_init(|| async {
            match hands.runtime.runtime_config().await {
                Ok(answer) => Ok(match answer.linux.map(|linux| linux.cgroup_driver()) {
                    Some(v1::CgroupDriver::Systemd) => Driver::Systemd,
                    Some(v1::CgroupDriver::Cgroupfs) => Driver::Cgroupfs,
                    None => self.configured,
                }),
                Err(error) if error.is_unimplemented() => Ok(self.configured),
                Err(error) => Err(error),
            }
        });
        asked.await.copied().unwrap_or(self.configured)
    }

    fn class(&self, class: QosClass, driver: Driver) -> String {
        CgroupName::class(&self.root, class).path(driver)
    }

    fn pod(&self, manifest: &Manifest) -> CgroupName {
        CgroupName::pod(&self.root, qos::class(manifest.spec()), manifest.uid())
    }

    /// Where the cgroups of all pods are: of each class, in every hierarchy.
    pub async fn class_places(&self, hands: &Hands) -> Vec<PathBuf> {
        let driver = self.driver(hands).await;
        [
            QosClass::Guaranteed,
            QosClass::Burstable,
            QosClass::BestEffort,
        ]
        .into_iter()
        .flat_map(|of| tree::places(hands.machine.unified_cgroups, &self.class(of, driver)))
        .collect()
    }

    /// What the runtime is told as the parent of a pod's containers.
    pub async fn parent_for_runtime(&self, hands: &Hands, manifest: &Manifest) -> String {
        if !self.per_pod {
            return self.root.clone();
        }
        self.pod(manifest)
            .parent_for_runtime(self.driver(hands).await)
    }
}

/// Makes the pod's cgroup and those above it, with their limits.
pub async fn ensure(hands: &Rc<Hands>, job: &Job) -> Result<Outcome, Trouble> {
    let manifest = manifest(job)?;
    let kubelet = &hands.ctx.config().kubelet;
    let cgroups = &hands.cgroups;
    let driver = cgroups.driver(hands).await;
    if !hands.cgroups.per_pod {
        return Ok(Outcome::Done);
    }
    hands.cgroups.enforce(hands).await;
    let failed = |error: MakeError| trouble("CgroupError", &error);
    let weighed = cgroups.weigh(hands, driver, job.class_requests).await;
    weighed.map_err(failed)?;
    let path = cgroups.pod(manifest).path(driver);
    let whole = resources::pod(manifest.spec(), kubelet.cpu_cfs_quota, period(kubelet));
    let limits = of_pod(hands, manifest.spec(), &whole);
    make(hands, driver, &path, &limits).await.map_err(failed)?;
    Ok(Outcome::Done)
}

/// A pod's limits as its cgroup has them.
fn of_pod(hands: &Hands, spec: &PodSpec, whole: &PodResources) -> Limits {
    let pids = hands.ctx.config().kubelet.pod_pids_limit;
    let files = memory_qos(hands).map(|qos| qos.of_pod(spec));
    let page_sizes = hands.cgroups.page_sizes();
    Limits::of_pod(whole, pids, page_sizes, files.unwrap_or_default())
}

/// Removes the pod's cgroup, and ends whatever should still be in it.
pub async fn remove(hands: &Rc<Hands>, job: &Job) -> Result<Outcome, Trouble> {
    if !hands.cgroups.per_pod {
        return Ok(Outcome::Done);
    }
    let driver = hands.cgroups.driver(hands).await;
    let uid = PodUid::from(job.pod.uid.as_str());
    let names: Vec<CgroupName> = match &job.manifest {
        Some(manifest) => vec![hands.cgroups.pod(manifest)],
        // An orphan's class is not known.
        None => [
            QosClass::Guaranteed,
            QosClass::Burstable,
            QosClass::BestEffort,
        ]
        .map(|class| CgroupName::pod(&hands.cgroups.root, class, &uid))
        .into(),
    };
    if driver == Driver::Systemd {
        for name in &names {
            let path = name.path(driver);
            let stopped = hands.cgroups.slices.stop(slice_of(&path)).await;
            stopped.map_err(|e| trouble("CgroupError", &e))?;
        }
    }
    let places: Vec<PathBuf> = names
        .iter()
        .flat_map(|name| tree::places(hands.machine.unified_cgroups, &name.path(driver)))
        .collect();
    for try_number in 0..6_u32 {
        let left: Vec<&PathBuf> = places
            .iter()
            .filter(|place| !tree::remove_tree(place))
            .collect();
        let Some(place) = left.first() else {
            reweigh(hands, job.class_requests).await;
            return Ok(Outcome::Done);
        };
        if try_number == 5 {
            return Err(said(
                "RemoveCgroupError",
                format!("{} is still in use", place.display()),
            ));
        }
        for place in left {
            tree::kill_all(place);
        }
        tokio::time::sleep(Duration::from_millis(5 << try_number)).await;
    }
    Ok(Outcome::Done)
}

/// What a pod that is gone or has changed weighed among its like, its class weighs no more.
pub async fn reweigh(hands: &Hands, asked: ClassRequests) {
    let cgroups = &hands.cgroups;
    let driver = cgroups.driver(hands).await;
    let path = cgroups.class(QosClass::Burstable, driver);
    if !cgroups.per_pod || !tree::exists(hands.machine.unified_cgroups, &path) {
        return;
    }
    if let Err(error) = cgroups.weigh(hands, driver, asked).await {
        tracing::warn!(
            error = polylet_kit::report(&error),
            "a class of pods keeps its weight"
        );
    }
}

/// Why a cgroup could not be had.
#[derive(Debug, thiserror::Error)]
enum MakeError {
    /// Its directory.
    #[error(transparent)]
    Directory(#[from] tree::DirectoryError),
    /// Its slice.
    #[error(transparent)]
    Slice(#[from] super::slice::SliceError),
}

/// Makes a cgroup and sets its limits; those above it are there.
async fn make(hands: &Hands, driver: Driver, path: &str, limits: &Limits) -> Result<(), MakeError> {
    let unified = hands.machine.unified_cgroups;
    if driver == Driver::Systemd {
        let slices = &hands.cgroups.slices;
        slices.ensure(slice_of(path), limits, unified).await?;
    }
    // Systemd makes no place in hierarchies that it does not use, and has no word for some limits.
    tree::make(unified, path)?;
    limits.write(unified, path);
    Ok(())
}

/// Makes a cgroup and sets its limits, and says what of them the kernel or systemd refuses.
async fn bound_to(
    hands: &Hands,
    driver: Driver,
    path: &str,
    limits: &Limits,
) -> Result<(), String> {
    let unified = hands.machine.unified_cgroups;
    if driver == Driver::Systemd {
        let slices = &hands.cgroups.slices;
        let asked = slices.ensure(slice_of(path), limits, unified).await;
        asked.map_err(|error| polylet_kit::report(&error))?;
    }
    tree::make(unified, path).map_err(|error| polylet_kit::report(&error))?;
    limits.try_write(unified, path)
}

/// The slice at the end of a path.
fn slice_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The kernel says `2MB` where the API says `2Mi`.
pub fn page_size(api: &str) -> String {
    match api.strip_suffix('i') {
        Some(stem) => format!("{stem}B"),
        None => api.to_owned(),
    }
}

/// Sizes of huge pages that this kernel has, in its own words.
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
