//! Names, addresses and ports of a pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodDNSConfig, PodSpec};

use super::super::decode::quoted;
use super::{Findings, names};

pub(super) fn check(out: &mut Findings, spec: &PodSpec) {
    out.form("spec.hostname", spec.hostname.as_ref(), names::label);
    out.form("spec.subdomain", spec.subdomain.as_ref(), names::label);
    if let Some(name) = &spec.hostname_override {
        out.name("spec.hostnameOverride", name, names::subdomain);
        if name.len() > 64 {
            out.add("spec.hostnameOverride", "is longer than 64 characters");
        }
        if spec.set_hostname_as_fqdn == Some(true) || spec.host_network == Some(true) {
            out.add(
                "spec.hostnameOverride",
                "cannot be set together with setHostnameAsFQDN or hostNetwork",
            );
        }
    }
    for (i, alias) in spec.host_aliases.iter().flatten().enumerate() {
        out.ip(format!("spec.hostAliases[{i}].ip"), &alias.ip);
        for (j, name) in alias.hostnames.iter().flatten().enumerate() {
            out.name(
                format!("spec.hostAliases[{i}].hostnames[{j}]"),
                name,
                names::subdomain,
            );
        }
    }
    let servers = spec
        .dns_config
        .as_ref()
        .map_or(0, |c| c.nameservers.as_ref().map_or(0, Vec::len));
    if spec.dns_policy.as_deref() == Some("None") && servers == 0 {
        out.add(
            "spec.dnsConfig.nameservers",
            "required: at least one when dnsPolicy is None",
        );
    }
    if let Some(config) = &spec.dns_config {
        dns(out, config);
    }
}

fn dns(out: &mut Findings, config: &PodDNSConfig) {
    let servers = config.nameservers.as_deref().unwrap_or_default();
    if servers.len() > 3 {
        out.add("spec.dnsConfig.nameservers", "must not be more than 3");
    }
    for (i, server) in servers.iter().enumerate() {
        out.ip(format!("spec.dnsConfig.nameservers[{i}]"), server);
    }
    let searches = config.searches.as_deref().unwrap_or_default();
    if searches.len() > 32 || searches.join(" ").len() > 2048 {
        out.add(
            "spec.dnsConfig.searches",
            "must not be more than 32, of 2048 characters in all",
        );
    }
    for (i, search) in searches.iter().enumerate() {
        // A search may end in a dot, be one, and hold underscores.
        let name = search.strip_suffix('.').unwrap_or(search).replace('_', "-");
        if search != "." && names::subdomain(name.trim_matches('-')).is_err() {
            out.add(
                format!("spec.dnsConfig.searches[{i}]"),
                format!("{} is not a DNS name", quoted(search)),
            );
        }
    }
    for (i, option) in config.options.iter().flatten().enumerate() {
        out.required(
            format!("spec.dnsConfig.options[{i}].name"),
            option.name.as_deref().unwrap_or_default(),
        );
    }
}

/// Ports of one container.
pub(super) fn ports(out: &mut Findings, path: &str, container: &Container, host_network: bool) {
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, port) in container.ports.iter().flatten().enumerate() {
        let path = format!("{path}.ports[{i}]");
        if let Some(name) = port.name.as_deref().filter(|n| !n.is_empty()) {
            out.name(format!("{path}.name"), name, names::port);
            if let Some(first) = named.get(name) {
                out.add(
                    format!("{path}.name"),
                    format!("{} is already the name of ports[{first}]", quoted(name)),
                );
            } else {
                named.insert(name, i);
            }
        }
        out.range(
            format!("{path}.containerPort"),
            Some(i64::from(port.container_port)),
            1,
            65535,
        );
        let host_port = port.host_port.unwrap_or(0);
        if host_port != 0 {
            out.range(
                format!("{path}.hostPort"),
                Some(i64::from(host_port)),
                1,
                65535,
            );
            if host_network && host_port != port.container_port {
                out.add(
                    format!("{path}.hostPort"),
                    "must be the same as containerPort when hostNetwork is true",
                );
            }
        }
        if let Some(ip) = port.host_ip.as_deref().filter(|ip| !ip.is_empty()) {
            out.ip(format!("{path}.hostIP"), ip);
        }
        out.word(
            format!("{path}.protocol"),
            port.protocol.as_ref(),
            &["TCP", "UDP", "SCTP"],
        );
    }
}

/// A port of the node may be taken once in a pod; init containers that end do not count.
pub(super) fn host_ports(out: &mut Findings, spec: &PodSpec) {
    let sidecar = |c: &&Container| c.restart_policy.as_deref() == Some("Always");
    let inits = spec.init_containers.iter().flatten().filter(sidecar);
    let mut taken = BTreeMap::new();
    for container in spec.containers.iter().chain(inits) {
        for port in container.ports.iter().flatten() {
            let Some(number) = port.host_port.filter(|p| *p != 0) else {
                continue;
            };
            let key = (
                port.protocol.as_deref().unwrap_or("TCP"),
                port.host_ip.as_deref().unwrap_or_default(),
                number,
            );
            if let Some(first) = taken.insert(key, &container.name) {
                let message = format!(
                    "container {} asks for host port {number}/{}, which {first} has",
                    container.name, key.0
                );
                out.add("spec.containers", message);
            }
        }
    }
}
