//! Defaults of pod-level resources (`spec.resources`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity;
use crate::resources::{aggregate_limits, aggregate_requests, is_huge_pages, is_pod_level};

/// Sets the defaults of a pod that has pod-level requests or limits.
pub(super) fn apply(spec: &mut PodSpec) {
    let Some(own) = spec.resources.as_ref() else {
        return;
    };
    let empty =
        |list: &Option<BTreeMap<String, Quantity>>| list.as_ref().is_none_or(BTreeMap::is_empty);
    if empty(&own.requests) && empty(&own.limits) {
        return;
    }
    let (requests, limits) = (aggregate_requests(spec), aggregate_limits(spec));
    let Some(own) = spec.resources.as_mut() else {
        return;
    };

    let requested = own.requests.clone().unwrap_or_default();
    let huge = limits
        .into_iter()
        .filter(|(name, _)| is_huge_pages(name) && !requested.contains_key(name))
        .collect();
    for (name, amount) in quantity::format_list(&huge) {
        own.limits
            .get_or_insert_default()
            .entry(name)
            .or_insert(amount);
    }
    let Some(limits) = own.limits.clone().filter(|limits| !limits.is_empty()) else {
        return;
    };
    let overcommitted = requests
        .into_iter()
        .filter(|(name, _)| is_pod_level(name) && !is_huge_pages(name))
        .collect();
    for (name, amount) in quantity::format_list(&overcommitted) {
        own.requests
            .get_or_insert_default()
            .entry(name)
            .or_insert(amount);
    }
    for (name, limit) in limits.into_iter().filter(|(name, _)| is_pod_level(name)) {
        own.requests
            .get_or_insert_default()
            .entry(name)
            .or_insert(limit);
    }
}
