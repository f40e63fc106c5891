//! The node's resources for admission, read once at the start.

use std::collections::BTreeMap;
use std::fs;

use polylet_kit::Ctx;
use polylet_machine::architecture;
use polylet_model::{declared_features, node};

use super::RuntimeManager;
use crate::core::node_resources::{NodeObject, NodeResources, ResizeGates, SwapCapacity};

/// The resources and features of the node, without any pods.
pub fn node_resources(ctx: &Ctx, manager: &RuntimeManager) -> NodeResources {
    let machine = manager.machine;
    let kubelet = &ctx.config().kubelet;
    let gate = |name: &str| kubelet.feature_gates.get(name).copied();
    let has_limited_swap = kubelet.memory_swap.swap_behavior == "LimitedSwap"
        && machine.unified_cgroups
        && machine.swap_controller;
    NodeResources {
        node_name: ctx.node_name().to_owned(),
        labels: labels(ctx),
        node_object: match ctx.config().polylet.kubeconfig {
            Some(_) => NodeObject::NotSynced,
            None => NodeObject::Absent,
        },
        allocatable: Some(manager.allocatable.clone()),
        allocated: Default::default(),
        apparmor_error: (!has_apparmor()).then(|| "AppArmor is not enabled on the host".to_owned()),
        supports_strict_supplemental_groups: false,
        pod_level_resources_disabled: gate("PodLevelResources") == Some(false),
        declared_features: declared_features::declared(&kubelet.feature_gates),
        resize_gates: ResizeGates {
            pods: gate("InPlacePodVerticalScaling") != Some(false),
            pod_level: gate("InPlacePodLevelResourcesVerticalScaling") != Some(false),
            init_containers: gate("InPlacePodVerticalScalingInitContainers") != Some(false),
        },
        limited_swap: has_limited_swap.then_some(SwapCapacity {
            memory: machine.memory,
            swap: machine.swap,
        }),
    }
}

/// The labels that the node registers with.
fn labels(ctx: &Ctx) -> BTreeMap<String, String> {
    let configured = &ctx.config().polylet.node_labels;
    node::initial_labels(ctx.node_name(), architecture(), configured)
}

fn has_apparmor() -> bool {
    fs::read_to_string("/sys/module/apparmor/parameters/enabled")
        .is_ok_and(|enabled| enabled.starts_with('Y'))
}
