//! Objects of the API server: lists, watches, errors, and each kind that pods refer to.

use std::cell::LazyCell;

use polylet_pod_config::cluster::fuzzing;
use polylet_pod_config::core::cluster::{certificate, kinds, node, poll, service};
use polylet_pod_config::core::decode::LocalKind;
use polylet_pod_config::core::object;
use polylet_sync_coordinator::fuzzing as coordinator;
use polylet_volume_manager::core::node_info::NodeInfo;
use polylet_volume_manager::core::reference_key::ObjectKind;
use polylet_volume_manager::core::references::ObjectState;
use serde_json::Value;

use super::manifests::now;
use crate::input::{halves, select};
use crate::scratch::FuzzScratch;

thread_local! {
    static SCRATCH: LazyCell<FuzzScratch> = LazyCell::new(FuzzScratch::new);
}

const KINDS: [ObjectKind; 8] = [
    ObjectKind::ConfigMap,
    ObjectKind::Secret,
    ObjectKind::Claim,
    ObjectKind::PersistentVolume,
    ObjectKind::Attachment,
    ObjectKind::CsiDriver,
    ObjectKind::TrustBundle,
    ObjectKind::TrustBundles,
];

/// One answer of the API server.
pub(super) fn api_object(data: &[u8]) {
    let (kind, data) = select(data, 16);
    match kind {
        0..=7 => {
            if let Some(kind) = KINDS.get(usize::from(kind)) {
                ObjectState::from_json(*kind, data);
                published(kind.as_str(), data);
            }
        }
        8 => fuzzing::list(data.to_vec()),
        9 => SCRATCH.with(|scratch| {
            let lines = data.split(|byte| *byte == b'\n');
            fuzzing::pod_watch(scratch.path(), lines);
        }),
        10 => fuzzing::error_response(409, data),
        11 => drop(NodeInfo::from_json(data)),
        12 => local(data),
        13 => {
            let (old, new) = halves(data);
            polylet_status_reporter::fuzzing::certificate(old);
            polylet_status_reporter::fuzzing::certificate(new);
        }
        14 => coordinator::pull_secret(data),
        _ => generic(data),
    }
}

/// An object as pod-config publishes it.
fn published(kind: &str, data: &[u8]) {
    let (Ok(value), Some(kind)) = (
        serde_json::from_slice(data),
        kinds::ApiKind::from_name(kind),
    ) else {
        return;
    };
    poll::is_pending(kind.name, Some(&value));
    kind.is_immutable(&value);
    kind.to_json(value);
}

/// A Secret, ConfigMap or RuntimeClass of the manifest directory.
fn local(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    for kind in [
        LocalKind::Secret,
        LocalKind::ConfigMap,
        LocalKind::RuntimeClass,
    ] {
        // Most objects are invalid.
        let _ = object::parse(kind, value.clone());
    }
}

fn generic(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    service::summarize(&value);
    if let Some(certificate::CertificateOutcome::Issued(issued)) =
        certificate::outcome(value.clone())
    {
        let mut age = certificate::CertificateAge::new(&issued, 0.5);
        age.due_events(now());
        age.next_event_at();
    }
    node::to_json(value);
}
