//! Sysctls of pods: which ones are allowed.

use k8s_openapi::api::core::v1::PodSpec;

/// Sysctls that are namespaced and do not affect other pods.
const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// The namespace of a sysctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

/// The name with dots as separators, from either notation.
pub fn normalize(name: &str) -> String {
    match name.find(['.', '/']) {
        // Where the first separator is a slash, dots are part of names.
        Some(at) if name.as_bytes().get(at) == Some(&b'/') => name
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => name.to_owned(),
    }
}

fn namespace(name: &str) -> Option<Namespace> {
    match name {
        "kernel.sem" => Some(Namespace::Ipc),
        _ if name.starts_with("kernel.shm")
            || name.starts_with("kernel.msg")
            || name.starts_with("fs.mqueue.") =>
        {
            Some(Namespace::Ipc)
        }
        _ if name.starts_with("net.") => Some(Namespace::Net),
        _ => None,
    }
}

/// The error of the first sysctl of a pod that is not allowed. `allowed` are the configured patterns
/// (`net.core.*`).
pub fn forbidden_reason(spec: &PodSpec, allowed: &[String]) -> Option<String> {
    let context = spec.security_context.as_ref()?;
    context.sysctls.iter().flatten().find_map(|sysctl| {
        let name = normalize(&sysctl.name);
        let is_allowed =
            SAFE.contains(&name.as_str()) || allowed.iter().any(|pattern| matches(pattern, &name));
        if !is_allowed {
            return Some(format!("forbidden sysctl: {name:?} not allowlisted"));
        }
        let shared = match namespace(&name)? {
            Namespace::Net => (spec.host_network == Some(true)).then_some("Net")?,
            Namespace::Ipc => (spec.host_ipc == Some(true)).then_some("IPC")?,
        };
        Some(format!(
            "forbidden sysctl: {name:?} not allowed with host {shared} enabled"
        ))
    })
}

fn matches(pattern: &str, name: &str) -> bool {
    let pattern = normalize(pattern);
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn error_messages() {
        let spec = |name: &str| {
            let spec = json!({"containers": [], "hostNetwork": true, "hostIPC": true,
                "securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
            serde_json::from_value(spec).unwrap()
        };
        let message = |name: &str| forbidden_reason(&spec(name), &[]).unwrap();
        assert_eq!(
            message("kernel/msgmax"),
            "forbidden sysctl: \"kernel.msgmax\" not allowlisted"
        );
        assert_eq!(
            message("net/ipv4/tcp_syncookies"),
            "forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host Net enabled"
        );
        assert_eq!(
            message("kernel.shm_rmid_forced"),
            "forbidden sysctl: \"kernel.shm_rmid_forced\" not allowed with host IPC enabled"
        );
    }

    #[test]
    fn safe_allowed_and_forbidden() {
        let check = |name: &str, host: bool, allowed: &[&str]| {
            let spec = json!({"containers": [], "hostNetwork": host, "securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
            let allowed: Vec<String> = allowed.iter().map(|text| (*text).to_owned()).collect();
            forbidden_reason(&serde_json::from_value(spec).unwrap(), &allowed).is_none()
        };
        assert!(check("net.ipv4.tcp_syncookies", false, &[]));
        assert!(check("net/ipv4/tcp_syncookies", false, &[]));
        assert!(!check("net.ipv4.tcp_syncookies", true, &[]));
        assert!(!check("net.core.somaxconn", false, &[]));
        assert!(check("net.core.somaxconn", false, &["net.core.*"]));
        assert!(check("net.core.somaxconn", false, &["net.core.somaxconn"]));
        assert!(!check("net.core.somaxconn", true, &["net.core.*"]));
        assert!(check("kernel.shm_rmid_forced", true, &[]));
        assert!(!check("vm.swappiness", false, &["net.*"]));
    }
}
