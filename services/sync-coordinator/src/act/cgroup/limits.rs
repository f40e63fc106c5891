//! What is written into a cgroup's files, on either version.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use polylet_model::resources::{self, ClassResources, Files, PodResources};

use super::tree::{MOUNT, below};

/// No bound at all, in the words of the huge page controller.
const NO_BOUND: u64 = 1 << 62;

/// Limits of one cgroup; what is absent is not written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Weight among its neighbours.
    pub cpu_shares: Option<u64>,
    /// Microseconds in each period; -1 for no bound.
    pub cpu_quota: Option<i64>,
    /// The period in microseconds.
    pub cpu_period: i64,
    /// Bytes.
    pub memory: Option<i64>,
    /// Processes.
    pub pids: Option<i64>,
    /// Bytes by page size in the kernel's words (`2MB`).
    pub huge_pages: BTreeMap<String, u64>,
    /// Files of version 2 alone.
    pub files: Files,
}

impl Limits {
    /// A pod's. Of page sizes that it does not ask for it gets none.
    pub(super) fn of_pod(
        pod: &PodResources,
        pids: i64,
        page_sizes: &[String],
        files: Files,
    ) -> Self {
        let asked: BTreeMap<String, u64> = pod
            .huge_pages
            .iter()
            .map(|(size, bytes)| (super::page_size(size), *bytes))
            .collect();
        let of_size = |size: &String| (size.clone(), asked.get(size).copied().unwrap_or(0));
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

    /// A class's: all huge pages that there are.
    pub(super) fn of_class(class: &ClassResources, page_sizes: &[String]) -> Self {
        Limits {
            cpu_shares: class.cpu_shares,
            memory: class.memory_limit,
            files: class.files.clone(),
            huge_pages: page_sizes.iter().map(|s| (s.clone(), NO_BOUND)).collect(),
            ..Limits::default()
        }
    }

    /// Controller, file and value, in the order in which they are written.
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
                let most = if quota > 0 {
                    quota.to_string()
                } else {
                    "max".to_owned()
                };
                add("cpu", "cpu.max", format!("{most} {}", self.cpu_period));
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

    /// Writes them. What the kernel refuses is told and left: the runtime sets the
    /// containers' own limits all the same. What is as it should be is not written.
    pub(super) fn write(&self, unified: bool, path: &str) {
        self.each(unified, path, |place, value, error| {
            tracing::warn!(file = %place.display(), value, %error, "cgroup limit not set");
        });
    }

    /// Writes them; the first refusal is told. Those after it are written all the same.
    pub(super) fn try_write(&self, unified: bool, path: &str) -> Result<(), String> {
        let mut first = Ok(());
        self.each(unified, path, |place, value, error| {
            if first.is_ok() {
                let place = place.display();
                first = Err(format!("failed to write {value:?} to {place}: {error}"));
            }
        });
        first
    }

    fn each(
        &self,
        unified: bool,
        path: &str,
        mut refused: impl FnMut(&Path, &str, std::io::Error),
    ) {
        for (controller, file, value) in self.values(unified) {
            let hierarchy = Path::new(MOUNT).join(controller);
            // Not every kernel counts huge pages.
            if controller == "hugetlb" && !hierarchy.is_dir() {
                continue;
            }
            let place = below(&hierarchy, path).join(file);
            if unified && !place.exists() && place.to_string_lossy().contains("hugetlb.") {
                continue;
            }
            if fs::read_to_string(&place).is_ok_and(|now| now.trim_end() == value) {
                continue;
            }
            if let Err(error) = fs::write(&place, &value) {
                refused(&place, &value, error);
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
    fn both_versions() {
        let files: Files = [("memory.min".to_owned(), "64".to_owned())].into();
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
    fn no_bound_is_written_as_such() {
        let pod = PodResources {
            cpu_quota: Some(-1),
            memory_limit: Some(0),
            ..pod()
        };
        let limits = Limits::of_pod(&pod, -1, &[], Files::new());
        assert_eq!(
            lines(&limits, false),
            ["cpu/cpu.shares=512", "cpu/cpu.cfs_quota_us=-1"]
        );
        assert_eq!(
            lines(&limits, true),
            ["/cpu.weight=20", "/cpu.max=max 100000"]
        );
        let class = ClassResources {
            cpu_shares: Some(2),
            ..ClassResources::default()
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
