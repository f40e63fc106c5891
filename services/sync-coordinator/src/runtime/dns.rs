//! DNS configuration of pods: of the cluster, of the node, or of the pod itself, within the limits of
//! resolvers. Messages are the kubelet's.

use std::collections::HashSet;
use std::{fs, io};

use polylet_cri::v1::DnsConfig;
use polylet_kit::config::KubeletConfiguration;
use polylet_model::Manifest;

const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH: usize = 253;
const MAX_SEARCH_CHARS: usize = 2048;
/// Search domains of the cluster, which come before all others.
const CLUSTER_SEARCHES: usize = 3;

/// The event reason when a pod needs the cluster DNS and the node has none configured.
pub const MISSING_CLUSTER_DNS: &str = "MissingClusterDNS";

/// The DNS configuration of a pod.
pub struct PodDns {
    /// The configuration for the runtime.
    pub config: DnsConfig,
    /// Reasons and messages of warning events.
    pub warnings: Vec<(&'static str, String)>,
}

/// The DNS configuration of a pod on a node with these addresses.
///
/// # Errors
/// The node's resolv.conf cannot be read: as in the kubelet, not even a pod that does not use it
/// starts then.
pub fn pod_dns(
    manifest: &Manifest,
    kubelet: &KubeletConfiguration,
    host_ips: &[String],
) -> Result<PodDns, String> {
    let node = match kubelet.resolv_conf.as_str() {
        "" => DnsConfig::default(),
        path => read(path)?,
    };
    let mut warnings = Vec::new();
    if uses_cluster_dns(manifest) && kubelet.cluster_dns.is_empty() {
        warnings.push((MISSING_CLUSTER_DNS, missing_message(manifest)));
    }
    let full = unlimited(manifest, kubelet, node, host_ips);
    let mut config = full.clone();
    apply_limits(&mut config);
    warnings.extend(limit_warnings(&full, &config));
    Ok(PodDns { config, warnings })
}

fn missing_message(manifest: &Manifest) -> String {
    format!(
        "pod: \"{}_{}({})\". kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy.",
        manifest.name(),
        manifest.namespace(),
        manifest.uid()
    )
}

fn limit_warnings(full: &DnsConfig, limited: &DnsConfig) -> Vec<(&'static str, String)> {
    let mut messages = Vec::new();
    if limited.servers.len() < full.servers.len() {
        messages.push(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            limited.servers.join(" ")
        ));
    }
    if limited.searches.len() < full.searches.len() {
        messages.push(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            limited.searches.join(" ")
        ));
    }
    let warning = |message| ("DNSConfigForming", message);
    messages.into_iter().map(warning).collect()
}

/// Whether the pod uses the cluster DNS.
fn uses_cluster_dns(manifest: &Manifest) -> bool {
    match manifest.spec().dns_policy.as_deref() {
        None | Some("ClusterFirst") => !manifest.host_network(),
        Some(policy) => policy == "ClusterFirstWithHostNet",
    }
}

fn unlimited(
    manifest: &Manifest,
    kubelet: &KubeletConfiguration,
    node: DnsConfig,
    host_ips: &[String],
) -> DnsConfig {
    let spec = manifest.spec();
    let mut dns = match spec.dns_policy.as_deref() {
        Some("None") => DnsConfig::default(),
        _ if uses_cluster_dns(manifest) && !kubelet.cluster_dns.is_empty() => {
            cluster_dns(manifest, kubelet, node)
        }
        _ if kubelet.resolv_conf.is_empty() => loopback(host_ips),
        _ => node,
    };
    if let Some(own) = &spec.dns_config {
        append(&mut dns.servers, own.nameservers.iter().flatten());
        append(&mut dns.searches, own.searches.iter().flatten());
        let options = own.options.iter().flatten().filter_map(|option| {
            let name = option.name.as_deref()?;
            let value = option.value.as_deref().filter(|value| !value.is_empty());
            Some(match value {
                Some(value) => format!("{name}:{value}"),
                None => name.to_owned(),
            })
        });
        dns.options = merge_options(std::mem::take(&mut dns.options), options);
    }
    dns
}

fn cluster_dns(manifest: &Manifest, kubelet: &KubeletConfiguration, node: DnsConfig) -> DnsConfig {
    let domain = &kubelet.cluster_domain;
    let mut searches = Vec::new();
    if !domain.is_empty() {
        searches = vec![
            format!("{}.svc.{domain}", manifest.namespace()),
            format!("svc.{domain}"),
            domain.clone(),
        ];
    }
    append(&mut searches, node.searches.iter());
    DnsConfig {
        servers: kubelet.cluster_dns.clone(),
        searches,
        options: vec!["ndots:5".to_owned()],
    }
}

/// The configuration on a node without a resolv.conf: pods query themselves, as with the kubelet.
fn loopback(host_ips: &[String]) -> DnsConfig {
    let loopback = |ip: &String| if ip.contains(':') { "::1" } else { "127.0.0.1" };
    let mut servers = Vec::new();
    append(
        &mut servers,
        host_ips
            .iter()
            .map(|ip| loopback(ip).to_owned())
            .collect::<Vec<_>>()
            .iter(),
    );
    if servers.is_empty() {
        servers.push("127.0.0.1".to_owned());
    }
    DnsConfig {
        servers,
        searches: vec![".".to_owned()],
        options: Vec::new(),
    }
}

/// Adds items that are not in the list yet.
fn append<'a>(into: &mut Vec<String>, more: impl Iterator<Item = &'a String>) {
    let mut known: HashSet<String> = into.iter().cloned().collect();
    into.extend(more.filter(|item| known.insert((*item).clone())).cloned());
}

/// Adds options; the last one with a name takes effect. In one pass, since a pod may have thousands.
fn merge_options(options: Vec<String>, more: impl Iterator<Item = String>) -> Vec<String> {
    let mut merged: Vec<String> = options.into_iter().chain(more).collect();
    let mut known = HashSet::new();
    merged.reverse();
    merged.retain(|option| {
        let name = option.split(':').next().unwrap_or_default();
        known.insert(name.to_owned())
    });
    merged.reverse();
    merged
}

/// Removes what exceeds the limits of resolvers.
fn apply_limits(dns: &mut DnsConfig) {
    dns.servers.truncate(MAX_NAMESERVERS);
    dns.searches.truncate(MAX_SEARCHES);
    // Some resolvers abort on a longer one.
    dns.searches.retain(|search| search.len() <= MAX_SEARCH);
    while dns.searches.join(" ").len() > MAX_SEARCH_CHARS {
        dns.searches.pop();
    }
}

fn read(path: &str) -> Result<DnsConfig, String> {
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| format!("open {path}: {}", reason(&error)))?;
    parse(&text)
}

/// Parses a resolv.conf.
///
/// # Errors
/// A line without its value, with upstream's message.
pub fn parse(text: &str) -> Result<DnsConfig, String> {
    let mut dns = DnsConfig::default();
    let mut options = Vec::new();
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => {
                let server = words.next().ok_or("nameserver list is empty ")?;
                dns.servers.push(server.to_owned());
            }
            // The last line takes effect.
            Some("search") => {
                let domains = words.filter(|word| *word != ".");
                let domain = |word: &str| word.strip_suffix('.').unwrap_or(word).to_owned();
                dns.searches = domains.map(domain).collect();
            }
            Some("options") => options.extend(words.map(str::to_owned)),
            _ => {}
        }
    }
    dns.options = merge_options(Vec::new(), options.into_iter());
    Ok(dns)
}

/// The problem of the node's resolv.conf, if it has one: with the search domains of the cluster it may
/// exceed the limits of resolvers.
pub fn check_limits(kubelet: &KubeletConfiguration) -> Option<String> {
    let path = &kubelet.resolv_conf;
    if path.is_empty() {
        return None;
    }
    match read(path) {
        Ok(dns) => exceeded_limit(path, &dns, !kubelet.cluster_domain.is_empty()),
        Err(message) => Some(message),
    }
}

/// The first limit that a resolv.conf exceeds.
fn exceeded_limit(path: &str, dns: &DnsConfig, clustered: bool) -> Option<String> {
    let max_searches = if clustered {
        MAX_SEARCHES - CLUSTER_SEARCHES
    } else {
        MAX_SEARCHES
    };
    let (searches, single) = (&dns.searches, format!("'{path}'"));
    let (file, what, limit) = if searches.len() > max_searches {
        (
            single,
            "search line consisting of more than",
            format!("{max_searches} domains"),
        )
    } else if searches.iter().any(|search| search.len() > MAX_SEARCH) {
        let what = "a search path which length is more than allowed";
        (format!("{path:?}"), what, format!("{MAX_SEARCH} chars"))
    } else if searches.join(" ").len() > MAX_SEARCH_CHARS {
        let what = "search line which length is more than allowed";
        (single, what, format!("{MAX_SEARCH_CHARS} chars"))
    } else {
        return None;
    };
    Some(format!("Resolv.conf file {file} contains {what} {limit}!"))
}

/// The system's message for an error, without its number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let message = text.split(" (os error").next().unwrap_or_default();
    message.to_lowercase()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: serde_json::Value) -> Manifest {
        let mut spec = spec;
        spec["containers"] = json!([]);
        let metadata = json!({ "name": "p", "namespace": "n", "uid": "u" });
        let text = json!({ "metadata": metadata, "spec": spec }).to_string();
        Manifest::from_json(text.as_bytes()).unwrap()
    }

    #[test]
    fn thousands_of_options_are_merged_in_one_pass() {
        let option = |n: usize| json!({ "name": format!("o{n}"), "value": "1" });
        let options: Vec<_> = (0..60_000).chain(0..2).map(option).collect();
        let pod = pod(json!({ "dnsPolicy": "None", "dnsConfig": { "options": options } }));
        let kubelet = KubeletConfiguration {
            resolv_conf: String::new(),
            ..KubeletConfiguration::default()
        };
        let started = std::time::Instant::now();
        let dns = pod_dns(&pod, &kubelet, &[]).unwrap().config;
        assert_eq!(dns.options.len(), 60_000);
        assert_eq!((&*dns.options[0], &*dns.options[59_999]), ("o2:1", "o1:1"));
        // Comparing each with all others takes minutes.
        assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    }

    #[test]
    fn resolv_conf_is_parsed() {
        let dns = parse(
            "# c\nnameserver 10.0.0.1 # x\nsearch a.b. c\nsearch d. .\noptions ndots:2 edns0\noptions ndots:3\n",
        );
        let dns = dns.unwrap();
        assert_eq!(dns.servers, ["10.0.0.1"]);
        assert_eq!(dns.searches, ["d"]);
        assert_eq!(dns.options, ["edns0", "ndots:3"]);
        assert_eq!(
            parse("nameserver\n").unwrap_err(),
            "nameserver list is empty "
        );
    }

    #[test]
    fn without_resolv_conf_pods_use_loopback_or_cluster_dns() {
        let kubelet = |dns: &[&str]| KubeletConfiguration {
            resolv_conf: String::new(),
            cluster_domain: "c".to_owned(),
            cluster_dns: dns.iter().map(|ip| (*ip).to_owned()).collect(),
            ..KubeletConfiguration::default()
        };
        let dns = |spec, kubelet: &KubeletConfiguration, ips: &[&str]| {
            let ips: Vec<String> = ips.iter().map(|ip| (*ip).to_owned()).collect();
            let dns = pod_dns(&pod(spec), kubelet, &ips).unwrap();
            let config = dns.config;
            (config.servers.join(" "), config.searches.join(" "))
        };
        let config = |servers: &str, searches: &str| (servers.to_owned(), searches.to_owned());
        let default = json!({ "dnsPolicy": "Default" });
        let none = kubelet(&[]);
        assert_eq!(dns(default.clone(), &none, &[]), config("127.0.0.1", "."));
        assert_eq!(dns(default, &none, &["fd00::5"]), config("::1", "."));
        let clustered = kubelet(&["10.0.0.10"]);
        let expected = config("10.0.0.10", "n.svc.c svc.c c");
        assert_eq!(dns(json!({}), &clustered, &["10.1.1.1"]), expected);
        let nothing = json!({ "dnsPolicy": "None", "dnsConfig": { "nameservers": ["10.9.9.9"] } });
        assert_eq!(dns(nothing, &clustered, &[]), config("10.9.9.9", ""));
    }

    #[test]
    fn unreadable_resolv_conf_is_an_error() {
        let kubelet = KubeletConfiguration {
            resolv_conf: "/does/not/exist".to_owned(),
            ..KubeletConfiguration::default()
        };
        let error = pod_dns(&pod(json!({ "dnsPolicy": "None" })), &kubelet, &[]).err();
        let message = "open /does/not/exist: no such file or directory";
        assert_eq!(error.as_deref(), Some(message));
        assert_eq!(check_limits(&kubelet).as_deref(), Some(message));
    }

    #[test]
    fn config_is_cut_to_the_limits_of_resolvers() {
        let mut dns = DnsConfig {
            servers: (0..5).map(|n| format!("10.0.0.{n}")).collect(),
            searches: vec!["a".repeat(254), "b".repeat(253), "c".to_owned()],
            options: Vec::new(),
        };
        apply_limits(&mut dns);
        assert_eq!(dns.servers, ["10.0.0.0", "10.0.0.1", "10.0.0.2"]);
        assert_eq!(dns.searches, ["b".repeat(253), "c".to_owned()]);
        dns.searches = (0..40).map(|n| format!("{n:0100}")).collect();
        apply_limits(&mut dns);
        assert_eq!(dns.searches.len(), 20);
        assert!(dns.searches.join(" ").len() <= 2048);
    }

    #[test]
    fn resolv_conf_that_exceeds_limits_is_reported() {
        let with = |searches: Vec<String>, clustered| {
            let dns = DnsConfig {
                searches,
                ..DnsConfig::default()
            };
            exceeded_limit("/r", &dns, clustered).unwrap_or_default()
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
    }
}
