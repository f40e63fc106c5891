//! Volumes that need nothing but the manifest: emptyDir and hostPath.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::downward::nano;
use super::spec::{Medium, PathCheck, SetUp};
use super::usage::least;

/// What an emptyDir lies on; `memory` bounds what lies in memory.
pub(super) fn medium(
    source: &api::EmptyDirVolumeSource,
    pod: &Pod,
    memory: Option<u64>,
) -> Result<Medium, String> {
    Ok(match source.medium.as_deref().unwrap_or_default() {
        "" => Medium::Disk,
        "Memory" => {
            let limit = source.size_limit.as_ref();
            let limit = limit.and_then(nano).map(|nano| nano / 1_000_000_000);
            let limit = limit.and_then(|bytes| u64::try_from(bytes).ok());
            Medium::Memory {
                size: least(limit.filter(|bytes| *bytes > 0), memory),
            }
        }
        "HugePages" => Medium::HugePages {
            page_size: only_huge_page_size(pod)?,
        },
        other => match other.strip_prefix("HugePages-").map(page_size) {
            Some(Some(page_size)) => Medium::HugePages { page_size },
            _ => return Err(format!("unknown storage medium {other:?}")),
        },
    })
}

/// The one size of huge pages that the pod's containers ask for.
fn only_huge_page_size(pod: &Pod) -> Result<u64, String> {
    let spec = pod.spec.as_ref();
    let containers = spec
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default();
    let init = spec
        .and_then(|spec| spec.init_containers.as_deref())
        .unwrap_or_default();
    let mut sizes = BTreeSet::new();
    for container in containers.iter().chain(init) {
        let requests = container
            .resources
            .as_ref()
            .and_then(|r| r.requests.as_ref());
        let names = requests.into_iter().flatten().map(|(name, _)| name);
        sizes.extend(names.filter_map(|name| name.strip_prefix("hugepages-")));
    }
    let mut sizes = sizes.into_iter();
    match (sizes.next(), sizes.next()) {
        (Some(size), None) => {
            page_size(size).ok_or_else(|| format!("{size:?} is not a size of huge pages"))
        }
        (None, _) => Err("medium HugePages needs a container that requests them".into()),
        (Some(_), Some(_)) => {
            Err("medium HugePages needs a size: the containers request several".into())
        }
    }
}
fn page_size(text: &str) -> Option<u64> {
    let quantity = Quantity(text.into());
    let bytes = nano(&quantity)? / 1_000_000_000;
    u64::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_power_of_two())
}

/// A path of the node, and what must be there.
pub(super) fn host_path(source: &api::HostPathVolumeSource) -> Result<SetUp, String> {
    let path = source.path.clone();
    if !path.starts_with('/') || path.contains('\0') {
        return Err(format!("hostPath {path:?} is not an absolute path"));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(format!("hostPath {path:?} must not contain '..'"));
    }
    let check = match source.type_.as_deref().unwrap_or_default() {
        "" => PathCheck::None,
        "DirectoryOrCreate" => PathCheck::DirectoryOrCreate,
        "Directory" => PathCheck::Directory,
        "FileOrCreate" => PathCheck::FileOrCreate,
        "File" => PathCheck::File,
        "Socket" => PathCheck::Socket,
        "CharDevice" => PathCheck::CharDevice,
        "BlockDevice" => PathCheck::BlockDevice,
        other => return Err(format!("{other} is an invalid volume type")),
    };
    Ok(SetUp::HostPath { path, check })
}
