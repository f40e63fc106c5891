//! The CSINode object, and the CSI drivers in the Node's metadata.

use std::collections::BTreeMap;

use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Map, Value, json};

/// Annotation of the Node: its id by driver, as a JSON object.
const NODE_IDS: &str = "csi.volume.kubernetes.io/nodeid";
/// Annotation of the CSINode: in-tree plugins that are migrated to CSI drivers, which the scheduler and
/// the controllers act on.
const MIGRATED: &str = "storage.alpha.kubernetes.io/migrated-plugins";
/// All in-tree plugins: this node serves none of them itself.
const MIGRATED_PLUGINS: &str = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,\
    kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,\
    kubernetes.io/vsphere-volume";

/// A CSI driver that is registered on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeDriver {
    pub(crate) name: String,
    /// The driver's id of this node.
    pub(crate) node_id: String,
    /// Topology segments of the node.
    pub(crate) topology: BTreeMap<String, String>,
    /// Limit of volumes on this node; zero if unknown.
    pub(crate) max_volumes: i64,
}

/// The CSINode to write for the Node with this name and uid; `None` when the current one is up to date.
/// Fields of others stay.
pub(crate) fn object(
    current: Option<&CSINode>,
    name: &str,
    uid: &str,
    drivers: &[NodeDriver],
) -> Option<CSINode> {
    let mut object = current.cloned().unwrap_or_else(|| CSINode {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: CSINodeSpec::default(),
    });
    // With the uid of a former Node the object would be garbage collected.
    object.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }]);
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert(MIGRATED.to_owned(), MIGRATED_PLUGINS.to_owned());
    object.spec.drivers = drivers.iter().map(csi_node_driver).collect();
    object.spec.drivers.sort_by(|a, b| a.name.cmp(&b.name));
    let mut before = current.cloned();
    if let Some(before) = &mut before {
        before.spec.drivers.sort_by(|a, b| a.name.cmp(&b.name));
    }
    (before.as_ref() != Some(&object)).then_some(object)
}

fn csi_node_driver(driver: &NodeDriver) -> CSINodeDriver {
    let count = i32::try_from(driver.max_volumes).unwrap_or(i32::MAX);
    CSINodeDriver {
        name: driver.name.clone(),
        node_id: driver.node_id.clone(),
        topology_keys: (!driver.topology.is_empty())
            .then(|| driver.topology.keys().cloned().collect()),
        allocatable: (count > 0).then_some(VolumeNodeResources { count: Some(count) }),
    }
}

/// The merge patch of the Node's metadata: node ids as an annotation, topology as labels. As upstream,
/// labels of a removed driver stay: pods may have been scheduled by them.
pub(crate) fn metadata(drivers: &[NodeDriver]) -> Value {
    let ids: Map<String, Value> = drivers
        .iter()
        .map(|driver| (driver.name.clone(), driver.node_id.clone().into()))
        .collect();
    let ids = if ids.is_empty() {
        Value::Null
    } else {
        Value::Object(ids).to_string().into()
    };
    let labels: Map<String, Value> = drivers
        .iter()
        .flat_map(|driver| &driver.topology)
        .map(|(key, segment)| (key.clone(), segment.clone().into()))
        .collect();
    json!({ "metadata": { "annotations": { NODE_IDS: ids }, "labels": labels } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(name: &str) -> NodeDriver {
        NodeDriver {
            name: name.to_owned(),
            node_id: "n-1".to_owned(),
            topology: [("topology.example/zone".to_owned(), "a".to_owned())].into(),
            max_volumes: 7,
        }
    }

    #[test]
    fn object_is_created_and_then_up_to_date() {
        let created = object(None, "n", "u", &[driver("b"), driver("a")]).expect("created");
        let names: Vec<_> = created
            .spec
            .drivers
            .iter()
            .map(|d| d.name.as_str())
            .collect();
        assert_eq!(names, ["a", "b"]);
        let first = &created.spec.drivers[0];
        assert_eq!(first.allocatable.as_ref().and_then(|a| a.count), Some(7));
        assert_eq!(
            first.topology_keys.as_deref(),
            Some(&["topology.example/zone".to_owned()][..])
        );
        let other_order = [driver("a"), driver("b")];
        assert_eq!(object(Some(&created), "n", "u", &other_order), None);
        let fewer = object(Some(&created), "n", "u", &[driver("b")]).expect("driver removed");
        assert_eq!(fewer.spec.drivers.len(), 1);
        let owner = object(Some(&created), "n", "another", &other_order).expect("other owner");
        let owners = owner.metadata.owner_references.unwrap_or_default();
        assert_eq!(owners[0].uid, "another");
        // A node without drivers has a CSINode too: it is not Ready without.
        assert!(object(None, "n", "u", &[]).is_some());
    }

    #[test]
    fn foreign_fields_stay_and_unknown_limit_is_absent() {
        let mut current = object(None, "n", "u", &[]).expect("created");
        current.metadata.resource_version = Some("5".to_owned());
        let note = ("note".to_owned(), "mine".to_owned());
        current
            .metadata
            .annotations
            .get_or_insert_default()
            .extend([note]);
        let unlimited = NodeDriver {
            max_volumes: 0,
            topology: BTreeMap::new(),
            ..driver("a")
        };
        let desired = object(Some(&current), "n", "u", &[unlimited]).expect("driver added");
        assert_eq!(desired.metadata.resource_version.as_deref(), Some("5"));
        let annotations = desired.metadata.annotations.unwrap_or_default();
        assert_eq!(annotations["note"], "mine");
        assert_eq!(desired.spec.drivers[0].allocatable, None);
        assert_eq!(desired.spec.drivers[0].topology_keys, None);
    }

    #[test]
    fn node_metadata_has_ids_and_topology() {
        let patch = metadata(&[driver("a")]);
        assert_eq!(patch["metadata"]["annotations"][NODE_IDS], r#"{"a":"n-1"}"#);
        assert_eq!(patch["metadata"]["labels"]["topology.example/zone"], "a");
        assert_eq!(
            metadata(&[])["metadata"]["annotations"][NODE_IDS],
            Value::Null
        );
    }
}
