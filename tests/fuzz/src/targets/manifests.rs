//! Manifests: from the bytes of a file to a pod in every service, and pods of the API server, which
//! nobody has validated here.

use jiff::Timestamp;
use polylet_model::env::Environment;
use polylet_model::{Manifest, PodAllocation};
use polylet_pod_config::core::StaticPodSource;
use polylet_pod_config::core::cluster::pod::{self, Classified, classify};
use polylet_pod_config::core::identity::ManifestOrigin;
use polylet_pod_config::core::mask::ManifestMask;
use polylet_pod_config::core::merge::Manifests;
use polylet_pod_config::core::parse::parse;
use polylet_pod_config::core::validate;
use polylet_sync_coordinator::core::node_resources::PodRequest;
use polylet_sync_coordinator::core::pod_spec::PodSpecView;
use polylet_sync_coordinator::core::volume_mount;
use polylet_sync_coordinator::runtime::{dns, hosts, resources, security};
use polylet_volume_manager::core::manifest as volumes;
use polylet_volume_manager::core::spec::Allocatable;
use polylet_wire::podconfig::v1 as podconfig;
use serde_json::Value;

use crate::input::select;

const NODE: &str = "node-1";

/// The time of all inputs.
pub(super) fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap_or_default()
}

/// A file or the response of a URL, with everything that follows from it.
pub(super) fn manifest(data: &[u8]) {
    let (source, bytes) = select(data, 2);
    let source = match source {
        0 => StaticPodSource::File,
        _ => StaticPodSource::Http,
    };
    let origin = ManifestOrigin {
        node: NODE,
        source,
        origin: "/etc/kubernetes/manifests/x.yaml",
        adoption: None,
    };
    let parsed = parse(bytes, &origin, &|_| None, now());
    for pod in &parsed.pods {
        // What has been validated and published must be readable by all services.
        assert!(Manifest::from_json(&pod.manifest).is_ok(), "not readable");
        assert!(
            parse(&pod.manifest, &origin, &|_| None, now()).pods.len() == 1,
            "a published manifest is not valid"
        );
        consume(&pod.manifest);
    }
    let mut manifests = Manifests::default();
    manifests.update(origin.origin, parsed.clone(), "1".to_owned(), now());
    manifests.update("/other.yaml", parsed, "2".to_owned(), now());
    manifests.merged();
}

/// A `v1.Pod` of the API server, as JSON.
pub(super) fn pod(data: &[u8]) {
    if let Ok(value) = serde_json::from_slice::<Value>(data) {
        let mut defaulted = value.clone();
        // Fails if it is not a pod.
        let _ = polylet_model::defaults::apply_to_json(&mut defaulted);
        consume(defaulted.to_string().as_bytes());
        if let Classified::Pod(pod) = classify(value, |_| None, now()) {
            pod::parse_first_seen(&pod.manifest);
            pod::parse_creation_timestamp(&pod.manifest);
            pod::parse_phase(&pod.status);
            consume(&pod.manifest);
        }
    }
    consume(data);
}

/// Hands the JSON of a pod to everything that reads pods.
pub(super) fn consume(json: &[u8]) {
    for paths in [&["spec.containers.image", "metadata.name"][..], &["spec"]] {
        if let Ok(Some(mask)) = ManifestMask::new(paths.iter().copied())
            && let Ok(pruned) = mask.prune(json)
        {
            assert!(pruned.len() <= json.len(), "a masked manifest is longer");
        }
    }
    // Not every input is a pod.
    let _ = volumes::parse(json, Allocatable::default());
    let Ok(manifest) = Manifest::from_json(json) else {
        return;
    };
    model(&manifest);
    coordinator(&manifest);
    validate::pod(&manifest.to_pod());
}

fn model(manifest: &Manifest) {
    use polylet_model::{
        apparmor, cgroup, hash, hook, host_port, node, node_affinity, pod_level, probe, qos,
        resources, sysctl,
    };
    let spec = manifest.spec();
    let class = qos::class(spec);
    for driver in [
        cgroup::CgroupDriver::Systemd,
        cgroup::CgroupDriver::Cgroupfs,
    ] {
        cgroup::CgroupName::pod("/", class, manifest.uid()).path(driver);
    }
    resources::pod_resources(spec, true, 100_000);
    resources::pod_status_resources(spec);
    node::requests(spec);
    host_port::host_ports(spec);
    node_affinity::matches(spec, NODE, &[("a".to_owned(), "1".to_owned())].into());
    sysctl::forbidden_reason(spec, &["net.*".to_owned()]);
    apparmor::invalid_reason(manifest);
    pod_level::has_pod_level(spec);
    manifest.termination_grace();
    manifest.deletion_grace();
    manifest.deletion_timestamp();
    for (kind, container) in manifest.all_containers() {
        probe::specs(kind, container);
        hook::Hook::post_start(container);
        hook::Hook::pre_stop(container);
        hash::container_hash_annotation(container);
        manifest.container_restart_policy(container);
        resources::oom_score_adj(spec, container, 16 << 30);
        environment(container);
    }
    PodAllocation::from_spec(spec).apply_to(manifest);
}

/// Variables, command and arguments as they are expanded for the runtime.
fn environment(container: &k8s_openapi::api::core::v1::Container) {
    let mut environment = Environment::new();
    for variable in container.env.iter().flatten() {
        let value = variable.value.as_deref().unwrap_or_default();
        if environment.set_expanded(&variable.name, value).is_err() {
            return;
        }
    }
    let words = [&container.command, &container.args];
    for word in words.into_iter().flatten().flatten() {
        if environment
            .expand_argument(word, || "an argument".to_owned())
            .is_err()
        {
            return;
        }
    }
}

fn coordinator(manifest: &Manifest) {
    let kubelet = polylet_kit::config::KubeletConfiguration {
        resolv_conf: String::new(),
        ..Default::default()
    };
    // There is always the loopback address.
    let _ = dns::pod_dns(manifest, &kubelet, &["10.0.0.1".to_owned()]);
    PodSpecView::from_manifest(manifest, &[]);
    PodRequest::from_manifest(manifest);
    // Invalid names are errors.
    let _ = hosts::sandbox_hostname(manifest, &kubelet);
    resources::pod_resources(manifest.spec(), &kubelet);
    resources::overhead_resources(manifest.spec(), &kubelet);
    security::sandbox_context(manifest.spec(), None, &[]);
    for container in manifest.containers() {
        for mount in container.volume_mounts.iter().flatten() {
            let _ = volume_mount::resolve_recursive_read_only(mount, true);
        }
    }
}

/// A pod on the wire with this manifest.
pub(super) fn wire_pod(uid: &str, source: podconfig::PodSource, json: &[u8]) -> podconfig::Pod {
    podconfig::Pod {
        r#ref: Some(polylet_wire::common::v1::PodRef {
            uid: uid.to_owned(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
        }),
        source: source.into(),
        digest: format!("{:x}", polylet_model::hash::fnv1a_128(json)),
        manifest: json.to_vec().into(),
        ..podconfig::Pod::default()
    }
}
