//! A pod's resolver: the cluster's, the node's, or its own; and what resolvers cannot take.

use std::{fs, io};

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

/// A sandbox's resolver.
pub struct Resolver {
    /// What the runtime is told.
    pub config: DnsConfig,
    /// What is wrong with it, by reason and in upstream's words.
    pub complaints: Vec<(&'static str, String)>,
}

/// The sandbox's resolver, on a node of these addresses.
///
/// # Errors
/// When the node's own resolver file cannot be read, in upstream's words: even a pod that takes
/// nothing from it is not started then.
pub fn of(
    manifest: &Manifest,
    kubelet: &KubeletConfiguration,
    host_ips: &[String],
) -> Result<Resolver, String> {
    let node = match kubelet.resolv_conf.as_str() {
        "" => DnsConfig::default(),
        path => read(path)?,
    };
    let mut complaints = Vec::new();
    if is_clustered(manifest) && kubelet.cluster_dns.is_empty() {
        complaints.push((MISSING, missing(manifest)));
    }
    let whole = unlimited(manifest, kubelet, node, host_ips);
    let mut config = whole.clone();
    limit(&mut config);
    complaints.extend(left_out(&whole, &config));
    Ok(Resolver { config, complaints })
}

fn missing(manifest: &Manifest) -> String {
    format!(
        "pod: \"{}_{}({})\". kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy.",
        manifest.name(),
        manifest.namespace(),
        manifest.uid()
    )
}

fn left_out(whole: &DnsConfig, cut: &DnsConfig) -> Vec<(&'static str, String)> {
    let mut words = Vec::new();
    if cut.servers.len() < whole.servers.len() {
        words.push(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            cut.servers.join(" ")
        ));
    }
    if cut.searches.len() < whole.searches.len() {
        words.push(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            cut.searches.join(" ")
        ));
    }
    let reason = |words| ("DNSConfigForming", words);
    words.into_iter().map(reason).collect()
}

/// Whether the cluster's resolver is asked for.
fn is_clustered(manifest: &Manifest) -> bool {
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
        _ if is_clustered(manifest) && !kubelet.cluster_dns.is_empty() => {
            cluster(manifest, kubelet, node)
        }
        _ if kubelet.resolv_conf.is_empty() => loopback(host_ips),
        _ => node,
    };
    if let Some(own) = &spec.dns_config {
        append(&mut dns.servers, own.nameservers.iter().flatten());
        append(&mut dns.searches, own.searches.iter().flatten());
        for option in own.options.iter().flatten() {
            let Some(name) = option.name.as_deref() else {
                continue;
            };
            let value = option.value.as_deref().filter(|value| !value.is_empty());
            overrule(
                &mut dns.options,
                match value {
                    Some(value) => format!("{name}:{value}"),
                    None => name.to_owned(),
                },
            );
        }
    }
    dns
}

fn cluster(manifest: &Manifest, kubelet: &KubeletConfiguration, node: DnsConfig) -> DnsConfig {
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

/// A node that is told to have no resolver file: its pods ask themselves, which answers nothing.
fn loopback(host_ips: &[String]) -> DnsConfig {
    let of = |ip: &String| if ip.contains(':') { "::1" } else { "127.0.0.1" };
    let mut servers = Vec::new();
    append(
        &mut servers,
        host_ips
            .iter()
            .map(|ip| of(ip).to_owned())
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

fn append<'a>(into: &mut Vec<String>, more: impl Iterator<Item = &'a String>) {
    for item in more {
        if !into.contains(item) {
            into.push(item.clone());
        }
    }
}

/// The last of options with one name counts.
fn overrule(options: &mut Vec<String>, option: String) {
    let name = |option: &str| option.split(':').next().map(str::to_owned);
    options.retain(|known| name(known) != name(&option));
    options.push(option);
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

fn read(path: &str) -> Result<DnsConfig, String> {
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| format!("open {path}: {}", reason(&error)))?;
    parse(&text)
}

fn parse(text: &str) -> Result<DnsConfig, String> {
    let mut dns = DnsConfig::default();
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => {
                let server = words.next().ok_or("nameserver list is empty ")?;
                dns.servers.push(server.to_owned());
            }
            // The last one counts.
            Some("search") => {
                let domains = words.filter(|word| *word != ".");
                let domain = |word: &str| word.strip_suffix('.').unwrap_or(word).to_owned();
                dns.searches = domains.map(domain).collect();
            }
            Some("options") => {
                words.for_each(|option| overrule(&mut dns.options, option.to_owned()));
            }
            _ => {}
        }
    }
    Ok(dns)
}

/// What is wrong with the node's own resolver file, in upstream's words: pods that add the cluster's
/// domains to it may lose some.
pub fn limits(kubelet: &KubeletConfiguration) -> Option<String> {
    let path = &kubelet.resolv_conf;
    if path.is_empty() {
        return None;
    }
    match read(path) {
        Ok(dns) => excess(path, &dns, !kubelet.cluster_domain.is_empty()),
        Err(words) => Some(words),
    }
}

/// The first of the limits that a resolver file goes beyond.
fn excess(path: &str, dns: &DnsConfig, clustered: bool) -> Option<String> {
    let most = if clustered {
        MAX_SEARCHES - CLUSTER_SEARCHES
    } else {
        MAX_SEARCHES
    };
    let (searches, single) = (&dns.searches, format!("'{path}'"));
    let (file, what, limit) = if searches.len() > most {
        (
            single,
            "search line consisting of more than",
            format!("{most} domains"),
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

/// The system's words for an error, without its number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let words = text.split(" (os error").next().unwrap_or_default();
    words.to_lowercase()
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
    fn resolv_conf_is_read() {
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
    fn a_node_without_a_resolver_file_has_pods_that_ask_themselves_or_the_cluster() {
        let kubelet = |dns: &[&str]| KubeletConfiguration {
            resolv_conf: String::new(),
            cluster_domain: "c".to_owned(),
            cluster_dns: dns.iter().map(|ip| (*ip).to_owned()).collect(),
            ..KubeletConfiguration::default()
        };
        let of = |spec, kubelet: &KubeletConfiguration, ips: &[&str]| {
            let ips: Vec<String> = ips.iter().map(|ip| (*ip).to_owned()).collect();
            let of = of(&pod(spec), kubelet, &ips).unwrap();
            (of.config.servers.join(" "), of.config.searches.join(" "))
        };
        let words = |servers: &str, searches: &str| (servers.to_owned(), searches.to_owned());
        let default = json!({ "dnsPolicy": "Default" });
        let none = kubelet(&[]);
        assert_eq!(of(default.clone(), &none, &[]), words("127.0.0.1", "."));
        assert_eq!(of(default, &none, &["fd00::5"]), words("::1", "."));
        let clustered = kubelet(&["10.0.0.10"]);
        let expected = words("10.0.0.10", "n.svc.c svc.c c");
        assert_eq!(of(json!({}), &clustered, &["10.1.1.1"]), expected);
        let nothing = json!({ "dnsPolicy": "None", "dnsConfig": { "nameservers": ["10.9.9.9"] } });
        assert_eq!(of(nothing, &clustered, &[]), words("10.9.9.9", ""));
    }

    #[test]
    fn a_resolver_file_that_cannot_be_read_is_told() {
        let kubelet = KubeletConfiguration {
            resolv_conf: "/does/not/exist".to_owned(),
            ..KubeletConfiguration::default()
        };
        let told = of(&pod(json!({ "dnsPolicy": "None" })), &kubelet, &[]).err();
        let words = "open /does/not/exist: no such file or directory";
        assert_eq!(told.as_deref(), Some(words));
        assert_eq!(limits(&kubelet).as_deref(), Some(words));
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
    }
}
