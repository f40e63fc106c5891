//! Names: the pod's host name, its /etc/hosts, its resolver.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::HostAlias;
use polylet_cri::v1::DnsConfig;
use polylet_kit::config::KubeletConfiguration;
use polylet_model::Manifest;

use super::{Hands, files};

const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH: usize = 253;
const MAX_SEARCH_CHARS: usize = 2048;

/// The host name in the sandbox, and the domain if the pod has one.
pub fn names(manifest: &Manifest, kubelet: &KubeletConfiguration) -> (String, String) {
    let spec = manifest.spec();
    if let Some(over) = spec
        .hostname_override
        .as_deref()
        .filter(|name| !name.is_empty())
    {
        return (over.to_owned(), String::new());
    }
    let given = spec
        .hostname
        .as_deref()
        .filter(|name| !name.is_empty())
        .unwrap_or(manifest.name());
    let cut: String = given.chars().take(63).collect();
    let host = cut.trim_end_matches(['-', '.']).to_owned();
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
        let own = fs::read_to_string("/etc/hosts")?;
        format!(
            "# Kubernetes-managed hosts file (host network).\n{own}{}",
            alias_lines(aliases)
        )
    } else {
        let (host, domain) = names(manifest, &hands.ctx.config().kubelet);
        managed(ips, &host, &domain) + &alias_lines(aliases)
    };
    files::clear_folder(&path)?;
    // In place: a running container has this very file mounted.
    fs::write(&path, text)?;
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

/// The reason for telling that the node knows no resolver of the cluster.
pub const MISSING: &str = "MissingClusterDNS";

/// What is wrong with the pod's resolver, by reason and in upstream's words.
pub fn complaints(
    manifest: &Manifest,
    kubelet: &KubeletConfiguration,
) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    if is_clustered(manifest) && kubelet.cluster_dns.is_empty() {
        found.push((
            MISSING,
            format!(
                "pod: \"{}_{}({})\". kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy.",
                manifest.name(),
                manifest.namespace(),
                manifest.uid()
            ),
        ));
    }
    let whole = unlimited(manifest, kubelet);
    let mut cut = whole.clone();
    limit(&mut cut);
    if cut.servers.len() < whole.servers.len() {
        found.push((
            "DNSConfigForming",
            format!(
                "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
                cut.servers.join(" ")
            ),
        ));
    }
    if cut.searches.len() < whole.searches.len() {
        found.push((
            "DNSConfigForming",
            format!(
                "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
                cut.searches.join(" ")
            ),
        ));
    }
    found
}

/// Whether the cluster's resolver is asked for.
fn is_clustered(manifest: &Manifest) -> bool {
    match manifest.spec().dns_policy.as_deref() {
        None | Some("ClusterFirst") => !manifest.host_network(),
        Some(policy) => policy == "ClusterFirstWithHostNet",
    }
}

/// The sandbox's resolver.
pub fn dns(manifest: &Manifest, kubelet: &KubeletConfiguration) -> DnsConfig {
    let mut dns = unlimited(manifest, kubelet);
    limit(&mut dns);
    dns
}

fn unlimited(manifest: &Manifest, kubelet: &KubeletConfiguration) -> DnsConfig {
    let spec = manifest.spec();
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let host = || read_resolv_conf(&kubelet.resolv_conf);
    let clustered = is_clustered(manifest);
    let mut dns = match policy {
        "None" => DnsConfig::default(),
        _ if clustered && !kubelet.cluster_dns.is_empty() => cluster(manifest, kubelet, host()),
        _ => host(),
    };
    if let Some(own) = &spec.dns_config {
        append(&mut dns.servers, own.nameservers.iter().flatten());
        append(&mut dns.searches, own.searches.iter().flatten());
        for option in own.options.iter().flatten() {
            let Some(name) = option.name.as_deref() else {
                continue;
            };
            dns.options
                .retain(|known| known.split(':').next() != Some(name));
            dns.options.push(match &option.value {
                Some(value) => format!("{name}:{value}"),
                None => name.to_owned(),
            });
        }
    }
    dns
}

fn cluster(manifest: &Manifest, kubelet: &KubeletConfiguration, host: DnsConfig) -> DnsConfig {
    let domain = &kubelet.cluster_domain;
    let mut searches = Vec::new();
    if !domain.is_empty() {
        searches = vec![
            format!("{}.svc.{domain}", manifest.namespace()),
            format!("svc.{domain}"),
            domain.clone(),
        ];
    }
    append(&mut searches, host.searches.iter());
    DnsConfig {
        servers: kubelet.cluster_dns.clone(),
        searches,
        options: vec!["ndots:5".to_owned()],
    }
}

fn append<'a>(into: &mut Vec<String>, more: impl Iterator<Item = &'a String>) {
    for item in more {
        if !into.contains(item) {
            into.push(item.clone());
        }
    }
}

/// What resolvers can take; the rest is cut off.
fn limit(dns: &mut DnsConfig) {
    dns.servers.truncate(MAX_NAMESERVERS);
    dns.searches.truncate(MAX_SEARCHES);
    // Some resolvers end their program over a longer one.
    dns.searches.retain(|search| search.len() <= MAX_SEARCH);
    while dns.searches.join(" ").len() > MAX_SEARCH_CHARS {
        dns.searches.pop();
    }
}

fn read_resolv_conf(path: &str) -> DnsConfig {
    if path.is_empty() {
        return DnsConfig {
            servers: vec!["127.0.0.1".to_owned()],
            searches: vec![".".to_owned()],
            options: Vec::new(),
        };
    }
    match fs::read_to_string(path) {
        Ok(text) => parse_resolv_conf(&text),
        Err(error) => {
            tracing::warn!(path, %error, "resolver configuration not read");
            DnsConfig::default()
        }
    }
}

fn parse_resolv_conf(text: &str) -> DnsConfig {
    let mut dns = DnsConfig::default();
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => dns.servers.extend(words.next().map(str::to_owned)),
            // The last one counts.
            Some("search") => {
                dns.searches = words
                    .map(|w| if w == "." { w } else { w.trim_end_matches('.') }.to_owned())
                    .collect()
            }
            Some("options") => append(
                &mut dns.options,
                words.map(str::to_owned).collect::<Vec<_>>().iter(),
            ),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_is_read() {
        let dns = parse_resolv_conf(
            "# c\nnameserver 10.0.0.1 # x\nsearch a.b. c\nsearch d. .\noptions ndots:2 edns0\n",
        );
        assert_eq!(dns.servers, ["10.0.0.1"]);
        assert_eq!(dns.searches, ["d", "."]);
        assert_eq!(dns.options, ["ndots:2", "edns0"]);
    }

    #[test]
    fn what_resolvers_cannot_take_is_cut_off() {
        let mut dns = DnsConfig {
            servers: (0..5).map(|n| format!("10.0.0.{n}")).collect(),
            searches: vec!["a".repeat(254), "b".repeat(253), "c".to_owned()],
            options: Vec::new(),
        };
        limit(&mut dns);
        assert_eq!(dns.servers, ["10.0.0.0", "10.0.0.1", "10.0.0.2"]);
        assert_eq!(dns.searches, ["b".repeat(253), "c".to_owned()]);
        dns.searches = (0..40).map(|n| format!("{n:0100}")).collect();
        limit(&mut dns);
        assert_eq!(dns.searches.len(), 20);
        assert!(dns.searches.join(" ").len() <= 2048);
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
