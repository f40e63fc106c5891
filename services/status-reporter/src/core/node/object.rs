//! The Node object: as it is made, and what of one that is there is put right.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use polylet_model::node::OWN_LABELS;
use serde_json::{Map, Value};

use super::patch;

/// On nodes whose volumes are attached by a controller.
const ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// The addresses that the node was given, for the cloud's controller.
const PROVIDED_IP: &str = "alpha.kubernetes.io/provided-node-ip";
/// Kept from pods until the cloud's controller has seen the node.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Written with each status.
const KEPT_LABELS: [&str; 2] = ["kubernetes.io/os", "kubernetes.io/arch"];

/// What the configuration says of the object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registration {
    pub(crate) name: String,
    /// The node's own labels and those that it was given.
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) provider_id: String,
    pub(crate) controller_attach_detach: bool,
    pub(crate) external_cloud: bool,
    /// Addresses that were given.
    pub(crate) provided_ips: Vec<String>,
}

impl Registration {
    /// The object as it is made.
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
        let mut annotations = BTreeMap::new();
        if self.controller_attach_detach {
            annotations.insert(ATTACH_DETACH.to_owned(), "true".to_owned());
        }
        annotations.extend(self.provided());
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(self.labels.clone()),
                annotations: (!annotations.is_empty()).then_some(annotations),
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

    fn provided(&self) -> Option<(String, String)> {
        let given = self.external_cloud && !self.provided_ips.is_empty();
        given.then(|| (PROVIDED_IP.to_owned(), self.provided_ips.join(",")))
    }

    /// The system's and the machine's labels that an object lacks or has wrong: as pods are placed by
    /// them, they are kept right at all times, the others when Polylet starts.
    pub(crate) fn labels_to_keep(&self, held: &Node) -> BTreeMap<String, String> {
        let present = held.metadata.labels.as_ref();
        let own = self.labels.iter();
        own.filter(|(key, _)| KEPT_LABELS.contains(&key.as_str()))
            .filter(|(key, wanted)| present.and_then(|l| l.get(*key)) != Some(wanted))
            .map(|(key, wanted)| (key.clone(), wanted.clone()))
            .collect()
    }

    /// What of an object that is there has to be put right; `None` when nothing has. Taints, and
    /// labels that are not the node's own, count only when the object is made.
    pub(crate) fn corrections(&self, held: &Node) -> Option<Value> {
        let present = held.metadata.labels.as_ref();
        let mut labels = Map::new();
        for key in OWN_LABELS {
            let wanted = self.labels.get(key);
            if let Some(wanted) =
                wanted.filter(|wanted| present.and_then(|l| l.get(key)) != Some(wanted))
            {
                labels.insert(key.to_owned(), wanted.clone().into());
            }
        }
        let present = held.metadata.annotations.as_ref();
        let mut annotations = Map::new();
        let managed = present.is_some_and(|all| all.contains_key(ATTACH_DETACH));
        if self.controller_attach_detach && !managed {
            annotations.insert(ATTACH_DETACH.to_owned(), "true".into());
        } else if !self.controller_attach_detach && managed {
            annotations.insert(ATTACH_DETACH.to_owned(), Value::Null);
        }
        if let Some((key, ips)) = self.provided()
            && present.and_then(|all| all.get(&key)) != Some(&ips)
        {
            annotations.insert(key, ips.into());
        }
        patch::metadata(labels, annotations)
    }
}
