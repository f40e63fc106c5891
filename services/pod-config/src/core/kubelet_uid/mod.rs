//! The kubelet's uid of a static pod, so that a pod keeps running when its node changes its agent.
//!
//! A kubelet decodes a manifest, sets the defaults of `v1`, converts the pod to its internal version, and
//! hashes what `go-spew` prints of it (FNV-1a with 128 bits; before 1.36 other hashes of other dumps). The
//! print has the names, types and order of all Go fields, tells nil from empty, and shows the private
//! fields of quantities. Here, the pod stays JSON throughout: [`defaults`] and [`conversion`] change it as
//! upstream changes its structures, and [`dump`] prints it by the layout in `types.txt`, which a Go
//! program writes from the types themselves (`cargo generate static-pods`).
//!
//! Everything is upstream's to the letter, whatever Polylet's own defaults are: a manifest must have the
//! same uid in all versions of Polylet that know the same layout.

mod conversion;
mod defaults;
mod dump;
mod error;
mod layout;
mod pod_level;
mod quantity;

#[cfg(test)]
mod tests;

use polylet_model::hash::Fnv1a128;
use serde_json::Value;

use super::StaticPodSource;
pub use error::DumpError;

/// The uid that a kubelet generates for a pod.
///
/// # Arguments
/// `pod` is as decoded from the manifest, with the fields that only the API server sets; `path` is the
/// path of the manifest file, or the URL.
///
/// # Errors
/// Fails for a pod that a kubelet cannot decode, or whose dump depends on more than the manifest.
pub fn generate(
    pod: Value,
    node: &str,
    source: StaticPodSource,
    path: &str,
) -> Result<String, DumpError> {
    let mut hash = Fnv1a128::default();
    dump_pod(pod, &mut |text| hash.update(text.as_bytes()))?;
    let origin = match source {
        StaticPodSource::File => format!("host:{node}file:{}", clean_path(path)),
        // The node is no part of it.
        StaticPodSource::Http => format!("url:{path}"),
    };
    hash.update(origin.as_bytes());
    Ok(format!("{:032x}", hash.finish()))
}

/// `filepath.Clean`, which the kubelet's paths of files in the manifest directory have passed.
fn clean_path(path: &str) -> String {
    let is_rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if is_rooted => {}
            part => parts.push(part),
        }
    }
    let root = if is_rooted { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

/// Writes what Go prints of the internal version of a pod.
fn dump_pod(mut pod: Value, write: &mut dyn FnMut(&str)) -> Result<(), DumpError> {
    let layout = layout::GoLayout::read();
    defaults::apply(&mut pod, &layout)?;
    conversion::apply(&mut pod);
    dump::Dump::new(&layout, write).pod(&pod)
}
