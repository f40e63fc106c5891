//! Creation of sandboxes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::time::Instant;

use k8s_openapi::api::core::v1::ContainerPort;
use polylet_cri::labels::PodLabels;
use polylet_cri::v1;
use polylet_model::constants::reason;
use polylet_model::{Manifest, sysctl};
use polylet_wire::notice::v1::Severity;
use polylet_wire::time::from_nanos;

use super::dns::PodDns;
use super::{
    RuntimeManager, StepContext, cri_failure, dns, events, failure, failure_from, files, hosts,
    metrics, pod_refresh, require_manifest, resources, runtime_class, security,
};
use crate::convert;
use crate::core::runtime_state::SandboxRecord;
use crate::core::sandbox_annotations;
use crate::core::step::{StepFailure, StepOutcome};

/// Creates a sandbox and requests its addresses.
pub async fn create(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    attempt: u32,
) -> Result<StepOutcome, StepFailure> {
    let manifest = require_manifest(context)?;
    let (config, handler) =
        prepare(manager, context, manifest, attempt)
            .await
            .map_err(|failure| {
                record_create_failure(manager, context, &failure.message);
                let reason = reason::CREATE_POD_SANDBOX_ERROR.to_owned();
                StepFailure { reason, ..failure }
            })?;
    begin(manager, context, attempt)
        .await
        .inspect_err(|failure| record_create_failure(manager, context, &failure.message))?;
    let started = Instant::now();
    let created = manager.runtime.run_pod_sandbox(config, &handler).await;
    metrics::count_sandbox(&handler, started.elapsed(), created.is_err());
    match created {
        Ok(id) => {
            let sandbox = inspect(manager, context, manifest, id, attempt).await?;
            manager.checkpoints.finish_sandbox(&context.pod.uid);
            Ok(StepOutcome::SandboxCreated(sandbox))
        }
        Err(error) => {
            let failure = cri_failure(reason::CREATE_POD_SANDBOX_ERROR, &error);
            if !failure.name_reserved {
                record_create_failure(manager, context, &events::error_text(&error));
            }
            if !failure.outcome_unknown {
                manager.checkpoints.finish_sandbox(&context.pod.uid);
            }
            Err(failure)
        }
    }
}

/// Saves the attempt number: after a crash it must not be used again.
async fn begin(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    attempt: u32,
) -> Result<(), StepFailure> {
    let (checkpoints, uid) = (manager.checkpoints.clone(), context.pod.uid.clone());
    let save = move || checkpoints.begin_sandbox(&uid, attempt);
    let saved = tokio::task::spawn_blocking(save).await;
    let saved = saved.map_err(|error| failure_from(reason::CREATE_POD_SANDBOX_ERROR, &error))?;
    saved.map_err(|error| failure_from(reason::CREATE_POD_SANDBOX_ERROR, &error))
}

/// Prepares everything that a sandbox needs before its creation.
async fn prepare(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    manifest: &Manifest,
    attempt: u32,
) -> Result<(v1::PodSandboxConfig, String), StepFailure> {
    let failed = |error: std::io::Error| {
        failure(
            reason::CONFIG_POD_SANDBOX_ERROR,
            format!("failed to create the pod's directories: {error}"),
        )
    };
    files::create_dir(&files::log_dir(manager, &context.pod), 0o755).map_err(failed)?;
    let root = &manager.ctx.config().polylet.root_directory;
    files::create_pod_dir(root, &context.pod.uid).map_err(failed)?;
    let dns = pod_dns(manager, context, manifest)?;
    record_dns_events(manager, context, dns.warnings);
    let config = config_with(manager, context, manifest, attempt, dns.config).await?;
    let handler = runtime_class::handler(manager, manifest).await?;
    Ok((config, handler))
}

fn record_create_failure(manager: &RuntimeManager, context: &StepContext, error: &str) {
    // The event belongs to the pod, so its message does not repeat the pod's name.
    let prefixed = error.split_once(&format!("({})\": ", context.pod.uid));
    let error = prefixed.map_or(error, |(_, error)| error);
    let message = format!("Failed to create pod sandbox: {error}");
    let notices = manager.ctx.notices();
    notices.warning(&context.pod, "", "FailedCreatePodSandBox", message);
}

fn record_dns_events(
    manager: &RuntimeManager,
    context: &StepContext,
    warnings: Vec<(&'static str, String)>,
) {
    let notices = manager.ctx.notices();
    for (reason, message) in warnings {
        // A missing cluster DNS is also recorded for the node.
        if let Some((_, node_message)) = message
            .split_once("\". ")
            .filter(|_| reason == dns::MISSING_CLUSTER_DNS)
        {
            notices.node(Severity::Warning, reason, node_message);
        }
        notices.warning(&context.pod, "", reason, message);
    }
}

fn pod_dns(
    manager: &RuntimeManager,
    context: &StepContext,
    manifest: &Manifest,
) -> Result<PodDns, StepFailure> {
    let kubelet = &manager.ctx.config().kubelet;
    let dns = dns::pod_dns(manifest, kubelet, &context.host_ips);
    dns.map_err(|message| failure(reason::CONFIG_POD_SANDBOX_ERROR, message))
}

/// The new sandbox with its addresses, from pleg, which has it from the runtime's event where there are
/// events, and publishes it.
async fn inspect(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    manifest: &Manifest,
    id: String,
    attempt: u32,
) -> Result<SandboxRecord, StepFailure> {
    let created = convert::created_sandbox(&id);
    let state = pod_refresh::refresh(manager, &context.pod, created).await;
    let state = state.ok().flatten().filter(|s| s.inspect_error.is_empty());
    let sandboxes = state.iter().flat_map(|state| &state.sandboxes);
    let sandbox = sandboxes.into_iter().find(|sandbox| sandbox.id == id);
    match sandbox.map(convert::sandbox) {
        Some(sandbox) if sandbox.ready => Ok(SandboxRecord { attempt, ..sandbox }),
        _ => request_status(manager, context, manifest, id, attempt).await,
    }
}

/// The new sandbox with its addresses, from the runtime itself. If the call fails, the sandbox is kept: the runtime's next
/// state shows it.
async fn request_status(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    manifest: &Manifest,
    id: String,
    attempt: u32,
) -> Result<SandboxRecord, StepFailure> {
    let response = manager.runtime.pod_sandbox_status(&id).await;
    let status = response
        .map_err(|error| {
            let message = format!(
                "Unable to get pod sandbox status: {}",
                events::error_text(&error)
            );
            let notices = manager.ctx.notices();
            notices.warning(&context.pod, "", "FailedPodSandBoxStatus", message.clone());
            StepFailure {
                outcome_unknown: true,
                ..failure(reason::CREATE_POD_SANDBOX_ERROR, message)
            }
        })?
        .status
        .unwrap_or_default();
    let network = status.network.unwrap_or_default();
    let more = network.additional_ips.into_iter().map(|ip| ip.ip);
    let ips = std::iter::once(network.ip)
        .chain(more)
        .filter(|ip| !ip.is_empty());
    Ok(SandboxRecord {
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
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    manifest: &Manifest,
    attempt: u32,
) -> Result<v1::PodSandboxConfig, StepFailure> {
    let dns = pod_dns(manager, context, manifest)?.config;
    config_with(manager, context, manifest, attempt, dns).await
}

async fn config_with(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    manifest: &Manifest,
    attempt: u32,
    dns: v1::DnsConfig,
) -> Result<v1::PodSandboxConfig, StepFailure> {
    let (spec, metadata) = (manifest.spec(), manifest.metadata());
    let kubelet = &manager.ctx.config().kubelet;
    let pod = &context.pod;
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
        .map_err(|message| failure(reason::CONFIG_POD_SANDBOX_ERROR, message))?;
    let userns = user_namespace(manager, context, manifest).await?;
    let none = BTreeMap::new();
    let (annotations, omitted) =
        sandbox_annotations::truncate(metadata.annotations.as_ref().unwrap_or(&none));
    if !omitted.is_empty() {
        tracing::warn!(
            pod = context.pod_name(),
            pod_uid = pod.uid,
            annotations = omitted.join(", "),
            "annotations too large; not passed to the runtime"
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
        log_directory: files::log_dir(manager, pod).to_string_lossy().into_owned(),
        dns_config: Some(dns),
        port_mappings: spec
            .containers
            .iter()
            .flat_map(|c| port_mappings(c.ports.as_deref().unwrap_or_default()))
            .collect(),
        labels,
        annotations: annotations.into_iter().collect(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: manager.cgroups.parent_for_runtime(manager, manifest).await,
            security_context: Some(security::sandbox_context(
                spec,
                userns,
                &context.volume_groups(),
            )),
            sysctls: sysctls
                .map(|s| (sysctl::normalize(&s.name), s.value.clone()))
                .collect(),
            overhead: Some(resources::overhead_resources(spec, kubelet)),
            resources: Some(resources::pod_resources(spec, kubelet)),
        }),
    })
}

/// The pod's user namespace.
pub async fn user_namespace(
    manager: &RuntimeManager,
    context: &StepContext,
    manifest: &Manifest,
) -> Result<Option<v1::UserNamespace>, StepFailure> {
    let handler = runtime_class::handler(manager, manifest).await?;
    let userns = &manager.userns;
    let namespace = userns.user_namespace(manifest, &handler, &context.runtime_handlers);
    namespace.map_err(|message| failure(reason::CONFIG_POD_SANDBOX_ERROR, message))
}

/// One mapping per port name; unnamed ports are distinguished by all their fields.
fn port_mappings(ports: &[ContainerPort]) -> Vec<v1::PortMapping> {
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
    ports
        .iter()
        .filter(|port| is_new(port))
        .map(port_mapping)
        .collect()
}

fn port_mapping(port: &ContainerPort) -> v1::PortMapping {
    v1::PortMapping {
        protocol: match port.protocol.as_deref() {
            Some("UDP") => v1::Protocol::Udp,
            Some("SCTP") => v1::Protocol::Sctp,
            _ => v1::Protocol::Tcp,
        }
        .into(),
        container_port: port.container_port,
        host_port: port.host_port.unwrap_or(0),
        host_ip: port.host_ip.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_port_is_mapped_once() {
        let port = |name: Option<&str>, container_port, host_ip: Option<&str>| ContainerPort {
            name: name.map(str::to_owned),
            container_port,
            host_ip: host_ip.map(str::to_owned),
            ..ContainerPort::default()
        };
        let mapped = port_mappings(&[
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
