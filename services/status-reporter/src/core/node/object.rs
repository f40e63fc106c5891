//! The Node object: its initial form, and corrections to an existing one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use polylet_model::node::DEFAULT_LABELS;
use serde_json::{Map, Value};

use super::patch;

/// Annotation of nodes whose volumes are attached by a controller. Polylet attaches none itself, whatever
/// `enableControllerAttachDetach` says: without the annotation, pods with such volumes would never start.
const ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// Annotation with the configured addresses, for the cloud controller.
const PROVIDED_IP: &str = "alpha.kubernetes.io/provided-node-ip";
/// Taint of nodes that the cloud controller has not initialized.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Labels that are reconciled with each status.
const RECONCILED_LABELS: [&str; 2] = ["kubernetes.io/os", "kubernetes.io/arch"];

/// The object as the configuration defines it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registration {
    pub(crate) name: String,
    /// The node's own labels and the configured ones.
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) provider_id: String,
    pub(crate) external_cloud: bool,
    /// The configured addresses.
    pub(crate) provided_ips: Vec<String>,
}

impl Registration {
    /// The object to create.
    pub(crate) fn object(&self, status: NodeStatus) -> Node {
        let mut taints = self.taints.clone();
        if self.external_cloud {
            taints.push(Taint {
                key: UNINITIALIZED.to_owned(),
                value: Some("true".to_owned()),
                effect: "NoSchedule".to_owned(),
                time_added: None,
            });
        }
        let attached_by_controller = (ATTACH_DETACH.to_owned(), "true".to_owned());
        let mut annotations = BTreeMap::from([attached_by_controller]);
        annotations.extend(self.provided_ip_annotation());
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(self.labels.clone()),
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: (!taints.is_empty()).then_some(taints),
                provider_id: (!self.provider_id.is_empty()).then(|| self.provider_id.clone()),
                ..NodeSpec::default()
            }),
            status: Some(status),
        }
    }

    fn provided_ip_annotation(&self) -> Option<(String, String)> {
        let has_ips = self.external_cloud && !self.provided_ips.is_empty();
        has_ips.then(|| (PROVIDED_IP.to_owned(), self.provided_ips.join(",")))
    }

    /// The OS and architecture labels that an object lacks or has wrong: pods are scheduled by them, so
    /// they are reconciled at all times, the others when Polylet starts.
    pub(crate) fn outdated_labels(&self, current: &Node) -> BTreeMap<String, String> {
        let present = current.metadata.labels.as_ref();
        let own = self.labels.iter();
        own.filter(|(key, _)| RECONCILED_LABELS.contains(&key.as_str()))
            .filter(|(key, desired)| present.and_then(|l| l.get(*key)) != Some(desired))
            .map(|(key, desired)| (key.clone(), desired.clone()))
            .collect()
    }

    /// The merge patch that corrects an existing object; `None` when it is correct. Taints, and labels
    /// that are not the node's own, are only set on creation.
    pub(crate) fn corrections(&self, current: &Node) -> Option<Value> {
        let present = current.metadata.labels.as_ref();
        let mut labels = Map::new();
        for key in DEFAULT_LABELS {
            let desired = self.labels.get(key);
            if let Some(desired) =
                desired.filter(|desired| present.and_then(|l| l.get(key)) != Some(desired))
            {
                labels.insert(key.to_owned(), desired.clone().into());
            }
        }
        let present = current.metadata.annotations.as_ref();
        let mut annotations = Map::new();
        let managed = present.is_some_and(|all| all.contains_key(ATTACH_DETACH));
        if !managed {
            annotations.insert(ATTACH_DETACH.to_owned(), "true".into());
        }
        let provided = present.and_then(|all| all.get(PROVIDED_IP));
        match self.provided_ip_annotation() {
            Some((key, ips)) if provided != Some(&ips) => {
                annotations.insert(key, ips.into());
            }
            // Addresses are not configured any more, or there is no cloud controller.
            None if provided.is_some() => {
                annotations.insert(PROVIDED_IP.to_owned(), Value::Null);
            }
            _ => {}
        }
        patch::metadata(labels, annotations)
    }
}
