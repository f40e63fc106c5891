//! Host ports of pods.

use k8s_openapi::api::core::v1::PodSpec;
use serde::{Deserialize, Serialize};

use crate::pod::is_sidecar;

const ANY: &str = "0.0.0.0";

/// A host port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostPort {
    /// The port number.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The node's address; `0.0.0.0` for all addresses.
    pub ip: String,
}

impl HostPort {
    /// Whether two pods with these ports cannot run together. A port on all addresses conflicts with the
    /// same port on any address.
    pub fn conflicts_with(&self, other: &HostPort) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip == ANY || other.ip == ANY)
    }
}

/// The host ports of a pod's sidecars and regular containers.
pub fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let or_default = |text: &Option<String>, default: &str| {
        let text = text.as_deref().filter(|text| !text.is_empty());
        text.unwrap_or(default).to_owned()
    };
    let sidecars = spec.init_containers.iter().flatten();
    sidecars
        .filter(|container| is_sidecar(container))
        .chain(&spec.containers)
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            Some(HostPort {
                port: port.host_port.filter(|port| *port > 0)?,
                protocol: or_default(&port.protocol, "TCP"),
                ip: or_default(&port.host_ip, ANY),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn port(port: i32, protocol: &str, ip: &str) -> HostPort {
        HostPort {
            port,
            protocol: protocol.to_owned(),
            ip: ip.to_owned(),
        }
    }

    #[test]
    fn conflicts() {
        for (one, other, conflict) in [
            (port(80, "TCP", ANY), port(80, "TCP", ANY), true),
            (port(80, "TCP", ANY), port(81, "TCP", ANY), false),
            (port(80, "TCP", ANY), port(80, "UDP", ANY), false),
            (port(80, "TCP", "127.0.0.1"), port(80, "TCP", ANY), true),
            (
                port(80, "TCP", "127.0.0.1"),
                port(80, "TCP", "127.0.0.1"),
                true,
            ),
            (
                port(80, "TCP", "127.0.0.1"),
                port(80, "TCP", "127.0.0.2"),
                false,
            ),
        ] {
            assert_eq!(one.conflicts_with(&other), conflict, "{one:?} {other:?}");
            assert_eq!(other.conflicts_with(&one), conflict, "{other:?} {one:?}");
        }
    }

    #[test]
    fn sidecars_and_regular_containers_count() {
        let ports =
            |port: i32| json!([{"containerPort": 1, "hostPort": port, "hostIP": "10.0.0.1"}]);
        let spec = json!({
            "initContainers": [
                {"name": "i", "ports": ports(1)},
                {"name": "s", "restartPolicy": "Always", "ports": ports(2)}],
            "containers": [{"name": "c", "ports": [{"containerPort": 3, "hostPort": 3},
                {"containerPort": 4}, {"containerPort": 5, "hostPort": 0}]}]});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(
            host_ports(&spec),
            [port(2, "TCP", "10.0.0.1"), port(3, "TCP", ANY)]
        );
    }
}
