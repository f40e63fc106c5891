//! The pod's hostname and its /etc/hosts.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::HostAlias;
use polylet_kit::config::KubeletConfiguration;
use polylet_model::Manifest;

use super::{RuntimeManager, files};

/// The kernel's limit without the terminating zero byte.
const MAX_HOSTNAME: usize = 63;
const HOST_NETWORK_HEADER: &str = "# Kubernetes-managed hosts file (host network).\n";

/// The hostname, and the domain if the pod has one.
pub fn hostname_and_domain(
    manifest: &Manifest,
    kubelet: &KubeletConfiguration,
) -> (String, String) {
    let spec = manifest.spec();
    let non_empty = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
    if let Some(over) = non_empty(&spec.hostname_override) {
        return (truncate(&over), String::new());
    }
    let host = truncate(
        non_empty(&spec.hostname)
            .as_deref()
            .unwrap_or(manifest.name()),
    );
    let domain = match spec.subdomain.as_deref().filter(|name| !name.is_empty()) {
        Some(sub) => format!(
            "{sub}.{}.svc.{}",
            manifest.namespace(),
            kubelet.cluster_domain
        ),
        None => String::new(),
    };
    (host, domain)
}

/// Truncates a name to the kernel's limit; a name does not end in `-` or `.`.
fn truncate(name: &str) -> String {
    match name.char_indices().nth(MAX_HOSTNAME) {
        Some((end, _)) => name.get(..end).unwrap_or_default(),
        None => return name.to_owned(),
    }
    .trim_end_matches(['-', '.'])
    .to_owned()
}

/// The hostname of the sandbox, fully qualified if the pod asks for it.
///
/// # Errors
/// The kubelet's message when the name is too long.
pub fn sandbox_hostname(
    manifest: &Manifest,
    kubelet: &KubeletConfiguration,
) -> Result<String, String> {
    if manifest.host_network() {
        return Ok(String::new());
    }
    let (host, domain) = hostname_and_domain(manifest, kubelet);
    if manifest.spec().set_hostname_as_fqdn != Some(true) || domain.is_empty() {
        return Ok(host);
    }
    let full = format!("{host}.{domain}");
    if full.len() > 64 {
        return Err(format!(
            "failed to construct FQDN from pod hostname and cluster domain, FQDN {full} is too long (64 characters is the max, {} characters requested)",
            full.len()
        ));
    }
    Ok(full)
}

/// Writes the pod's /etc/hosts at the creation of a container.
pub fn write_hosts_file(
    manager: &RuntimeManager,
    manifest: &Manifest,
    ips: &[String],
) -> std::io::Result<Option<PathBuf>> {
    let uid = manifest.uid();
    if ips.is_empty() && !manifest.host_network() {
        return Ok(None);
    }
    let root = &manager.ctx.config().polylet.root_directory;
    files::create_pod_dir(root, uid.as_str())?;
    let path = polylet_model::names::etc_hosts(root, uid);
    let aliases = manifest.spec().host_aliases.as_deref().unwrap_or_default();
    let text = if manifest.host_network() {
        // As bytes: comments in it need not be UTF-8.
        let own = fs::read("/etc/hosts")?;
        let (header, aliases) = (HOST_NETWORK_HEADER.as_bytes(), alias_lines(aliases));
        [header, &own, aliases.as_bytes()].concat()
    } else {
        let (host, domain) = hostname_and_domain(manifest, &manager.ctx.config().kubelet);
        (managed_hosts(ips, &host, &domain) + &alias_lines(aliases)).into_bytes()
    };
    files::remove_empty_dir(&path)?;
    // In place: running containers have this file mounted.
    fs::write(&path, text)?;
    // Readable by the container's user, regardless of the umask.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    Ok(Some(path))
}

fn managed_hosts(ips: &[String], host: &str, domain: &str) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n\
         127.0.0.1\tlocalhost\n\
         ::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\n\
         fe00::0\tip6-mcastprefix\n\
         fe00::1\tip6-allnodes\n\
         fe00::2\tip6-allrouters\n",
    );
    for ip in ips {
        let _ = if domain.is_empty() {
            writeln!(text, "{ip}\t{host}")
        } else {
            writeln!(text, "{ip}\t{host}.{domain}\t{host}")
        };
    }
    text
}

fn alias_lines(aliases: &[HostAlias]) -> String {
    if aliases.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n# Entries added by HostAliases.\n");
    for alias in aliases {
        let _ = writeln!(
            text,
            "{}\t{}",
            alias.ip,
            alias.hostnames.as_deref().unwrap_or_default().join("\t")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_hostnames_are_truncated() {
        let long = |end: &str| format!("{}{end}", "a".repeat(60));
        assert_eq!(truncate("web"), "web");
        assert_eq!(truncate(&long("bcd")), long("bcd"));
        assert_eq!(truncate(&long("bcde")), long("bcd"));
        assert_eq!(truncate(&long("b-.x")), long("b"));
    }

    #[test]
    fn hosts_file_has_pod_and_alias_lines() {
        let text = managed_hosts(&["10.1.1.2".into()], "web", "sub.ns.svc.local");
        assert!(text.ends_with("10.1.1.2\tweb.sub.ns.svc.local\tweb\n"));
        let alias = HostAlias {
            ip: "1.2.3.4".into(),
            hostnames: Some(vec!["a".into(), "b".into()]),
        };
        assert_eq!(
            alias_lines(&[alias]),
            "\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"
        );
    }
}
