//! Pod-level resources.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;

/// Whether a pod has pod-level requests or limits.
pub fn has_pod_level(spec: &PodSpec) -> bool {
    let Some(resources) = &spec.resources else {
        return false;
    };
    let lists = [&resources.requests, &resources.limits]
        .into_iter()
        .flatten();
    lists
        .flat_map(BTreeMap::keys)
        .any(|name| is_pod_level(name))
}

/// Whether a resource can be requested at pod level.
pub fn is_pod_level(name: &str) -> bool {
    name == "cpu" || name == "memory" || is_huge_pages(name)
}

/// Whether a resource is `hugepages-<size>`.
pub fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}
