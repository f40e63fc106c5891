//! Cgroups of pods and of their classes, on both versions and with both drivers.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use polylet_cri::v1;
use polylet_kit::config::KubeletConfiguration;
use polylet_model::cgroup::{CgroupName, Driver};
use polylet_model::resources::{self, PodResources};
use polylet_model::{Manifest, PodUid, qos};
use tokio::sync::OnceCell;

use super::resources::{Machine, period};
use super::slice::{Limits, Slices};
use super::{Hands, Job, manifest, said, trouble};
use crate::core::learn::{Outcome, Trouble};

const MOUNT: &str = "/sys/fs/cgroup";
/// Where version 1 holds what we write.
const CONTROLLERS_V1: &[&str] = &["cpu", "memory", "pids"];
/// What a pod's cgroup needs in version 2, where the root has it.
const CONTROLLERS_V2: &[&str] = &["cpu", "cpuset", "memory", "hugetlb", "pids"];

/// The node's cgroups.
pub struct Cgroups {
    root: String,
    configured: Driver,
    driver: OnceCell<Driver>,
    slices: Slices,
}

impl Cgroups {
    /// Below the configured root.
    pub fn new(kubelet: &KubeletConfiguration) -> Self {
        Cgroups {
            root: kubelet.cgroup_root.clone(),
            configured: Driver::parse(&kubelet.cgroup_driver).unwrap_or(Driver::Cgroupfs),
            driver: OnceCell::new(),
            slices: Slices::default(),
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

    fn pod(&self, manifest: &Manifest) -> CgroupName {
        CgroupName::pod(&self.root, qos::class(manifest.spec()), manifest.uid())
    }

    /// Where the cgroups of all pods are: of each class, in every hierarchy.
    pub async fn class_places(&self, hands: &Hands) -> Vec<PathBuf> {
        let driver = self.driver(hands).await;
        let class = |class| CgroupName::class(&self.root, class).path(driver);
        [
            qos::QosClass::Guaranteed,
            qos::QosClass::Burstable,
            qos::QosClass::BestEffort,
        ]
        .into_iter()
        .flat_map(|of| places(hands.machine, &class(of)))
        .collect()
    }

    /// What the runtime is told as the parent of a pod's containers.
    pub async fn parent_for_runtime(&self, hands: &Hands, manifest: &Manifest) -> String {
        self.pod(manifest)
            .parent_for_runtime(self.driver(hands).await)
    }
}

/// Makes the pod's cgroup and those above it, with their limits.
pub async fn ensure(hands: &Rc<Hands>, job: &Job) -> Result<Outcome, Trouble> {
    let manifest = manifest(job)?;
    let kubelet = &hands.ctx.config().kubelet;
    let driver = hands.cgroups.driver(hands).await;
    let class = |class| CgroupName::class(&hands.cgroups.root, class).path(driver);
    make(hands, driver, &class(qos::QosClass::Guaranteed), None).await?;
    let shares = |shares: u64| PodResources {
        cpu_shares: shares,
        cpu_quota: None,
        cpu_period: period(kubelet),
        memory_limit: None,
        huge_pages: Default::default(),
    };
    for (class, shares) in [
        (
            class(qos::QosClass::Burstable),
            shares(job.burstable_shares),
        ),
        (
            class(qos::QosClass::BestEffort),
            shares(resources::MIN_CPU_SHARES),
        ),
    ] {
        let limits = Limits {
            of: shares,
            pids: -1,
        };
        make(hands, driver, &class, Some(&limits)).await?;
    }
    let path = hands.cgroups.pod(manifest).path(driver);
    let of = resources::pod(manifest.spec(), kubelet.cpu_cfs_quota, period(kubelet));
    let pids = kubelet.pod_pids_limit;
    make(hands, driver, &path, Some(&Limits { of, pids })).await?;
    Ok(Outcome::Done)
}

/// Removes the pod's cgroup, and ends whatever should still be in it.
pub async fn remove(hands: &Rc<Hands>, job: &Job) -> Result<Outcome, Trouble> {
    let driver = hands.cgroups.driver(hands).await;
    let uid = PodUid::from(job.pod.uid.as_str());
    let names: Vec<CgroupName> = match &job.manifest {
        Some(manifest) => vec![hands.cgroups.pod(manifest)],
        // An orphan's class is not known.
        None => [
            qos::QosClass::Guaranteed,
            qos::QosClass::Burstable,
            qos::QosClass::BestEffort,
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
        .flat_map(|name| places(hands.machine, &name.path(driver)))
        .collect();
    for try_number in 0..6_u32 {
        let left: Vec<&PathBuf> = places.iter().filter(|place| !remove_tree(place)).collect();
        let Some(place) = left.first() else {
            return Ok(Outcome::Done);
        };
        if try_number == 5 {
            return Err(said(
                "RemoveCgroupError",
                format!("{} is still in use", place.display()),
            ));
        }
        for place in left {
            kill_all(place);
        }
        tokio::time::sleep(Duration::from_millis(5 << try_number)).await;
    }
    Ok(Outcome::Done)
}

/// Makes a cgroup and sets its limits; those above it are there.
async fn make(
    hands: &Hands,
    driver: Driver,
    path: &str,
    limits: Option<&Limits>,
) -> Result<(), Trouble> {
    let machine = hands.machine;
    if driver == Driver::Systemd {
        let asked = hands
            .cgroups
            .slices
            .ensure(slice_of(path), limits, machine.unified_cgroups);
        asked.await.map_err(|e| trouble("CgroupError", &e))?;
    }
    // Systemd makes no place in hierarchies that it does not use, and has no word for some limits.
    directories(machine, path)?;
    if let Some(limits) = limits {
        write(machine, path, &limits.of, limits.pids);
    }
    Ok(())
}

/// The slice at the end of a path.
fn slice_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Makes the directories of a cgroup and of those above it.
fn directories(machine: Machine, path: &str) -> Result<(), Trouble> {
    let failed = |place: &Path, error: std::io::Error| {
        said(
            "CgroupError",
            format!("cgroup {}: {error}", place.display()),
        )
    };
    if !machine.unified_cgroups {
        for controller in CONTROLLERS_V1
            .iter()
            .map(|c| Path::new(MOUNT).join(c))
            .filter(|c| c.is_dir())
        {
            let place = below(&controller, path);
            fs::create_dir_all(&place).map_err(|error| failed(&place, error))?;
        }
        return Ok(());
    }
    let mut place = PathBuf::from(MOUNT);
    for part in path.split('/').filter(|part| !part.is_empty()) {
        // What is below gets its controllers from here; one that the root lacks is done without.
        for controller in CONTROLLERS_V2 {
            let _ = fs::write(
                place.join("cgroup.subtree_control"),
                format!("+{controller}"),
            );
        }
        place.push(part);
        match fs::create_dir(&place) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(failed(&place, error));
            }
            _ => {}
        }
    }
    for controller in CONTROLLERS_V2 {
        let _ = fs::write(
            place.join("cgroup.subtree_control"),
            format!("+{controller}"),
        );
    }
    Ok(())
}

/// Writes limits. What the kernel refuses is told and left: the runtime sets the
/// containers' own limits all the same.
fn write(machine: Machine, path: &str, limits: &PodResources, pids: i64) {
    let mut values: Vec<(&str, &str, String)> = Vec::new();
    if machine.unified_cgroups {
        values.push((
            "",
            "cpu.weight",
            resources::cpu_weight(limits.cpu_shares).to_string(),
        ));
        let most = |quota: i64| {
            if quota > 0 {
                quota.to_string()
            } else {
                "max".to_owned()
            }
        };
        values.extend(
            limits
                .cpu_quota
                .map(|q| ("", "cpu.max", format!("{} {}", most(q), limits.cpu_period))),
        );
        values.extend(
            limits
                .memory_limit
                .filter(|m| *m > 0)
                .map(|m| ("", "memory.max", m.to_string())),
        );
        values.extend((pids > 0).then(|| ("", "pids.max", pids.to_string())));
    } else {
        values.push(("cpu", "cpu.shares", limits.cpu_shares.to_string()));
        if let Some(quota) = limits.cpu_quota.filter(|q| *q > 0) {
            values.push(("cpu", "cpu.cfs_period_us", limits.cpu_period.to_string()));
            values.push(("cpu", "cpu.cfs_quota_us", quota.to_string()));
        }
        let memory = limits.memory_limit.filter(|m| *m > 0);
        values.extend(memory.map(|m| ("memory", "memory.limit_in_bytes", m.to_string())));
        values.extend((pids > 0).then(|| ("pids", "pids.max", pids.to_string())));
    }
    for (controller, file, value) in values {
        let place = below(&Path::new(MOUNT).join(controller), path).join(file);
        if let Err(error) = fs::write(&place, &value) {
            tracing::warn!(file = %place.display(), value, %error, "cgroup limit not set");
        }
    }
}

fn below(mount: &Path, path: &str) -> PathBuf {
    mount.join(path.trim_start_matches('/'))
}

/// Where a cgroup may be: in version 1 the runtime makes it in every hierarchy.
fn places(machine: Machine, path: &str) -> Vec<PathBuf> {
    if machine.unified_cgroups {
        return vec![below(Path::new(MOUNT), path)];
    }
    let hierarchies = fs::read_dir(MOUNT).into_iter().flatten().flatten();
    // Some hierarchies have a second name, which is a link.
    let own = hierarchies.filter(|h| h.file_type().is_ok_and(|t| t.is_dir()));
    own.map(|h| below(&h.path(), path))
        .filter(|place| place.is_dir())
        .collect()
}

/// Removes a cgroup with those below it; true when it is gone.
fn remove_tree(place: &Path) -> bool {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    match fs::remove_dir(place) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Ends every process in a cgroup and below.
fn kill_all(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            kill_all(&entry.path());
        }
    }
    let pids = fs::read_to_string(place.join("cgroup.procs")).unwrap_or_default();
    for pid in pids
        .lines()
        .filter_map(|line| line.parse().ok())
        .filter_map(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
