//! Settings of the Node from the configuration and the machine.

use k8s_openapi::api::core::v1::{NodeSwapStatus, NodeSystemInfo, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use polylet_kit::Ctx;
use polylet_kit::config::PolyletConfiguration;
use polylet_machine::{Identity, Machine, architecture};
use polylet_model::{declared_features, node};

use crate::core::node::facts::NodeSettings;
use crate::core::node::object::Registration;

/// The constant part of the status.
pub(super) fn settings(ctx: &Ctx) -> NodeSettings {
    let (config, machine) = (ctx.config(), Machine::read());
    NodeSettings {
        name: ctx.node_name().to_owned(),
        addresses_configured: config.polylet.node_ip.is_some(),
        external_cloud: config.polylet.cloud_provider == "external",
        port: config.kubelet.port,
        capacity: polylet_machine::capacity(config, machine),
        allocatable: polylet_machine::allocatable(config, machine),
        info: info(machine),
        max_images: config.kubelet.node_status_max_images,
        features: declared_features::declared(&config.kubelet.feature_gates).unwrap_or_default(),
    }
}

/// The content of the object on creation.
pub(super) fn registration(ctx: &Ctx) -> Registration {
    let (kubelet, polylet) = (&ctx.config().kubelet, &ctx.config().polylet);
    Registration {
        name: ctx.node_name().to_owned(),
        labels: node::initial_labels(ctx.node_name(), architecture(), &polylet.node_labels),
        taints: taints(ctx),
        provider_id: kubelet.provider_id.clone(),
        external_cloud: polylet.cloud_provider == "external",
        provided_ips: provided_ips(polylet),
    }
}

/// The configured addresses. As upstream, none without a first one: an unspecified address only selects
/// the family.
fn provided_ips(polylet: &PolyletConfiguration) -> Vec<String> {
    let first = polylet.node_ip.filter(|ip| !ip.is_unspecified());
    let second = polylet.secondary_node_ip.filter(|_| first.is_some());
    let provided = first.into_iter().chain(second);
    provided.map(|ip| ip.to_string()).collect()
}

fn taints(ctx: &Ctx) -> Vec<Taint> {
    let taints = ctx.config().kubelet.register_with_taints.iter();
    let convert = |taint: &polylet_kit::config::Taint| Taint {
        key: taint.key.clone(),
        value: (!taint.value.is_empty()).then(|| taint.value.clone()),
        effect: taint.effect.clone(),
        time_added: taint
            .time_added
            .as_ref()
            .and_then(|at| at.parse().ok())
            .map(Time),
    };
    taints.map(convert).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provided_addresses_are_those_of_the_configuration() {
        let provided = |first: Option<&str>, second: Option<&str>| {
            provided_ips(&PolyletConfiguration {
                node_ip: first.map(|ip| ip.parse().unwrap()),
                secondary_node_ip: second.map(|ip| ip.parse().unwrap()),
                ..PolyletConfiguration::default()
            })
        };
        let both = provided(Some("192.0.2.7"), Some("2001:db8::7"));
        assert_eq!(both, ["192.0.2.7", "2001:db8::7"]);
        assert_eq!(provided(Some("192.0.2.7"), None), ["192.0.2.7"]);
        assert!(provided(Some("0.0.0.0"), Some("2001:db8::7")).is_empty());
        assert!(provided(None, None).is_empty());
    }
}
