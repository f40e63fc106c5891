//! Values of a cgroup's files, on v1 and v2.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use polylet_model::resources::{self, CgroupFiles, PodResources, QosCgroup};

use super::tree::{MOUNT, below};
use crate::runtime::resources::page_size;

/// The huge page controller's value for no limit.
const UNLIMITED: u64 = 1 << 62;

/// Limits of one cgroup; absent ones are not written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Limits {
    /// CPU shares, as in v1.
    pub(super) cpu_shares: Option<u64>,
    /// CPU quota in microseconds per period; -1 for none.
    pub(super) cpu_quota: Option<i64>,
    /// CPU period in microseconds.
    pub(super) cpu_period: i64,
    /// Memory limit in bytes.
    pub(super) memory: Option<i64>,
    /// Maximum number of processes.
    pub(super) pids: Option<i64>,
    /// Limits in bytes by the kernel's name of a huge page size (`2MB`).
    pub(super) huge_pages: BTreeMap<String, u64>,
    /// Values of files that only v2 has.
    pub(super) files: CgroupFiles,
}

impl Limits {
    /// The limits of a pod; zero for huge pages that it does not request.
    pub(super) fn of_pod(
        pod: &PodResources,
        pids: i64,
        page_sizes: &[String],
        files: CgroupFiles,
    ) -> Self {
        let requested: BTreeMap<String, u64> = pod
            .huge_pages
            .iter()
            .map(|(size, bytes)| (page_size(size), *bytes))
            .collect();
        let of_size = |size: &String| (size.clone(), requested.get(size).copied().unwrap_or(0));
        Limits {
            cpu_shares: Some(pod.cpu_shares),
            cpu_quota: pod.cpu_quota,
            cpu_period: pod.cpu_period,
            memory: pod.memory_limit.filter(|bytes| *bytes > 0),
            pids: (pids > 0).then_some(pids),
            huge_pages: page_sizes.iter().map(of_size).collect(),
            files,
        }
    }

    /// The limits of a QoS class; none for huge pages.
    pub(super) fn of_class(class: &QosCgroup, page_sizes: &[String]) -> Self {
        Limits {
            cpu_shares: class.cpu_shares,
            memory: class.memory_limit,
            files: class.files.clone(),
            huge_pages: page_sizes.iter().map(|s| (s.clone(), UNLIMITED)).collect(),
            ..Limits::default()
        }
    }

    /// Controller, file and value, in the order of writing.
    pub(super) fn values(&self, unified: bool) -> Vec<(&'static str, String, String)> {
        let mut values = Vec::new();
        let mut add = |controller, file: &str, value: String| {
            let controller = if unified { "" } else { controller };
            values.push((controller, file.to_owned(), value));
        };
        if let Some(shares) = self.cpu_shares {
            if unified {
                add(
                    "cpu",
                    "cpu.weight",
                    resources::cpu_weight(shares).to_string(),
                );
            } else {
                add("cpu", "cpu.shares", shares.to_string());
            }
        }
        match (self.cpu_quota, unified) {
            (Some(quota), true) => {
                let max = if quota > 0 {
                    quota.to_string()
                } else {
                    "max".to_owned()
                };
                add("cpu", "cpu.max", format!("{max} {}", self.cpu_period));
            }
            (Some(quota), false) if quota > 0 => {
                add("cpu", "cpu.cfs_period_us", self.cpu_period.to_string());
                add("cpu", "cpu.cfs_quota_us", quota.to_string());
            }
            (Some(_), false) => add("cpu", "cpu.cfs_quota_us", "-1".to_owned()),
            (None, _) => {}
        }
        if let Some(bytes) = self.memory {
            let file = if unified {
                "memory.max"
            } else {
                "memory.limit_in_bytes"
            };
            add("memory", file, bytes.to_string());
        }
        if let Some(pids) = self.pids {
            add("pids", "pids.max", pids.to_string());
        }
        for (size, bytes) in &self.huge_pages {
            let file = if unified { "max" } else { "limit_in_bytes" };
            add(
                "hugetlb",
                &format!("hugetlb.{size}.{file}"),
                bytes.to_string(),
            );
        }
        if unified {
            for (file, value) in &self.files {
                add("memory", file, value.clone());
            }
        }
        values
    }

    /// Writes changed values. A refused one is logged: the runtime still sets the limits of the
    /// containers.
    pub(super) fn write(&self, unified: bool, path: &str) {
        self.write_each(unified, path, |file, value, error| {
            tracing::warn!(path = %file.display(), value, %error, "failed to set cgroup limit");
        });
    }

    /// Writes changed values, all of them even if one is refused.
    ///
    /// # Errors
    /// The first refused value.
    pub(super) fn try_write(&self, unified: bool, path: &str) -> Result<(), String> {
        let mut first = Ok(());
        self.write_each(unified, path, |file, value, error| {
            if first.is_ok() {
                let file = file.display();
                first = Err(format!("failed to write {value:?} to {file}: {error}"));
            }
        });
        first
    }

    fn write_each(
        &self,
        unified: bool,
        path: &str,
        mut on_error: impl FnMut(&Path, &str, std::io::Error),
    ) {
        for (controller, name, value) in self.values(unified) {
            let hierarchy = Path::new(MOUNT).join(controller);
            // Not every kernel has the huge page controller.
            if controller == "hugetlb" && !hierarchy.is_dir() {
                continue;
            }
            let file = below(&hierarchy, path).join(name);
            if unified && !file.exists() && file.to_string_lossy().contains("hugetlb.") {
                continue;
            }
            if fs::read_to_string(&file).is_ok_and(|now| now.trim_end() == value) {
                continue;
            }
            if let Err(error) = fs::write(&file, &value) {
                on_error(&file, &value, error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> PodResources {
        PodResources {
            cpu_shares: 512,
            cpu_quota: Some(50_000),
            cpu_period: 100_000,
            memory_limit: Some(1 << 20),
            huge_pages: [("2Mi".to_owned(), 4 << 20)].into(),
        }
    }

    fn lines(limits: &Limits, unified: bool) -> Vec<String> {
        let values = limits.values(unified).into_iter();
        values
            .map(|(controller, file, value)| format!("{controller}/{file}={value}"))
            .collect()
    }

    #[test]
    fn values_for_both_versions() {
        let files: CgroupFiles = [("memory.min".to_owned(), "64".to_owned())].into();
        let limits = Limits::of_pod(&pod(), 100, &["2MB".into(), "1GB".into()], files);
        assert_eq!(
            lines(&limits, false),
            [
                "cpu/cpu.shares=512",
                "cpu/cpu.cfs_period_us=100000",
                "cpu/cpu.cfs_quota_us=50000",
                "memory/memory.limit_in_bytes=1048576",
                "pids/pids.max=100",
                "hugetlb/hugetlb.1GB.limit_in_bytes=0",
                "hugetlb/hugetlb.2MB.limit_in_bytes=4194304",
            ]
        );
        assert_eq!(
            lines(&limits, true),
            [
                "/cpu.weight=20",
                "/cpu.max=50000 100000",
                "/memory.max=1048576",
                "/pids.max=100",
                "/hugetlb.1GB.max=0",
                "/hugetlb.2MB.max=4194304",
                "/memory.min=64",
            ]
        );
    }

    #[test]
    fn absence_of_a_limit_is_written() {
        let pod = PodResources {
            cpu_quota: Some(-1),
            memory_limit: Some(0),
            ..pod()
        };
        let limits = Limits::of_pod(&pod, -1, &[], CgroupFiles::new());
        assert_eq!(
            lines(&limits, false),
            ["cpu/cpu.shares=512", "cpu/cpu.cfs_quota_us=-1"]
        );
        assert_eq!(
            lines(&limits, true),
            ["/cpu.weight=20", "/cpu.max=max 100000"]
        );
        let class = QosCgroup {
            cpu_shares: Some(2),
            ..QosCgroup::default()
        };
        let class = Limits::of_class(&class, &["2MB".into()]);
        assert_eq!(
            lines(&class, false),
            [
                "cpu/cpu.shares=2",
                "hugetlb/hugetlb.2MB.limit_in_bytes=4611686018427387904"
            ]
        );
    }
}
