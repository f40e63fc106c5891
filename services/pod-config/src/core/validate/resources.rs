//! Validation of requests and limits.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use polylet_model::quantity::{Amount, parse_entry};

use super::super::decode::quoted;
use super::{ErrorList, names};

type Quantities = BTreeMap<String, Quantity>;

pub(super) fn container(errors: &mut ErrorList, path: &str, own: &ResourceRequirements) {
    if own.claims.as_ref().is_some_and(|c| !c.is_empty()) {
        errors.add(
            format!("{path}.claims"),
            "must not be used: claims need the API server, which static pods cannot use",
        );
    }
    list(
        errors,
        &format!("{path}.limits"),
        own.limits.as_ref(),
        is_container_resource,
    );
    list(
        errors,
        &format!("{path}.requests"),
        own.requests.as_ref(),
        is_container_resource,
    );
    within_limits(errors, path, own);
    let any = |list: &Option<Quantities>, matches: fn(&str) -> bool| {
        list.iter().flatten().any(|(name, _)| matches(name))
    };
    let huge = |name: &str| name.starts_with("hugepages-");
    let plain = |name: &str| matches!(name, "cpu" | "memory");
    let has_huge = any(&own.limits, huge) || any(&own.requests, huge);
    if has_huge && !any(&own.limits, plain) && !any(&own.requests, plain) {
        errors.add(path, "huge pages need cpu or memory as well");
    }
}

/// Checks pod-level resources: at least the sum of the containers' requests.
pub(super) fn pod(errors: &mut ErrorList, own: &ResourceRequirements, spec: &PodSpec) {
    let path = "spec.resources";
    let allowed = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    list(
        errors,
        "spec.resources.limits",
        own.limits.as_ref(),
        allowed,
    );
    list(
        errors,
        "spec.resources.requests",
        own.requests.as_ref(),
        allowed,
    );
    within_limits(errors, path, own);
    for name in own.requests.iter().flatten().map(|(name, _)| name) {
        let request = |c: &k8s_openapi::api::core::v1::Container| {
            parse_entry(c.resources.as_ref().and_then(|r| r.requests.as_ref()), name)
                .unwrap_or_default()
        };
        let sum: Amount = spec.containers.iter().map(request).sum();
        if parse_entry(own.requests.as_ref(), name).is_some_and(|all| all < sum) {
            errors.add(
                format!("{path}.requests[{name}]"),
                format!("is less than the sum of the containers' requests, {sum}"),
            );
        }
    }
    for (i, container) in spec.containers.iter().enumerate() {
        let limits = container.resources.as_ref().and_then(|r| r.limits.as_ref());
        for name in limits.into_iter().flatten().map(|(name, _)| name) {
            let (one, all) = (
                parse_entry(limits, name),
                parse_entry(own.limits.as_ref(), name),
            );
            if let (Some(one), Some(all)) = (one, all)
                && one > all
            {
                errors.add(
                    format!("spec.containers[{i}].resources.limits[{name}]"),
                    format!("is more than the pod's limit, {all}"),
                );
            }
        }
    }
}

fn is_container_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage")
        || name.starts_with("hugepages-")
        || is_extended(name)
}

fn is_extended(name: &str) -> bool {
    name.contains('/') && names::qualified(name).is_ok()
}

fn list(errors: &mut ErrorList, path: &str, list: Option<&Quantities>, allowed: fn(&str) -> bool) {
    for (name, quantity) in list.into_iter().flatten() {
        let path = format!("{path}[{}]", name.chars().take(80).collect::<String>());
        if !allowed(name) {
            errors.add(
                path.clone(),
                format!("{} is not a supported resource here", quoted(name)),
            );
        }
        match Amount::parse(&quantity.0) {
            Err(error) => errors.add(path, error.to_string()),
            Ok(amount) if amount < Amount::ZERO => {
                errors.add(path, format!("{} is negative", quoted(&quantity.0)))
            }
            Ok(amount)
                if is_extended(name) && amount.nanos() % Amount::from_units(1).nanos() != 0 =>
            {
                errors.add(
                    path,
                    format!("{} is not a whole number", quoted(&quantity.0)),
                );
            }
            Ok(_) => {}
        }
    }
}

fn within_limits(errors: &mut ErrorList, path: &str, own: &ResourceRequirements) {
    for (name, quantity) in own.requests.iter().flatten() {
        let fixed = is_extended(name) || name.starts_with("hugepages-");
        match (
            parse_entry(own.requests.as_ref(), name),
            parse_entry(own.limits.as_ref(), name),
        ) {
            (Some(request), Some(limit)) if request > limit || (fixed && request != limit) => {
                let than = if fixed { "other than" } else { "more than" };
                errors.add(
                    format!("{path}.requests[{name}]"),
                    format!("{} is {than} the limit, {limit}", quoted(&quantity.0)),
                );
            }
            (Some(_), None) if fixed => errors.add(
                format!("{path}.limits[{name}]"),
                "required: request and limit must be the same",
            ),
            _ => {}
        }
    }
}
