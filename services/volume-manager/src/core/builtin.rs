//! Volumes that need nothing but the manifest: emptyDir and hostPath.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use super::nfs_volume::NfsVolume;
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
            Some(Some(size))
                if huge_page_sizes(pod).any(|found| page_size(found) == Some(size)) =>
            {
                Medium::HugePages { page_size: size }
            }
            Some(Some(_)) => return Err(no_huge_pages(other)),
            _ => return Err(format!("unknown storage medium {other:?}")),
        },
    })
}

fn no_huge_pages(medium: &str) -> String {
    format!(
        "medium {medium}: hugePages storage requested, but there is no resource request for huge pages"
    )
}

/// The sizes of huge pages that the pod or its containers request.
fn huge_page_sizes(pod: &Pod) -> impl Iterator<Item = &str> {
    let spec = pod.spec.iter();
    let resources = spec.flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        let containers = spec.containers.iter().chain(init);
        let own = containers.filter_map(|container| container.resources.as_ref());
        spec.resources.iter().chain(own)
    });
    let names = resources.flat_map(|all| all.requests.iter().flatten().map(|(name, _)| name));
    names.filter_map(|name| name.strip_prefix("hugepages-"))
}

/// The page size, where pod and containers request huge pages of one size only.
fn only_huge_page_size(pod: &Pod) -> Result<u64, String> {
    let sizes: BTreeSet<&str> = huge_page_sizes(pod).collect();
    let mut sizes = sizes.into_iter();
    match (sizes.next(), sizes.next()) {
        (Some(size), None) => {
            page_size(size).ok_or_else(|| format!("{size:?} is not a size of huge pages"))
        }
        (None, _) => Err(no_huge_pages("HugePages")),
        (Some(_), Some(_)) => Err(
            "medium: HugePages can't be used if container requests multiple huge page sizes".into(),
        ),
    }
}

fn page_size(text: &str) -> Option<u64> {
    let quantity = Quantity(text.into());
    let bytes = nanos(&quantity)? / 1_000_000_000;
    u64::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_power_of_two())
}

/// An NFS export; the API server has validated it, files of static pods may say anything.
pub(super) fn nfs(source: &api::NFSVolumeSource) -> Result<NfsVolume, String> {
    let (server, path) = (source.server.clone(), source.path.clone());
    let is_text = |text: &str| !text.is_empty() && !text.contains('\0');
    if !is_text(&server) {
        return Err(format!("nfs server {server:?} is not a host"));
    }
    if !path.starts_with('/') || !is_text(&path) {
        return Err(format!("nfs path {path:?} is not an absolute path"));
    }
    Ok(NfsVolume {
        server,
        path,
        mount_options: Vec::new(),
        read_only: source.read_only.unwrap_or(false),
    })
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
