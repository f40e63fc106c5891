//! Sources of volumes that need nothing but the manifest.

use serde_json::{Value, json};

use super::{NODE, parse_one, pod, unsupported};
use crate::core::blocked::Blocked;
use crate::core::builtin::Medium;
use crate::core::manifest::parse;
use crate::core::mount_plan::MountPlan;
use crate::core::nfs_volume::NfsVolume;
use crate::core::spec::VolumeSource;

fn pod_object(volumes: Value) -> Value {
    serde_json::from_slice(&pod(volumes)).unwrap()
}

#[test]
fn parses_nfs() {
    let nfs = |server: &str, path: &str| json!({"name": "v", "nfs": {"server": server, "path": path, "readOnly": true}});
    let plan = MountPlan::Nfs(Box::new(NfsVolume {
        server: "s".into(),
        path: "/x".into(),
        mount_options: Vec::new(),
        read_only: true,
    }));
    assert_eq!(parse_one(nfs("s", "/x")), VolumeSource::Builtin(plan));
    assert!(unsupported(nfs("", "/x")).contains("host"));
    assert!(unsupported(nfs("s", "x")).contains("absolute"));
}

#[test]
fn inline_volumes_of_in_tree_plugins_are_those_of_their_drivers() {
    let volume = json!({"name": "v", "awsElasticBlockStore": {"volumeID": "vol-1"}});
    let mut pod = pod_object(json!([volume]));
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.source": "api"});
    let spec = parse(&serde_json::to_vec(&pod).unwrap(), NODE).unwrap();
    let VolumeSource::Migrated(migrated) = &spec.volumes[0].source else {
        panic!("{spec:?}");
    };
    assert_eq!(migrated.source.driver, "ebs.csi.aws.com");
    assert_eq!(migrated.persistent.name, "ebs.csi.aws.com-vol-1");
}

#[test]
fn huge_pages_may_be_requested_for_the_pod() {
    let medium = |medium: &str, pod_level: Value, container: Value| {
        let volume = json!({"name": "v", "emptyDir": {"medium": medium}});
        let mut pod = pod_object(json!([volume]));
        pod["spec"]["resources"] = json!({"requests": pod_level});
        pod["spec"]["containers"][0]["resources"] = json!({"requests": container});
        let spec = parse(&serde_json::to_vec(&pod).unwrap(), NODE).unwrap();
        match spec.volumes[0].source.clone() {
            VolumeSource::Builtin(MountPlan::EmptyDir {
                medium: Medium::HugePages { page_size },
                ..
            }) => Ok(page_size),
            VolumeSource::Unsupported(Blocked::Failed(error)) => Err(error),
            other => panic!("{other:?}"),
        }
    };
    let two = json!({"hugepages-2Mi": "4Mi"});
    assert_eq!(medium("HugePages", two.clone(), json!({})), Ok(2 << 20));
    assert_eq!(medium("HugePages-2Mi", two.clone(), json!({})), Ok(2 << 20));
    let none = "hugePages storage requested, but there is no resource request for huge pages";
    assert_eq!(
        medium("HugePages", json!({"cpu": 1}), json!({})),
        Err(format!("medium HugePages: {none}"))
    );
    assert_eq!(
        medium("HugePages-1Gi", two.clone(), json!({})),
        Err(format!("medium HugePages-1Gi: {none}"))
    );
    let several = medium("HugePages", two, json!({"hugepages-1Gi": "1Gi"}));
    let error = "medium: HugePages can't be used if container requests multiple huge page sizes";
    assert_eq!(several, Err(error.to_owned()));
}
