//! The pods in the runtime.

use std::sync::Arc;

use jiff::Timestamp;
use polylet_model::ids::PodUid;
use polylet_model::status::sorted_pod_ips;
use polylet_watch::Update;
use polylet_wire::{pleg, time};

use crate::core::types::{ObservedChange, ObservedContainer, ObservedPod};

/// A change of the pods in the runtime; `None` when the update carries none. `node_address` is for
/// pods on the host's network, and its family is the first one of the others; `to_probe_clock` converts
/// a time of the wall clock.
pub fn observed_change(
    update: Update<PodUid, pleg::v1::PodState>,
    node_address: impl Fn() -> String,
    to_probe_clock: impl Fn(Timestamp) -> Timestamp,
) -> Option<ObservedChange> {
    match update {
        Update::Upsert(uid, state) => {
            let observed = observed_pod(&state, node_address, to_probe_clock);
            Some(ObservedChange::Upsert(uid, observed))
        }
        Update::Remove(uid) => Some(ObservedChange::Remove(uid)),
        Update::Synced => Some(ObservedChange::Synced),
        Update::Stale(_) => None,
    }
}

fn observed_pod(
    state: &pleg::v1::PodState,
    node_address: impl Fn() -> String,
    to_probe_clock: impl Fn(Timestamp) -> Timestamp,
) -> ObservedPod {
    let sandbox = state.sandboxes.first();
    let containers = state.containers.iter().map(|container| ObservedContainer {
        id: container.id.as_str().into(),
        name: container.name.clone(),
        attempt: container.attempt,
        running: container.phase() == pleg::v1::ContainerPhase::Running,
        started_at: time::from_wire_opt(container.started_at.as_ref()).map(&to_probe_clock),
    });
    ObservedPod {
        sandbox: sandbox.map(|sandbox| sandbox.id.as_str().into()),
        host: sandbox.and_then(|sandbox| host(sandbox, node_address)),
        containers: containers.collect(),
    }
}

/// The address that the pod's status has first. `None` for a sandbox whose addresses are unknown: one
/// without addresses is not on the host's network unless the runtime says so.
fn host(sandbox: &pleg::v1::Sandbox, node_address: impl Fn() -> String) -> Option<Arc<str>> {
    // The node's family decides between several addresses only.
    let host_ip = (sandbox.ips.len() > 1).then(&node_address);
    let ips = sorted_pod_ips(&sandbox.ips, host_ip.as_slice());
    let ip = ips.into_iter().next();
    ip.or_else(|| sandbox.host_network.then(node_address))
        .map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_the_first_address_of_the_status() {
        let (ipv4, ipv6) = ("10.0.0.1", "fd00::1");
        let (node_ipv4, node_ipv6) = ("192.0.2.1", "2001:db8::1");
        for (ips, host_network, node, expected) in [
            (&[ipv4][..], false, node_ipv4, Some(ipv4)),
            (&[ipv6], false, node_ipv4, Some(ipv6)),
            (&[ipv6, ipv4], false, node_ipv4, Some(ipv4)),
            (&[ipv4, ipv6], false, node_ipv6, Some(ipv6)),
            (&["::ffff:10.0.0.1"], false, node_ipv4, Some(ipv4)),
            (&[], true, node_ipv4, Some(node_ipv4)),
            (&[], false, node_ipv4, None),
            (&["unknown"], false, node_ipv4, None),
        ] {
            let sandbox = pleg::v1::Sandbox {
                ips: ips.iter().map(|ip| (*ip).to_owned()).collect(),
                host_network,
                ..Default::default()
            };
            let state = pleg::v1::PodState {
                sandboxes: vec![sandbox],
                ..Default::default()
            };
            let observed = observed_pod(&state, || node.to_owned(), |at| at);
            assert_eq!(observed.host.as_deref(), expected, "{ips:?}");
        }
        let none = observed_pod(&Default::default(), String::new, |at| at);
        assert_eq!(none.host, None);
    }
}
