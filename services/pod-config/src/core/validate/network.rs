//! Validation of host names, DNS and ports.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodDNSConfig, PodSpec};

use super::super::decode::quoted;
use super::{ErrorList, names};

pub(super) fn check(errors: &mut ErrorList, spec: &PodSpec) {
    errors.format("spec.hostname", spec.hostname.as_ref(), names::label);
    errors.format("spec.subdomain", spec.subdomain.as_ref(), names::label);
    if let Some(name) = &spec.hostname_override {
        errors.name("spec.hostnameOverride", name, names::subdomain);
        if name.len() > 64 {
            errors.add("spec.hostnameOverride", "is longer than 64 characters");
        }
        if spec.set_hostname_as_fqdn == Some(true) || spec.host_network == Some(true) {
            errors.add(
                "spec.hostnameOverride",
                "cannot be set together with setHostnameAsFQDN or hostNetwork",
            );
        }
    }
    for (i, alias) in spec.host_aliases.iter().flatten().enumerate() {
        errors.ip(format!("spec.hostAliases[{i}].ip"), &alias.ip);
        for (j, name) in alias.hostnames.iter().flatten().enumerate() {
            errors.name(
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
        errors.add(
            "spec.dnsConfig.nameservers",
            "required: at least one when dnsPolicy is None",
        );
    }
    if let Some(config) = &spec.dns_config {
        dns(errors, config);
    }
}

fn dns(errors: &mut ErrorList, config: &PodDNSConfig) {
    let servers = config.nameservers.as_deref().unwrap_or_default();
    if servers.len() > 3 {
        errors.add("spec.dnsConfig.nameservers", "must not be more than 3");
    }
    for (i, server) in servers.iter().enumerate() {
        errors.ip(format!("spec.dnsConfig.nameservers[{i}]"), server);
    }
    let searches = config.searches.as_deref().unwrap_or_default();
    if searches.len() > 32 || searches.join(" ").len() > 2048 {
        errors.add(
            "spec.dnsConfig.searches",
            "must not be more than 32 or longer than 2048 characters in total",
        );
    }
    for (i, search) in searches.iter().enumerate() {
        // A search domain may be a dot or end in one, and contain underscores.
        let name = search.strip_suffix('.').unwrap_or(search).replace('_', "-");
        if search != "." && names::subdomain(name.trim_matches('-')).is_err() {
            errors.add(
                format!("spec.dnsConfig.searches[{i}]"),
                format!("{} is not a DNS name", quoted(search)),
            );
        }
    }
    for (i, option) in config.options.iter().flatten().enumerate() {
        errors.required(
            format!("spec.dnsConfig.options[{i}].name"),
            option.name.as_deref().unwrap_or_default(),
        );
    }
}

/// Checks the ports of one container.
pub(super) fn ports(errors: &mut ErrorList, path: &str, container: &Container, host_network: bool) {
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, port) in container.ports.iter().flatten().enumerate() {
        let path = format!("{path}.ports[{i}]");
        if let Some(name) = port.name.as_deref().filter(|n| !n.is_empty()) {
            errors.name(format!("{path}.name"), name, names::port);
            if let Some(first) = named.get(name) {
                errors.add(
                    format!("{path}.name"),
                    format!("{} is already the name of ports[{first}]", quoted(name)),
                );
            } else {
                named.insert(name, i);
            }
        }
        errors.range(
            format!("{path}.containerPort"),
            Some(i64::from(port.container_port)),
            1,
            65535,
        );
        let host_port = port.host_port.unwrap_or(0);
        if host_port != 0 {
            errors.range(
                format!("{path}.hostPort"),
                Some(i64::from(host_port)),
                1,
                65535,
            );
            if host_network && host_port != port.container_port {
                errors.add(
                    format!("{path}.hostPort"),
                    "must be the same as containerPort when hostNetwork is true",
                );
            }
        }
        if let Some(ip) = port.host_ip.as_deref().filter(|ip| !ip.is_empty()) {
            errors.ip(format!("{path}.hostIP"), ip);
        }
        errors.one_of(
            format!("{path}.protocol"),
            port.protocol.as_ref(),
            &["TCP", "UDP", "SCTP"],
        );
    }
}

/// Checks that each host port is used once in the pod, by containers that run at the same time.
pub(super) fn host_ports(errors: &mut ErrorList, spec: &PodSpec) {
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
                    "host port {number}/{} of container {} is already used by {first}",
                    key.0, container.name
                );
                errors.add("spec.containers", message);
            }
        }
    }
}
