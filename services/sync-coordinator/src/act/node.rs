//! The node as admission sees it, read once.

use std::fs;

use polylet_kit::Ctx;
use polylet_machine::architecture;
use polylet_model::node;

use super::Hands;
use crate::core::room::{NodeObject, Resizes, Room, Swap};

/// What the node has and is; who holds what of it comes later.
pub fn room(ctx: &Ctx, hands: &Hands) -> Room {
    let machine = hands.machine;
    let kubelet = &ctx.config().kubelet;
    let gate = |name: &str| kubelet.feature_gates.get(name).copied();
    Room {
        node_name: ctx.node_name().to_owned(),
        labels: labels(ctx),
        node: match ctx.config().polylet.kubeconfig {
            Some(_) => NodeObject::Unheard,
            None => NodeObject::None,
        },
        allocatable: Some(hands.allocatable.clone()),
        most: Some(hands.most.clone()),
        ledger: Default::default(),
        no_apparmor: (!has_apparmor()).then(|| "AppArmor is not enabled on the host".to_owned()),
        strict_groups: false,
        no_pod_level_resources: gate("PodLevelResources") == Some(false),
        resizes: Resizes {
            pods: gate("InPlacePodVerticalScaling") != Some(false),
            pod_level: gate("InPlacePodLevelResourcesVerticalScaling") != Some(false),
            inits: gate("InPlacePodVerticalScalingInitContainers") != Some(false),
        },
        limited_swap: (kubelet.memory_swap.swap_behavior == "LimitedSwap"
            && machine.unified_cgroups
            && machine.swap_controller)
            .then_some(Swap {
                memory: machine.memory,
                swap: machine.swap,
            }),
    }
}

/// The labels that the node gives itself.
fn labels(ctx: &Ctx) -> std::collections::BTreeMap<String, String> {
    let given = &ctx.config().polylet.node_labels;
    node::labels(ctx.node_name(), architecture(), given)
}

fn has_apparmor() -> bool {
    fs::read_to_string("/sys/module/apparmor/parameters/enabled")
        .is_ok_and(|word| word.starts_with('Y'))
}
