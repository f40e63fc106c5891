//! Upstream's cases, and a table of all plugins.

use k8s_openapi::api::core::v1 as api;
use serde_json::{Value, json};

use super::{translate, translate_inline};

fn persistent(spec: Value, metadata: Value) -> Result<Value, String> {
    let mut object: api::PersistentVolume =
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
    translate(&mut object)?;
    Ok(serde_json::to_value(object.spec.unwrap()).unwrap())
}

fn source(spec: Value) -> Result<Value, String> {
    Ok(persistent(spec, json!({"name": "pv"}))?["csi"].take())
}

fn inline(volume: Value) -> Result<Value, String> {
    let volume: api::Volume = serde_json::from_value(volume).unwrap();
    let translated = translate_inline(&volume, "ns").expect("an in-tree volume");
    translated.map(|object| serde_json::to_value(object).unwrap())
}

#[test]
fn persistent_volumes_of_all_plugins_are_translated() {
    let secret = json!({"name": "azure-storage-account-acc-secret", "namespace": "secrets"});
    for (spec, expected) in [
        (
            json!({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1", "fsType": "xfs", "partition": 1, "readOnly": true}}),
            json!({"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1", "fsType": "xfs", "readOnly": true,
                "volumeAttributes": {"partition": "1"}}),
        ),
        (
            json!({"awsElasticBlockStore": {"volumeID": "vol-2"}}),
            json!({"driver": "ebs.csi.aws.com", "volumeHandle": "vol-2", "volumeAttributes": {"partition": "0"}}),
        ),
        (
            json!({"gcePersistentDisk": {"pdName": "d", "fsType": "ext4"}}),
            json!({"driver": "pd.csi.storage.gke.io", "volumeHandle": "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
                "fsType": "ext4", "volumeAttributes": {"partition": ""}}),
        ),
        (
            json!({"azureDisk": {"diskName": "d", "diskURI": "/subscriptions/s/disks/d", "kind": "managed",
                "cachingMode": "None", "fsType": "ext4", "readOnly": false}}),
            json!({"driver": "disk.csi.azure.com", "volumeHandle": "/subscriptions/s/disks/d", "fsType": "ext4", "readOnly": false,
                "volumeAttributes": {"kind": "Managed", "cachingmode": "None", "fstype": "ext4"}}),
        ),
        (
            json!({"azureFile": {"secretName": "azure-storage-account-acc-secret", "secretNamespace": "secrets", "shareName": "s"}}),
            json!({"driver": "file.csi.azure.com", "volumeHandle": "#acc#s#pv#secrets", "nodeStageSecretRef": secret,
                "volumeAttributes": {"sharename": "s"}}),
        ),
        (
            json!({"cinder": {"volumeID": "c", "fsType": "ext4", "readOnly": true}}),
            json!({"driver": "cinder.csi.openstack.org", "volumeHandle": "c", "fsType": "ext4", "readOnly": true,
                "volumeAttributes": {}}),
        ),
        (
            json!({"vsphereVolume": {"volumePath": "[ds] k/v.vmdk", "fsType": "ext4", "storagePolicyName": "gold"}}),
            json!({"driver": "csi.vsphere.vmware.com", "volumeHandle": "[ds] k/v.vmdk", "fsType": "ext4",
                "volumeAttributes": {"storagepolicyname": "gold"}}),
        ),
        (
            json!({"portworxVolume": {"volumeID": "p", "fsType": "ext4"}}),
            json!({"driver": "pxd.portworx.com", "volumeHandle": "p", "fsType": "ext4", "volumeAttributes": {}}),
        ),
    ] {
        let kind = spec.as_object().unwrap().keys().next().unwrap().clone();
        let translated = persistent(spec, json!({"name": "pv"})).unwrap();
        assert_eq!(translated["csi"], expected, "{kind}");
        assert!(translated.get(&kind).is_none(), "{kind} stays");
    }
}

#[test]
fn other_persistent_volumes_stay_as_they_are() {
    for spec in [
        json!({"csi": {"driver": "d", "volumeHandle": "h"}}),
        json!({"nfs": {"server": "s", "path": "/"}}),
        json!({"hostPath": {"path": "/x"}, "accessModes": ["ReadWriteMany"]}),
    ] {
        assert_eq!(persistent(spec.clone(), json!({})), Ok(spec));
    }
}

#[test]
fn volumes_that_cannot_be_translated_are_refused_with_upstreams_words() {
    for (spec, error) in [
        (
            json!({"awsElasticBlockStore": {"volumeID": "aws://zone/x/vol-1"}}),
            "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://zone/x/vol-1)",
        ),
        (
            json!({"awsElasticBlockStore": {"volumeID": "aws://vol-1"}}),
            "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://vol-1)",
        ),
        (
            json!({"azureDisk": {"diskName": "d", "diskURI": "u", "kind": "Dedicated"}}),
            "kind(Dedicated) is not supported in csi migration",
        ),
        (
            json!({"azureFile": {"secretName": "s", "shareName": "s"}}),
            "could not find a secret namespace in PersistentVolumeSource or ClaimRef",
        ),
    ] {
        let expected = format!("failed to translate in-tree pv to CSI: {error}");
        assert_eq!(source(spec), Err(expected));
    }
}

#[test]
fn annotations_and_the_claim_complete_shares() {
    let metadata = json!({"name": "pv", "annotations": {
        "kubernetes.io/azure-file-resource-group": "group",
        "openstorage.io/auth-secret-name": "auth", "openstorage.io/auth-secret-namespace": "px",
    }});
    let share = json!({"azureFile": {"secretName": "own-name", "shareName": "s", "readOnly": true},
        "claimRef": {"namespace": "team"}});
    let share = persistent(share, metadata.clone()).unwrap();
    assert_eq!(share["csi"]["volumeHandle"], "group#own-name#s#pv#team");
    assert_eq!(
        share["csi"]["nodeStageSecretRef"],
        json!({"name": "own-name", "namespace": "team"})
    );
    let portworx = persistent(json!({"portworxVolume": {"volumeID": "p"}}), metadata).unwrap();
    let secret = json!({"name": "auth", "namespace": "px"});
    for reference in [
        "nodeStageSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        assert_eq!(portworx["csi"][reference], secret, "{reference}");
    }
}

#[test]
fn access_modes_of_gce_disks_are_reduced_to_one() {
    for (modes, expected) in [
        (json!(["ReadWriteMany"]), json!(["ReadWriteOnce"])),
        (json!(["ReadOnlyMany"]), json!(["ReadOnlyMany"])),
        (
            json!(["ReadWriteOnce", "ReadOnlyMany"]),
            json!(["ReadWriteOnce"]),
        ),
        (json!([]), json!(["ReadWriteOnce"])),
    ] {
        let spec = json!({"gcePersistentDisk": {"pdName": "d"}, "accessModes": modes});
        assert_eq!(
            persistent(spec, json!({})).unwrap()["accessModes"],
            expected
        );
    }
}

fn affinity(requirements: Value) -> Value {
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": requirements}]}})
}

#[test]
fn topology_is_translated_from_affinity_or_labels() {
    const ZONE: &str = "topology.kubernetes.io/zone";
    const BETA: &str = "failure-domain.beta.kubernetes.io/zone";
    const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
    const EBS: &str = "topology.ebs.csi.aws.com/zone";
    let ebs = json!({"awsElasticBlockStore": {"volumeID": "vol-1"}});
    let vsphere = json!({"vsphereVolume": {"volumePath": "v"}});
    let is_in =
        |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
    let with = |spec: &Value, requirements: Value| {
        let mut spec = spec.clone();
        spec["nodeAffinity"] = affinity(requirements);
        spec
    };
    for (spec, labels, expected) in [
        // Upstream's: affinity wins over labels, and both generations of labels are known.
        (
            with(&ebs, json!([is_in(ZONE, &["a"])])),
            json!({ZONE: "b"}),
            json!([is_in(EBS, &["a"])]),
        ),
        (
            with(&ebs, json!([is_in(BETA, &["a", "b"])])),
            json!({}),
            json!([is_in(EBS, &["a", "b"])]),
        ),
        (
            ebs.clone(),
            json!({ZONE: "b__a__b"}),
            json!([is_in(EBS, &["a", "b"])]),
        ),
        (ebs.clone(), json!({BETA: "a"}), json!([is_in(EBS, &["a"])])),
        (
            with(&ebs, json!([is_in("disk", &["ssd"])])),
            json!({ZONE: "a"}),
            json!([is_in("disk", &["ssd"]), is_in(EBS, &["a"])]),
        ),
        (
            with(
                &ebs,
                json!([is_in(BETA, &["a"]), is_in(BETA_REGION, &["r"])]),
            ),
            json!({}),
            json!([
                is_in(EBS, &["a"]),
                is_in("topology.kubernetes.io/region", &["r"])
            ]),
        ),
        (
            with(
                &vsphere,
                json!([is_in(BETA, &["a"]), is_in(BETA_REGION, &["r"])]),
            ),
            json!({}),
            json!([
                is_in("topology.csi.vmware.com/zone", &["a"]),
                is_in("topology.csi.vmware.com/region", &["r"])
            ]),
        ),
        (
            vsphere.clone(),
            json!({ZONE: "a", "topology.kubernetes.io/region": "r"}),
            json!([
                is_in("topology.csi.vmware.com/zone", &["a"]),
                is_in("topology.csi.vmware.com/region", &["r"])
            ]),
        ),
    ] {
        let translated = persistent(spec, json!({"labels": labels})).unwrap();
        assert_eq!(translated["nodeAffinity"], affinity(expected), "{labels}");
    }
    assert!(
        persistent(ebs, json!({}))
            .unwrap()
            .get("nodeAffinity")
            .is_none()
    );
}

#[test]
fn regional_gce_disks_have_the_region_of_their_zones() {
    let handle = |zones: &str| {
        let metadata = json!({"labels": {"topology.kubernetes.io/zone": zones}});
        let spec = persistent(json!({"gcePersistentDisk": {"pdName": "d"}}), metadata)?;
        Ok::<_, String>(spec["csi"]["volumeHandle"].as_str().unwrap().to_owned())
    };
    let regional = "projects/UNSPECIFIED/regions/us-central1/disks/d";
    assert_eq!(
        handle("us-central1-a__us-central1-c").as_deref(),
        Ok(regional)
    );
    let zonal = "projects/UNSPECIFIED/zones/us-central1-a/disks/d";
    assert_eq!(handle("us-central1-a").as_deref(), Ok(zonal));
    assert!(
        handle("us-central1-a__us-east1-b")
            .unwrap_err()
            .contains("multiple or no regions")
    );
    assert!(
        handle("a__b")
            .unwrap_err()
            .contains("zone in unexpected format")
    );
}

#[test]
fn inline_volumes_become_persistent_volumes_of_their_own() {
    for (volume, name, handle, modes) in [
        (
            json!({"awsElasticBlockStore": {"volumeID": "aws:///vol-1"}}),
            "ebs.csi.aws.com-vol-1",
            "vol-1",
            "ReadWriteOnce",
        ),
        (
            json!({"gcePersistentDisk": {"pdName": "d", "readOnly": true}}),
            "pd.csi.storage.gke.io-d",
            "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
            "ReadOnlyMany",
        ),
        (
            json!({"azureDisk": {"diskName": "d", "diskURI": "/s/d", "cachingMode": ""}}),
            "/s/d",
            "/s/d",
            "ReadWriteOnce",
        ),
        (
            json!({"azureFile": {"secretName": "s", "shareName": "share"}}),
            "#s#share#v#ns",
            "#s#share#v#ns",
            "ReadWriteMany",
        ),
        (
            json!({"cinder": {"volumeID": "c"}}),
            "cinder.csi.openstack.org-c",
            "c",
            "ReadWriteOnce",
        ),
        (
            json!({"vsphereVolume": {"volumePath": "[ds] v"}}),
            "csi.vsphere.vmware.com-[ds] v",
            "[ds] v",
            "ReadWriteOnce",
        ),
        (
            json!({"portworxVolume": {"volumeID": "p", "readOnly": true}}),
            "pxd.portworx.com-p",
            "p",
            "ReadOnlyMany",
        ),
    ] {
        let mut volume = volume;
        volume["name"] = json!("v");
        let translated = inline(volume).unwrap();
        assert_eq!(translated["metadata"]["name"], name);
        let spec = &translated["spec"];
        assert_eq!(spec["csi"]["volumeHandle"], handle);
        assert_eq!(spec["accessModes"], json!([modes]));
        assert_eq!(spec["volumeMode"], "Filesystem");
        let attributes = spec["csi"]["volumeAttributes"].as_object().unwrap();
        assert!(!attributes.contains_key("cachingmode"));
    }
    let refused = inline(
        json!({"name": "v", "azureDisk": {"diskName": "d", "diskURI": "u", "kind": "Shared"}}),
    );
    let error =
        "failed to translate in-tree pv to CSI: kind(Shared) is not supported in csi migration";
    assert_eq!(refused, Err(error.to_owned()));
    let other: api::Volume = serde_json::from_value(json!({"name": "v", "emptyDir": {}})).unwrap();
    assert!(translate_inline(&other, "ns").is_none());
}
