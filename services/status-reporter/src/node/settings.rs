//! What the configuration and the machine say of the node, once.

use k8s_openapi::api::core::v1::{NodeSwapStatus, NodeSystemInfo, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use polylet_kit::Ctx;
use polylet_machine::{Identity, Machine, architecture};
use polylet_model::node;

use crate::core::node::facts::Settings;
use crate::core::node::features;
use crate::core::node::object::Registration;

/// What the status is made of that does not change.
pub(super) fn settings(ctx: &Ctx) -> Settings {
    let (config, machine) = (ctx.config(), Machine::read());
    Settings {
        name: ctx.node_name().to_owned(),
        addresses_given: config
            .polylet
            .node_ip
            .is_some_and(|ip| !ip.is_unspecified()),
        external_cloud: config.polylet.cloud_provider == "external",
        port: config.kubelet.port,
        capacity: polylet_machine::capacity(config, machine),
        allocatable: polylet_machine::allocatable(config, machine),
        info: info(machine),
        most_images: config.kubelet.node_status_max_images,
        features: features::declared(&config.kubelet.feature_gates),
    }
}

/// What the object is made with.
pub(super) fn registration(ctx: &Ctx) -> Registration {
    let (kubelet, polylet) = (&ctx.config().kubelet, &ctx.config().polylet);
    let given = polylet.node_ip.into_iter().chain(polylet.secondary_node_ip);
    Registration {
        name: ctx.node_name().to_owned(),
        labels: node::labels(ctx.node_name(), architecture(), &polylet.node_labels),
        taints: taints(ctx),
        provider_id: kubelet.provider_id.clone(),
        controller_attach_detach: kubelet.enable_controller_attach_detach,
        external_cloud: polylet.cloud_provider == "external",
        provided_ips: given
            .filter(|ip| !ip.is_unspecified())
            .map(|ip| ip.to_string())
            .collect(),
    }
}

fn taints(ctx: &Ctx) -> Vec<Taint> {
    let taints = ctx.config().kubelet.register_with_taints.iter();
    let one = |taint: &polylet_kit::config::Taint| Taint {
        key: taint.key.clone(),
        value: (!taint.value.is_empty()).then(|| taint.value.clone()),
        effect: taint.effect.clone(),
        time_added: taint
            .time_added
            .as_ref()
            .and_then(|at| at.parse().ok())
            .map(Time),
    };
    taints.map(one).collect()
}

fn info(machine: Machine) -> NodeSystemInfo {
    let identity = Identity::read();
    NodeSystemInfo {
        architecture: architecture().to_owned(),
        boot_id: identity.boot_id,
        kernel_version: identity.kernel_version,
        kubelet_version: node::kubelet_version(env!("CARGO_PKG_VERSION")),
        machine_id: identity.machine_id,
        operating_system: "linux".to_owned(),
        os_image: identity.os_image,
        swap: (machine.swap > 0).then(|| NodeSwapStatus {
            capacity: i64::try_from(machine.swap).ok(),
        }),
        system_uuid: identity.system_uuid,
        ..NodeSystemInfo::default()
    }
}
