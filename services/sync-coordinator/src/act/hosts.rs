//! Names: the pod's host name and its /etc/hosts.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::HostAlias;
use polylet_kit::config::KubeletConfiguration;
use polylet_model::Manifest;

use super::{Hands, files};

/// One less than the kernel's, which counts the end of the text.
const MAX_HOSTNAME: usize = 63;
const OF_HOST: &str = "# Kubernetes-managed hosts file (host network).\n";

/// The host name in the sandbox, and the domain if the pod has one.
pub fn names(manifest: &Manifest, kubelet: &KubeletConfiguration) -> (String, String) {
    let spec = manifest.spec();
    let given = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
    if let Some(over) = given(&spec.hostname_override) {
        return (cut(&over), String::new());
    }
    let host = cut(given(&spec.hostname).as_deref().unwrap_or(manifest.name()));
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

/// What a kernel takes, without what no name ends in.
fn cut(name: &str) -> String {
    match name.char_indices().nth(MAX_HOSTNAME) {
        Some((end, _)) => name.get(..end).unwrap_or_default(),
        None => return name.to_owned(),
    }
    .trim_end_matches(['-', '.'])
    .to_owned()
}

/// What the sandbox is told as its host name; a message when it cannot be.
pub fn sandbox_hostname(
    manifest: &Manifest,
    kubelet: &KubeletConfiguration,
) -> Result<String, String> {
    if manifest.host_network() {
        return Ok(String::new());
    }
    let (host, domain) = names(manifest, kubelet);
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

/// Writes the pod's /etc/hosts, as it stands at this start of a container.
pub fn write(
    hands: &Hands,
    manifest: &Manifest,
    ips: &[String],
) -> std::io::Result<Option<PathBuf>> {
    let uid = manifest.uid();
    if ips.is_empty() && !manifest.host_network() {
        return Ok(None);
    }
    files::make_pod_dir(hands, uid.as_str())?;
    let path = polylet_model::names::etc_hosts(&hands.ctx.config().polylet.root_directory, uid);
    let aliases = manifest.spec().host_aliases.as_deref().unwrap_or_default();
    let text = if manifest.host_network() {
        // As bytes: nobody says that comments in it are in UTF-8.
        let own = fs::read("/etc/hosts")?;
        let (title, aliases) = (OF_HOST.as_bytes(), alias_lines(aliases));
        [title, &own, aliases.as_bytes()].concat()
    } else {
        let (host, domain) = names(manifest, &hands.ctx.config().kubelet);
        (managed(ips, &host, &domain) + &alias_lines(aliases)).into_bytes()
    };
    files::clear_folder(&path)?;
    // In place: a running container has this very file mounted.
    fs::write(&path, text)?;
    // Whoever the container runs as reads it, whatever this process's mask is.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    Ok(Some(path))
}

fn managed(ips: &[String], host: &str, domain: &str) -> String {
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
    fn long_names_are_cut_to_what_a_kernel_takes() {
        let long = |end: &str| format!("{}{end}", "a".repeat(60));
        assert_eq!(cut("web"), "web");
        assert_eq!(cut(&long("bcd")), long("bcd"));
        assert_eq!(cut(&long("bcde")), long("bcd"));
        assert_eq!(cut(&long("b-.x")), long("b"));
    }

    #[test]
    fn hosts_lines() {
        let text = managed(&["10.1.1.2".into()], "web", "sub.ns.svc.local");
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
