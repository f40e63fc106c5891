//! A pod's resolver: the cluster's, the node's, or its own; and what resolvers cannot take.

use std::fs;

use polylet_cri::v1::DnsConfig;
use polylet_kit::config::KubeletConfiguration;
use polylet_model::Manifest;

const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH: usize = 253;
const MAX_SEARCH_CHARS: usize = 2048;
/// Domains that a pod of the cluster looks in before all others.
const CLUSTER_SEARCHES: usize = 3;

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

/// What is wrong with the node's own resolver file, in upstream's words: pods that add the cluster's
/// domains to it may lose some.
pub fn limits(kubelet: &KubeletConfiguration) -> Option<String> {
    let path = &kubelet.resolv_conf;
    if path.is_empty() {
        return None;
    }
    match fs::read_to_string(path) {
        Ok(text) => excess(
            path,
            &parse_resolv_conf(&text),
            !kubelet.cluster_domain.is_empty(),
        ),
        Err(error) => Some(format!("open {path}: {}", reason(&error))),
    }
}

/// The first of the limits that a resolver file goes beyond.
fn excess(path: &str, dns: &DnsConfig, clustered: bool) -> Option<String> {
    let most = if clustered {
        MAX_SEARCHES - CLUSTER_SEARCHES
    } else {
        MAX_SEARCHES
    };
    let searches = &dns.searches;
    if searches.len() > most {
        Some(format!(
            "Resolv.conf file '{path}' contains search line consisting of more than {most} domains!"
        ))
    } else if searches.iter().any(|search| search.len() > MAX_SEARCH) {
        Some(format!(
            "Resolv.conf file {path:?} contains a search path which length is more than allowed {MAX_SEARCH} chars!"
        ))
    } else if searches.join(" ").len() > MAX_SEARCH_CHARS {
        Some(format!(
            "Resolv.conf file '{path}' contains search line which length is more than allowed {MAX_SEARCH_CHARS} chars!"
        ))
    } else {
        None
    }
}

/// The system's words for an error, without its number.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let words = text.split(" (os error").next().unwrap_or_default();
    words.to_lowercase()
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
    fn a_resolver_file_of_the_node_goes_beyond_limits() {
        let with = |searches: Vec<String>, clustered| {
            let dns = DnsConfig {
                searches,
                ..DnsConfig::default()
            };
            excess("/r", &dns, clustered).unwrap_or_default()
        };
        let many = |count: usize| vec!["a".to_owned(); count];
        assert_eq!(with(many(29), true), "");
        assert_eq!(
            with(many(30), true),
            "Resolv.conf file '/r' contains search line consisting of more than 29 domains!"
        );
        assert_eq!(with(many(32), false), "");
        assert_eq!(
            with(vec!["a".repeat(254)], true),
            "Resolv.conf file \"/r\" contains a search path which length is more than allowed 253 chars!"
        );
        assert_eq!(
            with(vec!["a".repeat(253); 9], true),
            "Resolv.conf file '/r' contains search line which length is more than allowed 2048 chars!"
        );
        let none = KubeletConfiguration {
            resolv_conf: "/does/not/exist".to_owned(),
            ..KubeletConfiguration::default()
        };
        let words = "open /does/not/exist: no such file or directory";
        assert_eq!(limits(&none).as_deref(), Some(words));
    }
}
