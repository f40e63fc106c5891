//! Cgroups of pods and of their classes, on both versions and with both drivers.

pub(super) mod limits;
mod reserved;
mod size;
mod tree;

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use polylet_cri::v1;
use polylet_kit::config::KubeletConfiguration;
use polylet_model::cgroup::{CgroupName, Driver};
use polylet_model::qos::{self, QosClass};
use polylet_model::resources;
use polylet_model::{Manifest, PodUid};
use tokio::sync::OnceCell;

use super::resources::period;
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
    /// What all pods together may use was written in this life.
    enforced: OnceCell<()>,
}

impl Cgroups {
    /// Below the configured root.
    pub fn new(kubelet: &KubeletConfiguration) -> Self {
        Cgroups {
            root: kubelet.cgroup_root.clone(),
            per_pod: kubelet.cgroups_per_qos,
            page_sizes: page_sizes(),
            configured: Driver::parse(&kubelet.cgroup_driver).unwrap_or(Driver::Cgroupfs),
            driver: OnceCell::new(),
            slices: Slices::default(),
            enforced: OnceCell::new(),
        }
    }

    /// Sizes of huge pages, in the kernel's words.
    pub fn page_sizes(&self) -> &[String] {
        &self.page_sizes
    }

    /// Bounds all pods together, once in each life of the process.
    pub async fn enforce(&self, hands: &Hands) {
        let driver = self.driver(hands).await;
        // A runtime that does not answer may have another driver than the configured one.
        if self.per_pod && self.driver.initialized() {
            let write = async || reserved::enforce(hands, driver).await;
            self.enforced.get_or_init(write).await;
        }
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
    let driver = hands.cgroups.driver(hands).await;
    if !hands.cgroups.per_pod {
        return Ok(Outcome::Done);
    }
    hands.cgroups.enforce(hands).await;
    let failed = |error: MakeError| trouble("CgroupError", &error);
    for (class, shares) in [
        (QosClass::Burstable, job.burstable_shares),
        (QosClass::BestEffort, resources::MIN_CPU_SHARES),
    ] {
        let path = hands.cgroups.class(class, driver);
        let limits = Limits::of_class(shares, hands.cgroups.page_sizes());
        make(hands, driver, &path, &limits).await.map_err(failed)?;
    }
    let path = hands.cgroups.pod(manifest).path(driver);
    let limits = resources::pod(manifest.spec(), kubelet.cpu_cfs_quota, period(kubelet));
    let limits = Limits::of_pod(&limits, kubelet.pod_pids_limit, hands.cgroups.page_sizes());
    make(hands, driver, &path, &limits).await.map_err(failed)?;
    Ok(Outcome::Done)
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
            weigh(hands, driver, job.burstable_shares).await;
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

/// What a pod that is gone weighed among its like, its class weighs no more.
async fn weigh(hands: &Hands, driver: Driver, burstable_shares: u64) {
    let path = hands.cgroups.class(QosClass::Burstable, driver);
    if !tree::exists(hands.machine.unified_cgroups, &path) {
        return;
    }
    let limits = Limits::of_class(burstable_shares, hands.cgroups.page_sizes());
    if let Err(error) = make(hands, driver, &path, &limits).await {
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
