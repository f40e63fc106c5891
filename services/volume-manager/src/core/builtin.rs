//! Volumes that need nothing but the manifest: emptyDir and hostPath.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use super::usage::{least, nanos};

/// Where the files of a volume are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// The disk of the root directory.
    Disk,
    /// A tmpfs.
    Memory {
        /// Its limit in bytes, if there is one.
        size: Option<u64>,
    },
    /// A hugetlbfs.
    HugePages {
        /// The size of its pages in bytes.
        page_size: u64,
    },
}

/// The type of a hostPath: what must be there before the pod starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathCheck {
    /// Not checked.
    None,
    /// A directory, created with mode 0755 if missing.
    DirectoryOrCreate,
    /// A directory.
    Directory,
    /// A file, created with mode 0644 if missing.
    FileOrCreate,
    /// A file.
    File,
    /// A Unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// The medium of an emptyDir; `memory` is the limit of a tmpfs without a `sizeLimit` of its own.
pub(super) fn medium(
    source: &api::EmptyDirVolumeSource,
    pod: &Pod,
    memory: Option<u64>,
) -> Result<Medium, String> {
    Ok(match source.medium.as_deref().unwrap_or_default() {
        "" => Medium::Disk,
        "Memory" => {
            let limit = source.size_limit.as_ref();
            let limit = limit.and_then(nanos).map(|nanos| nanos / 1_000_000_000);
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

/// The page size, where the containers of the pod request huge pages of one size only.
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
    let bytes = nanos(&quantity)? / 1_000_000_000;
    u64::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_power_of_two())
}

/// The path of a hostPath and its check.
pub(super) fn host_path(source: &api::HostPathVolumeSource) -> Result<(String, PathCheck), String> {
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
    Ok((path, check))
}
