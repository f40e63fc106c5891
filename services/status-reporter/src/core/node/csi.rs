//! The CSI drivers of this node, as its CSINode and its Node tell them.

use std::collections::BTreeMap;

use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Map, Value, json};

/// On the Node: each driver's word for it, as a JSON object.
const NODE_IDS: &str = "csi.volume.kubernetes.io/nodeid";
/// On the CSINode: volume plugins of Kubernetes' own whose volumes drivers have taken over. The
/// scheduler and the controllers go by it.
const MIGRATED: &str = "storage.alpha.kubernetes.io/migrated-plugins";
/// All of them: none is left that this node would serve itself.
const MIGRATED_PLUGINS: &str = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,\
    kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,\
    kubernetes.io/vsphere-volume";

/// A driver that has registered with this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Driver {
    pub(crate) name: String,
    /// The driver's word for this node.
    pub(crate) node_id: String,
    /// Where the node is, as the driver sees it.
    pub(crate) topology: BTreeMap<String, String>,
    /// How many volumes it can have here; zero is unknown.
    pub(crate) max_volumes: i64,
}

/// The CSINode that is to be, of the Node with this name and uid; `None` when the one that is held
/// says it all. What else is in the held one stays.
pub(crate) fn object(
    held: Option<&CSINode>,
    name: &str,
    uid: &str,
    drivers: &[Driver],
) -> Option<CSINode> {
    let mut object = held.cloned().unwrap_or_else(|| CSINode {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: CSINodeSpec::default(),
    });
    // Of a Node that has been made anew, the old one's object would be collected with it.
    object.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }]);
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert(MIGRATED.to_owned(), MIGRATED_PLUGINS.to_owned());
    object.spec.drivers = drivers.iter().map(one).collect();
    object.spec.drivers.sort_by(|a, b| a.name.cmp(&b.name));
    let mut before = held.cloned();
    if let Some(before) = &mut before {
        before.spec.drivers.sort_by(|a, b| a.name.cmp(&b.name));
    }
    (before.as_ref() != Some(&object)).then_some(object)
}

fn one(driver: &Driver) -> CSINodeDriver {
    let count = i32::try_from(driver.max_volumes).unwrap_or(i32::MAX);
    CSINodeDriver {
        name: driver.name.clone(),
        node_id: driver.node_id.clone(),
        topology_keys: (!driver.topology.is_empty())
            .then(|| driver.topology.keys().cloned().collect()),
        allocatable: (count > 0).then_some(VolumeNodeResources { count: Some(count) }),
    }
}

/// The merge patch that tells the Node of the drivers: their words for it, and as labels where it
/// is. Labels of a driver that is gone stay, as upstream's do: pods may have been placed by them.
pub(crate) fn metadata(drivers: &[Driver]) -> Value {
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
        .map(|(key, place)| (key.clone(), place.clone().into()))
        .collect();
    json!({ "metadata": { "annotations": { NODE_IDS: ids }, "labels": labels } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(name: &str) -> Driver {
        Driver {
            name: name.to_owned(),
            node_id: "n-1".to_owned(),
            topology: [("topology.example/zone".to_owned(), "a".to_owned())].into(),
            max_volumes: 7,
        }
    }

    #[test]
    fn an_object_is_made_and_then_says_it_all() {
        let made = object(None, "n", "u", &[driver("b"), driver("a")]).expect("one is made");
        let names: Vec<_> = made.spec.drivers.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let first = &made.spec.drivers[0];
        assert_eq!(first.allocatable.as_ref().and_then(|a| a.count), Some(7));
        assert_eq!(
            first.topology_keys.as_deref(),
            Some(&["topology.example/zone".to_owned()][..])
        );
        let other_order = [driver("a"), driver("b")];
        assert_eq!(object(Some(&made), "n", "u", &other_order), None);
        let fewer = object(Some(&made), "n", "u", &[driver("b")]).expect("one is gone");
        assert_eq!(fewer.spec.drivers.len(), 1);
        let owner = object(Some(&made), "n", "another", &other_order).expect("another Node");
        let owners = owner.metadata.owner_references.unwrap_or_default();
        assert_eq!(owners[0].uid, "another");
        // A node without drivers has its object too: without one, nothing that needs it starts.
        assert!(object(None, "n", "u", &[]).is_some());
    }

    #[test]
    fn what_others_put_into_the_object_stays_and_no_limit_is_no_zero() {
        let mut held = object(None, "n", "u", &[]).expect("one is made");
        held.metadata.resource_version = Some("5".to_owned());
        let note = ("note".to_owned(), "mine".to_owned());
        held.metadata
            .annotations
            .get_or_insert_default()
            .extend([note]);
        let unlimited = Driver {
            max_volumes: 0,
            topology: BTreeMap::new(),
            ..driver("a")
        };
        let wanted = object(Some(&held), "n", "u", &[unlimited]).expect("a driver has come");
        assert_eq!(wanted.metadata.resource_version.as_deref(), Some("5"));
        let annotations = wanted.metadata.annotations.unwrap_or_default();
        assert_eq!(annotations["note"], "mine");
        assert_eq!(wanted.spec.drivers[0].allocatable, None);
        assert_eq!(wanted.spec.drivers[0].topology_keys, None);
    }

    #[test]
    fn the_node_is_told_where_it_is() {
        let told = metadata(&[driver("a")]);
        assert_eq!(told["metadata"]["annotations"][NODE_IDS], r#"{"a":"n-1"}"#);
        assert_eq!(told["metadata"]["labels"]["topology.example/zone"], "a");
        assert_eq!(
            metadata(&[])["metadata"]["annotations"][NODE_IDS],
            Value::Null
        );
    }
}
