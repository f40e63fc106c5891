//! Sandboxes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use k8s_openapi::api::core::v1::ContainerPort;
use polylet_cri::labels::PodLabels;
use polylet_cri::v1;
use polylet_model::constants::reason;
use polylet_model::{Manifest, sysctl};
use polylet_wire::notice::v1::Severity;
use polylet_wire::time::from_nanos;

use super::resolver::Resolver;
use super::{
    Hands, Job, files, hosts, manifest, notices, resolver, resources, runtime_class, runtime_said,
    said, security,
};
use crate::core::annotations;
use crate::core::learn::{Outcome, Trouble};
use crate::core::observed::SeenSandbox;

/// Makes a sandbox and asks for its addresses.
pub async fn create(hands: &Rc<Hands>, job: &Job, attempt: u32) -> Result<Outcome, Trouble> {
    let manifest = manifest(job)?;
    let (config, handler) = prepare(hands, job, manifest, attempt)
        .await
        .map_err(|trouble| {
            not_made(hands, job, &trouble.message);
            let reason = reason::CREATE_POD_SANDBOX_ERROR.to_owned();
            Trouble { reason, ..trouble }
        })?;
    // Whoever comes after a crash must not ask for this number again.
    hands.book.intend(&job.pod.uid, attempt);
    let made = hands.runtime.run_pod_sandbox(config, &handler).await;
    match made {
        Ok(id) => {
            let seen = look(hands, job, manifest, id, attempt).await?;
            hands.book.settle(&job.pod.uid);
            Ok(Outcome::Sandbox(seen))
        }
        Err(error) => {
            let trouble = runtime_said(reason::CREATE_POD_SANDBOX_ERROR, &error);
            if !trouble.reserved {
                not_made(hands, job, &notices::words(&error));
            }
            if !trouble.unknown {
                hands.book.settle(&job.pod.uid);
            }
            Err(trouble)
        }
    }
}

/// Everything that a sandbox needs before the runtime is asked for it.
async fn prepare(
    hands: &Rc<Hands>,
    job: &Job,
    manifest: &Manifest,
    attempt: u32,
) -> Result<(v1::PodSandboxConfig, String), Trouble> {
    let wrong = |error: std::io::Error| {
        said(
            reason::CONFIG_POD_SANDBOX_ERROR,
            format!("the pod's folders: {error}"),
        )
    };
    files::make_dir(&files::log_dir(hands, &job.pod), 0o755).map_err(wrong)?;
    files::make_pod_dir(hands, &job.pod.uid).map_err(wrong)?;
    let resolver = resolver(hands, job, manifest)?;
    complain(hands, job, resolver.complaints);
    let config = config_with(hands, job, manifest, attempt, resolver.config).await?;
    let handler = runtime_class::handler(hands, manifest).await?;
    Ok((config, handler))
}

fn not_made(hands: &Hands, job: &Job, why: &str) {
    // An event of the pod does not name it once more.
    let own = why.split_once(&format!("({})\": ", job.pod.uid));
    let why = own.map_or(why, |(_, why)| why);
    let words = format!("Failed to create pod sandbox: {why}");
    let notices = hands.ctx.notices();
    notices.warning(&job.pod, "", "FailedCreatePodSandBox", words);
}

fn complain(hands: &Hands, job: &Job, complaints: Vec<(&'static str, String)>) {
    let notices = hands.ctx.notices();
    for (reason, words) in complaints {
        // The lack is the node's: it is told of that, too.
        if let Some((_, of_node)) = words
            .split_once("\". ")
            .filter(|_| reason == resolver::MISSING)
        {
            notices.of_node(Severity::Warning, reason, of_node);
        }
        notices.warning(&job.pod, "", reason, words);
    }
}

fn resolver(hands: &Hands, job: &Job, manifest: &Manifest) -> Result<Resolver, Trouble> {
    let kubelet = &hands.ctx.config().kubelet;
    let of = resolver::of(manifest, kubelet, &job.host_ips);
    of.map_err(|words| said(reason::CONFIG_POD_SANDBOX_ERROR, words))
}

/// The new sandbox with its addresses. Should the question fail, nothing is said
/// of it: the runtime's next word shows it whole, and it is kept.
async fn look(
    hands: &Rc<Hands>,
    job: &Job,
    manifest: &Manifest,
    id: String,
    attempt: u32,
) -> Result<SeenSandbox, Trouble> {
    let answer = hands.runtime.pod_sandbox_status(&id).await;
    let status = answer
        .map_err(|error| {
            let words = format!(
                "Unable to get pod sandbox status: {}",
                notices::words(&error)
            );
            let notices = hands.ctx.notices();
            notices.warning(&job.pod, "", "FailedPodSandBoxStatus", words.clone());
            Trouble {
                unknown: true,
                ..said(reason::CREATE_POD_SANDBOX_ERROR, words)
            }
        })?
        .status
        .unwrap_or_default();
    let network = status.network.unwrap_or_default();
    let more = network.additional_ips.into_iter().map(|ip| ip.ip);
    let ips = std::iter::once(network.ip)
        .chain(more)
        .filter(|ip| !ip.is_empty());
    Ok(SeenSandbox {
        ips: if manifest.host_network() {
            Vec::new()
        } else {
            ips.collect()
        },
        host_network: manifest.host_network(),
        created_at: from_nanos(status.created_at),
        ready: true,
        attempt,
        id,
    })
}

/// A sandbox's configuration.
pub async fn config(
    hands: &Rc<Hands>,
    job: &Job,
    manifest: &Manifest,
    attempt: u32,
) -> Result<v1::PodSandboxConfig, Trouble> {
    let dns = resolver(hands, job, manifest)?.config;
    config_with(hands, job, manifest, attempt, dns).await
}

async fn config_with(
    hands: &Rc<Hands>,
    job: &Job,
    manifest: &Manifest,
    attempt: u32,
    dns: v1::DnsConfig,
) -> Result<v1::PodSandboxConfig, Trouble> {
    let (spec, metadata) = (manifest.spec(), manifest.metadata());
    let kubelet = &hands.ctx.config().kubelet;
    let pod = &job.pod;
    let mut labels: HashMap<String, String> = metadata
        .labels
        .clone()
        .unwrap_or_default()
        .into_iter()
        .collect();
    PodLabels {
        uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
    }
    .write(&mut labels);
    let hostname = hosts::sandbox_hostname(manifest, kubelet)
        .map_err(|message| said(reason::CONFIG_POD_SANDBOX_ERROR, message))?;
    let userns = userns_of(hands, job, manifest).await?;
    let none = BTreeMap::new();
    let (annotations, left_out) =
        annotations::given(metadata.annotations.as_ref().unwrap_or(&none));
    if !left_out.is_empty() {
        let (uid, name, names) = (&pod.uid, &pod.name, left_out.join(", "));
        tracing::warn!(
            k8s.pod.uid = uid,
            k8s.pod.name = name,
            annotations = names,
            "too large for the runtime, which is not told of them"
        );
    }
    let sysctls = spec
        .security_context
        .iter()
        .flat_map(|s| s.sysctls.iter().flatten());
    Ok(v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            attempt,
        }),
        hostname,
        log_directory: files::log_dir(hands, pod).to_string_lossy().into_owned(),
        dns_config: Some(dns),
        port_mappings: spec
            .containers
            .iter()
            .flat_map(|c| ports(c.ports.as_deref().unwrap_or_default()))
            .collect(),
        labels,
        annotations: annotations.into_iter().collect(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: hands.cgroups.parent_for_runtime(hands, manifest).await,
            security_context: Some(security::of_sandbox(spec, userns, &job.volume_groups())),
            sysctls: sysctls
                .map(|s| (sysctl::normalize(&s.name), s.value.clone()))
                .collect(),
            overhead: Some(resources::of_overhead(spec, kubelet)),
            resources: Some(resources::of_pod(spec, kubelet)),
        }),
    })
}

/// The pod's user namespace.
pub async fn userns_of(
    hands: &Hands,
    job: &Job,
    manifest: &Manifest,
) -> Result<Option<v1::UserNamespace>, Trouble> {
    let handler = runtime_class::handler(hands, manifest).await?;
    let of = hands.userns.of(manifest, &handler, &job.handlers);
    of.map_err(|message| said(reason::CONFIG_POD_SANDBOX_ERROR, message))
}

/// One of each name; those without are told apart by all that they say.
fn ports(of: &[ContainerPort]) -> Vec<v1::PortMapping> {
    let mut names = BTreeSet::new();
    let mut is_new = |port: &&ContainerPort| {
        let host = port.host_ip.clone().unwrap_or_default();
        let name = port.name.clone().filter(|name| !name.is_empty());
        let unnamed = || {
            let (from, to) = (port.container_port, port.host_port);
            format!("{:?} {host}:{from}:{to:?}", port.protocol)
        };
        names.insert(name.unwrap_or_else(unnamed))
    };
    of.iter().filter(|port| is_new(port)).map(port).collect()
}

fn port(of: &ContainerPort) -> v1::PortMapping {
    v1::PortMapping {
        protocol: match of.protocol.as_deref() {
            Some("UDP") => v1::Protocol::Udp,
            Some("SCTP") => v1::Protocol::Sctp,
            _ => v1::Protocol::Tcp,
        }
        .into(),
        container_port: of.container_port,
        host_port: of.host_port.unwrap_or(0),
        host_ip: of.host_ip.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_declared_twice_is_mapped_once() {
        let port = |name: Option<&str>, container_port, host_ip: Option<&str>| ContainerPort {
            name: name.map(str::to_owned),
            container_port,
            host_ip: host_ip.map(str::to_owned),
            ..ContainerPort::default()
        };
        let mapped = ports(&[
            port(Some("a"), 1, None),
            port(Some("a"), 2, None),
            port(None, 3, None),
            port(None, 3, None),
            port(None, 3, Some("::1")),
        ]);
        let mapped: Vec<_> = mapped.iter().map(|p| p.container_port).collect();
        assert_eq!(mapped, [1, 3, 3]);
    }
}
