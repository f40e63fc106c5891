//! Requests and limits.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use polylet_model::quantity::{Amount, get};

use super::super::decode::quoted;
use super::{Findings, names};

type List = BTreeMap<String, Quantity>;

pub(super) fn container(out: &mut Findings, path: &str, own: &ResourceRequirements) {
    if own.claims.as_ref().is_some_and(|c| !c.is_empty()) {
        out.add(
            format!("{path}.claims"),
            "must not be used: only the API server could give them to a static pod",
        );
    }
    list(
        out,
        &format!("{path}.limits"),
        own.limits.as_ref(),
        is_container_resource,
    );
    list(
        out,
        &format!("{path}.requests"),
        own.requests.as_ref(),
        is_container_resource,
    );
    within_limits(out, path, own);
    let any = |list: &Option<List>, wanted: fn(&str) -> bool| {
        list.iter().flatten().any(|(name, _)| wanted(name))
    };
    let huge = |name: &str| name.starts_with("hugepages-");
    let plain = |name: &str| matches!(name, "cpu" | "memory");
    let has_huge = any(&own.limits, huge) || any(&own.requests, huge);
    if has_huge && !any(&own.limits, plain) && !any(&own.requests, plain) {
        out.add(path, "huge pages need cpu or memory beside them");
    }
}

/// Resources of the pod as a whole: at least what its containers ask for.
pub(super) fn pod(out: &mut Findings, own: &ResourceRequirements, spec: &PodSpec) {
    let path = "spec.resources";
    let allowed = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    list(out, "spec.resources.limits", own.limits.as_ref(), allowed);
    list(
        out,
        "spec.resources.requests",
        own.requests.as_ref(),
        allowed,
    );
    within_limits(out, path, own);
    for name in own.requests.iter().flatten().map(|(name, _)| name) {
        let asked = |c: &k8s_openapi::api::core::v1::Container| {
            get(c.resources.as_ref().and_then(|r| r.requests.as_ref()), name).unwrap_or_default()
        };
        let sum: Amount = spec.containers.iter().map(asked).sum();
        if get(own.requests.as_ref(), name).is_some_and(|all| all < sum) {
            out.add(
                format!("{path}.requests[{name}]"),
                format!("is less than what the containers ask for together, {sum}"),
            );
        }
    }
    for (i, container) in spec.containers.iter().enumerate() {
        let limits = container.resources.as_ref().and_then(|r| r.limits.as_ref());
        for name in limits.into_iter().flatten().map(|(name, _)| name) {
            let (one, all) = (get(limits, name), get(own.limits.as_ref(), name));
            if let (Some(one), Some(all)) = (one, all)
                && one > all
            {
                out.add(
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

fn list(out: &mut Findings, path: &str, list: Option<&List>, allowed: fn(&str) -> bool) {
    for (name, quantity) in list.into_iter().flatten() {
        let path = format!("{path}[{}]", name.chars().take(80).collect::<String>());
        if !allowed(name) {
            out.add(
                path.clone(),
                format!(
                    "{} is not a resource that can be asked for here",
                    quoted(name)
                ),
            );
        }
        match Amount::parse(&quantity.0) {
            Err(error) => out.add(path, error.to_string()),
            Ok(amount) if amount < Amount::ZERO => {
                out.add(path, format!("{} is below zero", quoted(&quantity.0)))
            }
            Ok(amount)
                if is_extended(name) && amount.nanos() % Amount::from_units(1).nanos() != 0 =>
            {
                out.add(
                    path,
                    format!("{} is not a whole number", quoted(&quantity.0)),
                );
            }
            Ok(_) => {}
        }
    }
}

fn within_limits(out: &mut Findings, path: &str, own: &ResourceRequirements) {
    for (name, quantity) in own.requests.iter().flatten() {
        let fixed = is_extended(name) || name.starts_with("hugepages-");
        match (
            get(own.requests.as_ref(), name),
            get(own.limits.as_ref(), name),
        ) {
            (Some(request), Some(limit)) if request > limit || (fixed && request != limit) => {
                let than = if fixed { "other than" } else { "more than" };
                out.add(
                    format!("{path}.requests[{name}]"),
                    format!("{} is {than} the limit, {limit}", quoted(&quantity.0)),
                );
            }
            (Some(_), None) if fixed => out.add(
                format!("{path}.limits[{name}]"),
                "required: request and limit must be the same",
            ),
            _ => {}
        }
    }
}
