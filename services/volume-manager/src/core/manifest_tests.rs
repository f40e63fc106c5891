mod sources;

use proptest::prelude::*;
use serde_json::json;

use super::blocked::Blocked;
use super::builtin::{Medium, PathCheck};
use super::downward;
use super::manifest::{ParsePodError, parse};
use super::mount_plan::MountPlan;
use super::spec::{Allocatable, FileSource, FilesSpec, PodVolumeSpec, VolumeSource, VolumeSpec};
use super::usage;

const NODE: Allocatable = Allocatable {
    cpu_milli: 1500,
    memory: 1 << 30,
    ephemeral_storage: 1 << 40,
};

fn pod(volumes: serde_json::Value) -> Vec<u8> {
    let names = volumes
        .as_array()
        .into_iter()
        .flatten()
        .map(|v| v["name"].clone());
    let mounts: Vec<_> = names
        .map(|name| json!({"name": name, "mountPath": "/m"}))
        .collect();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u",
            "labels": {"b": "2", "a": "x\"y\n"},
            "annotations": {"k": "v"},
        },
        "spec": {
            "volumes": volumes,
            "securityContext": {"fsGroup": 7},
            "containers": [{
                "name": "c", "volumeMounts": mounts,
                "resources": {"requests": {"cpu": "100m", "hugepages-2Mi": "4Mi"}, "limits": {"memory": "100Mi"}},
            }],
        },
    });
    serde_json::to_vec(&pod).unwrap()
}

fn parse_one(volume: serde_json::Value) -> VolumeSource {
    let spec = parse(&pod(json!([volume])), NODE).unwrap();
    spec.volumes.into_iter().next().unwrap().source
}

fn unsupported(volume: serde_json::Value) -> String {
    match parse_one(volume) {
        VolumeSource::Unsupported(Blocked::Failed(error) | Blocked::Unresolved(error)) => error,
        other => panic!("supported: {other:?}"),
    }
}

#[test]
fn parses_empty_dirs() {
    let dir = |medium| {
        VolumeSource::Builtin(MountPlan::EmptyDir {
            medium,
            gid: Some(7),
        })
    };
    assert_eq!(
        parse_one(json!({"name": "v", "emptyDir": {}})),
        dir(Medium::Disk)
    );
    assert_eq!(parse_one(json!({"name": "v"})), dir(Medium::Disk));
    let memory = parse_one(json!({"name": "v", "emptyDir": {"medium": "Memory"}}));
    assert_eq!(
        memory,
        dir(Medium::Memory {
            size: Some(100 << 20)
        })
    );
    let memory =
        parse_one(json!({"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}));
    assert_eq!(
        memory,
        dir(Medium::Memory {
            size: Some(1 << 20)
        })
    );
    let huge = parse_one(json!({"name": "v", "emptyDir": {"medium": "HugePages"}}));
    assert_eq!(huge, dir(Medium::HugePages { page_size: 2 << 20 }));
    let huge = parse_one(json!({"name": "v", "emptyDir": {"medium": "HugePages-2Mi"}}));
    assert_eq!(huge, dir(Medium::HugePages { page_size: 2 << 20 }));
    assert!(unsupported(json!({"name": "v", "emptyDir": {"medium": "Paper"}})).contains("Paper"));
}

#[test]
fn parses_host_paths() {
    let host_path =
        |path: &str, type_: &str| json!({"name": "v", "hostPath": {"path": path, "type": type_}});
    let plain = MountPlan::HostPath {
        path: "/x".into(),
        check: PathCheck::Socket,
    };
    assert_eq!(
        parse_one(host_path("/x", "Socket")),
        VolumeSource::Builtin(plain)
    );
    assert!(unsupported(host_path("x", "")).contains("absolute"));
    assert!(unsupported(host_path("/x/../y", "")).contains(".."));
    assert_eq!(
        unsupported(host_path("/x", "Door")),
        "Door is an invalid volume type"
    );
}

#[test]
fn unsupported_sources_are_named() {
    let iscsi = json!({"targetPortal": "p", "iqn": "i", "lun": 0});
    let error = unsupported(json!({"name": "data", "iscsi": iscsi}));
    let upstream =
        "failed to get Plugin from volumeSpec for volume \"data\" err=no volume plugin matched";
    assert!(
        error.starts_with(upstream) && error.contains("iscsi") && error.contains("emptyDir"),
        "{error}"
    );
    let error = unsupported(json!({"name": "data", "fromTheFuture": {}}));
    assert!(error.contains("fromTheFuture"), "{error}");
    let error = unsupported(json!({"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}));
    assert!(error.contains("more than one"), "{error}");
    let error = unsupported(json!({"name": "v", "emptyDir": {}, "fromTheFuture": {}}));
    assert!(error.contains("more than one"), "{error}");
    // Unknown fields of a known source are ignored.
    let known = parse_one(json!({"name": "v", "emptyDir": {"fromTheFuture": 1}}));
    assert!(matches!(known, VolumeSource::Builtin(_)));
    assert!(unsupported(json!({"name": "../v", "emptyDir": {}})).contains("DNS label"));
    let mode = json!({"name": "v", "configMap": {"name": "c", "defaultMode": 4096}});
    assert!(unsupported(mode).contains("0777"));
}

#[test]
fn only_used_volumes_count() {
    let mut pod: serde_json::Value =
        serde_json::from_slice(&pod(json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]))).unwrap();
    let mounts = json!([{"name": "b", "mountPath": "/b"}]);
    pod["spec"]["containers"][0]["volumeMounts"] = mounts;
    pod["spec"]["initContainers"] =
        json!([{"name": "i", "volumeDevices": [{"name": "c", "devicePath": "/d"}]}]);
    let spec = parse(&serde_json::to_vec(&pod).unwrap(), NODE).unwrap();
    let names: Vec<_> = spec.volumes.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["b", "c"]);
}

#[test]
fn image_volumes_are_left_to_the_runtime() {
    let image = json!({"name": "i", "image": {"reference": "r", "pullPolicy": "IfNotPresent"}});
    assert!(
        parse(&pod(json!([image])), NODE)
            .unwrap()
            .volumes
            .is_empty()
    );
    let both = json!([{"name": "i", "image": {"reference": "r"}}, {"name": "e", "emptyDir": {}}]);
    let spec = parse(&pod(both), NODE).unwrap();
    let names: Vec<_> = spec.volumes.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["e"]);
}

fn downward_files(items: serde_json::Value) -> Result<Vec<String>, String> {
    match parse_one(json!({"name": "v", "downwardAPI": {"items": items}})) {
        VolumeSource::Files(FilesSpec { sources, .. }) => match sources.into_iter().next() {
            Some(FileSource::Static(files)) => Ok(files?
                .into_iter()
                .map(|(_, file)| String::from_utf8(file.bytes.0.to_vec()).unwrap())
                .collect()),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn fields_of_the_pod() {
    let field = |path: &str| {
        let files = downward_files(json!([{"path": "f", "fieldRef": {"fieldPath": path}}]))?;
        Ok::<_, String>(files.concat())
    };
    assert_eq!(field("metadata.name").unwrap(), "p");
    assert_eq!(field("metadata.namespace").unwrap(), "ns");
    assert_eq!(field("metadata.uid").unwrap(), "u");
    assert_eq!(
        field("metadata.labels").unwrap(),
        "a=\"x\\\"y\\n\"\nb=\"2\""
    );
    assert_eq!(field("metadata.annotations").unwrap(), "k=\"v\"");
    assert_eq!(field("metadata.labels['b']").unwrap(), "2");
    assert_eq!(field("metadata.annotations['none']").unwrap(), "");
    assert!(
        field("spec.nodeName")
            .unwrap_err()
            .contains("spec.nodeName")
    );
}

#[test]
fn resources_of_a_container() {
    let resource = |resource: &str, divisor: &str| {
        let field = json!({"containerName": "c", "resource": resource, "divisor": divisor});
        downward_files(json!([{"path": "f", "resourceFieldRef": field}])).map(|f| f.concat())
    };
    let table = [
        ("requests.cpu", "0", "1"),
        ("requests.cpu", "1m", "100"),
        ("limits.cpu", "1m", "1500"),
        ("limits.cpu", "1", "2"),
        ("limits.memory", "1Mi", "100"),
        ("limits.memory", "0", "104857600"),
        ("requests.memory", "1", "0"),
        ("limits.ephemeral-storage", "1Gi", "1024"),
        ("requests.hugepages-2Mi", "1Mi", "4"),
    ];
    for (name, divisor, value) in table {
        assert_eq!(
            resource(name, divisor).as_deref(),
            Ok(value),
            "{name} / {divisor}"
        );
    }
    assert!(resource("limits.dreams", "1").is_err());
    assert!(resource("cpu", "1").is_err());
    assert!(resource("requests.cpu", "x").unwrap_err().contains('x'));
}

#[test]
fn the_pod_limit_is_the_default_before_allocatable() {
    let pod = json!({"spec": {
        "resources": {"limits": {"cpu": "500m", "memory": "0"}},
        "containers": [
            {"name": "a", "resources": {"limits": {"cpu": "100m"}}},
            {"name": "b"}]}});
    let pod = serde_json::from_value(pod).unwrap();
    let ask = |container: &str, resource: &str, divisor: &str| {
        let field = json!({"containerName": container, "resource": resource, "divisor": divisor});
        let item = serde_json::from_value(json!({"path": "f", "resourceFieldRef": field})).unwrap();
        let files = downward::files(&[item], &pod, NODE, 0o644).unwrap();
        String::from_utf8(files[0].1.bytes.0.to_vec()).unwrap()
    };
    assert_eq!(ask("a", "limits.cpu", "1m"), "100");
    assert_eq!(ask("b", "limits.cpu", "1m"), "500");
    assert_eq!(ask("b", "limits.memory", "1Mi"), "1024");
    assert_eq!(ask("b", "requests.cpu", "1m"), "0");
}

#[test]
fn fs_group_must_be_a_group_id() {
    let mut pod: serde_json::Value = serde_json::from_slice(&pod(json!([]))).unwrap();
    pod["spec"]["securityContext"]["fsGroup"] = json!(-1);
    let parsed = parse(&serde_json::to_vec(&pod).unwrap(), NODE);
    assert!(matches!(parsed, Err(ParsePodError::FsGroup(-1))));
}

#[test]
fn objects_are_in_the_namespace_of_the_pod() {
    let spec = parse(
        &pod(json!([
            {"name": "a", "configMap": {"name": "c"}},
            {"name": "b", "projected": {"sources": [{"secret": {"name": "s"}}, {"configMap": {"name": "c"}}]}},
        ])),
        NODE,
    );
    let spec: PodVolumeSpec = spec.unwrap();
    let keys: Vec<_> = spec.objects().iter().map(ToString::to_string).collect();
    assert_eq!(keys, ["configmap \"ns/c\"", "secret \"ns/s\""]);
    let plugins: Vec<_> = spec.volumes.iter().map(VolumeSpec::plugin).collect();
    assert_eq!(
        plugins,
        [
            Some("kubernetes.io~configmap"),
            Some("kubernetes.io~projected")
        ]
    );
}

proptest! {
    #[test]
    fn any_input_is_parsed_without_panic(json in "\\PC{0,60}") {
        let _ = parse(json.as_bytes(), NODE);
    }

    #[test]
    fn any_field_path_is_evaluated_without_panic(path in "[a-z.\\[\\]']{0,24}") {
        let item = json!([{"path": "f", "fieldRef": {"fieldPath": path}}]);
        let _ = downward_files(item);
    }

    #[test]
    fn any_quantity_is_parsed_without_panic(text in "[0-9.eEmKkMGi-]{0,12}") {
        let quantity = k8s_openapi::apimachinery::pkg::api::resource::Quantity(text);
        let _ = usage::nanos(&quantity);
    }
}

fn projection(
    source: &str,
    security: serde_json::Value,
    container: serde_json::Value,
) -> VolumeSource {
    let pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u",
            "annotations": {"kubernetes.io/config.source": source}},
        "spec": {
            "serviceAccountName": "robot",
            "securityContext": security,
            "volumes": [{"name": "v", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            ]}}],
            "containers": [
                {"name": "a", "securityContext": container,
                    "volumeMounts": [{"name": "v", "mountPath": "/m"}]},
                {"name": "b", "volumeMounts": [{"name": "v", "mountPath": "/m"}]},
            ],
        },
    });
    let spec = parse(&serde_json::to_vec(&pod).unwrap(), NODE).unwrap();
    spec.volumes.into_iter().next().unwrap().source
}

#[test]
fn projected_token_belongs_to_the_user_of_the_containers() {
    let sources = |security, container| match projection("api", security, container) {
        VolumeSource::Files(files) => files.sources,
        other => panic!("{other:?}"),
    };
    let token = |security, container| match sources(security, container).swap_remove(0) {
        FileSource::Token(token) => token,
        other => panic!("{other:?}"),
    };
    let plain = token(json!({}), json!({}));
    assert_eq!((plain.mode, plain.uid), (0o644, None));
    assert_eq!(plain.key.service_account, "robot");
    assert_eq!(
        (plain.key.uid.as_str(), plain.key.expiration_seconds),
        ("u", 3607)
    );
    // Owned by the one user of all containers; readable by the group; otherwise readable by all.
    let own = token(json!({"runAsUser": 7}), json!({}));
    assert_eq!((own.mode, own.uid), (0o600, Some(7)));
    let two = token(json!({"runAsUser": 7}), json!({"runAsUser": 8}));
    assert_eq!((two.mode, two.uid), (0o644, None));
    let group = token(json!({"fsGroup": 9}), json!({}));
    assert_eq!((group.mode, group.uid), (0o600, None));
    let all = sources(json!({}), json!({}));
    assert!(matches!(&all[1], FileSource::Object(map) if map.key.cluster));
    assert!(matches!(&all[2], FileSource::Static(Ok(files)) if files.len() == 1));
    let local = projection("file", json!({}), json!({}));
    assert!(
        matches!(local, VolumeSource::Unsupported(Blocked::Failed(error)) if error.contains("serviceAccountToken"))
    );
}
