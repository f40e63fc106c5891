use proptest::prelude::*;
use serde_json::json;

use super::downward;
use super::manifest::{ManifestError, read};
use super::spec::{
    Allocatable, FilesSpec, Medium, PathCheck, PodSpec, SetUp, Source, Volume, Wants,
};

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

fn one(volume: serde_json::Value) -> Wants {
    let spec = read(&pod(json!([volume])), NODE).unwrap();
    spec.volumes.into_iter().next().unwrap().wants
}

fn refused(volume: serde_json::Value) -> String {
    match one(volume) {
        Wants::Refused(why) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn empty_dirs() {
    let dir = |medium| {
        Wants::Plain(SetUp::EmptyDir {
            medium,
            gid: Some(7),
        })
    };
    assert_eq!(one(json!({"name": "v", "emptyDir": {}})), dir(Medium::Disk));
    assert_eq!(one(json!({"name": "v"})), dir(Medium::Disk));
    let memory = one(json!({"name": "v", "emptyDir": {"medium": "Memory"}}));
    assert_eq!(
        memory,
        dir(Medium::Memory {
            size: Some(100 << 20)
        })
    );
    let memory = one(json!({"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}));
    assert_eq!(
        memory,
        dir(Medium::Memory {
            size: Some(1 << 20)
        })
    );
    let huge = one(json!({"name": "v", "emptyDir": {"medium": "HugePages"}}));
    assert_eq!(huge, dir(Medium::HugePages { page_size: 2 << 20 }));
    let huge = one(json!({"name": "v", "emptyDir": {"medium": "HugePages-1Gi"}}));
    assert_eq!(huge, dir(Medium::HugePages { page_size: 1 << 30 }));
    assert!(refused(json!({"name": "v", "emptyDir": {"medium": "Paper"}})).contains("Paper"));
}

#[test]
fn host_paths() {
    let of =
        |path: &str, type_: &str| json!({"name": "v", "hostPath": {"path": path, "type": type_}});
    let plain = SetUp::HostPath {
        path: "/x".into(),
        check: PathCheck::Socket,
    };
    assert_eq!(one(of("/x", "Socket")), Wants::Plain(plain));
    assert!(refused(of("x", "")).contains("absolute"));
    assert!(refused(of("/x/../y", "")).contains(".."));
    assert_eq!(refused(of("/x", "Door")), "Door is an invalid volume type");
}

#[test]
fn what_is_not_supported_is_named() {
    let why = refused(json!({"name": "data", "nfs": {"server": "s", "path": "/"}}));
    assert!(
        why.contains("\"data\"") && why.contains("nfs") && why.contains("emptyDir"),
        "{why}"
    );
    let why = refused(json!({"name": "data", "fromTheFuture": {}}));
    assert!(why.contains("fromTheFuture"), "{why}");
    let why = refused(json!({"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}));
    assert!(why.contains("more than one"), "{why}");
    assert!(refused(json!({"name": "../v", "emptyDir": {}})).contains("DNS label"));
    let mode = json!({"name": "v", "configMap": {"name": "c", "defaultMode": 4096}});
    assert!(refused(mode).contains("0777"));
}

#[test]
fn only_what_is_used() {
    let mut pod: serde_json::Value =
        serde_json::from_slice(&pod(json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]))).unwrap();
    let mounts = json!([{"name": "b", "mountPath": "/b"}]);
    pod["spec"]["containers"][0]["volumeMounts"] = mounts;
    pod["spec"]["initContainers"] =
        json!([{"name": "i", "volumeDevices": [{"name": "c", "devicePath": "/d"}]}]);
    let spec = read(&serde_json::to_vec(&pod).unwrap(), NODE).unwrap();
    let names: Vec<_> = spec.volumes.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["b", "c"]);
}

#[test]
fn images_are_the_runtimes_to_mount() {
    let image = json!({"name": "i", "image": {"reference": "r", "pullPolicy": "IfNotPresent"}});
    assert!(read(&pod(json!([image])), NODE).unwrap().volumes.is_empty());
    let both = json!([{"name": "i", "image": {"reference": "r"}}, {"name": "e", "emptyDir": {}}]);
    let spec = read(&pod(both), NODE).unwrap();
    let names: Vec<_> = spec.volumes.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["e"]);
}

fn downward_files(items: serde_json::Value) -> Result<Vec<String>, String> {
    match one(json!({"name": "v", "downwardAPI": {"items": items}})) {
        Wants::Files(FilesSpec { sources, .. }) => match sources.into_iter().next() {
            Some(Source::Ready(files)) => Ok(files?
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
fn what_the_pod_may_have_comes_before_what_the_node_has() {
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
fn a_group_must_be_one() {
    let mut pod: serde_json::Value = serde_json::from_slice(&pod(json!([]))).unwrap();
    pod["spec"]["securityContext"]["fsGroup"] = json!(-1);
    let read = read(&serde_json::to_vec(&pod).unwrap(), NODE);
    assert!(matches!(read, Err(ManifestError::FsGroup(-1))));
}

#[test]
fn objects_are_those_of_the_pods_namespace() {
    let spec = read(
        &pod(json!([
            {"name": "a", "configMap": {"name": "c"}},
            {"name": "b", "projected": {"sources": [{"secret": {"name": "s"}}, {"configMap": {"name": "c"}}]}},
        ])),
        NODE,
    );
    let spec: PodSpec = spec.unwrap();
    let keys: Vec<_> = spec.objects().iter().map(ToString::to_string).collect();
    assert_eq!(keys, ["configmap \"ns/c\"", "secret \"ns/s\""]);
    let plugins: Vec<_> = spec.volumes.iter().map(Volume::plugin).collect();
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
    fn junk_is_refused_and_never_panics(json in "\\PC{0,60}") {
        let _ = read(json.as_bytes(), NODE);
    }

    #[test]
    fn any_field_path_is_answered(path in "[a-z.\\[\\]']{0,24}") {
        let item = json!([{"path": "f", "fieldRef": {"fieldPath": path}}]);
        let _ = downward_files(item);
    }

    #[test]
    fn any_quantity_is_answered(text in "[0-9.eEmKkMGi-]{0,12}") {
        let quantity = k8s_openapi::apimachinery::pkg::api::resource::Quantity(text);
        let _ = downward::nano(&quantity);
    }
}

fn projection(source: &str, security: serde_json::Value, container: serde_json::Value) -> Wants {
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
    let spec = read(&serde_json::to_vec(&pod).unwrap(), NODE).unwrap();
    spec.volumes.into_iter().next().unwrap().wants
}

#[test]
fn what_every_pod_of_the_cluster_mounts() {
    let sources = |security, container| match projection("api", security, container) {
        Wants::Files(files) => files.sources,
        other => panic!("{other:?}"),
    };
    let token = |security, container| match sources(security, container).swap_remove(0) {
        Source::Token(token) => token,
        other => panic!("{other:?}"),
    };
    let plain = token(json!({}), json!({}));
    assert_eq!((plain.mode, plain.uid), (0o644, None));
    assert_eq!(plain.key.service_account, "robot");
    assert_eq!(
        (plain.key.uid.as_str(), plain.key.expiration_seconds),
        ("u", 3607)
    );
    // One user of all containers owns it; a group reads it; users of several minds see it all.
    let own = token(json!({"runAsUser": 7}), json!({}));
    assert_eq!((own.mode, own.uid), (0o600, Some(7)));
    let two = token(json!({"runAsUser": 7}), json!({"runAsUser": 8}));
    assert_eq!((two.mode, two.uid), (0o644, None));
    let group = token(json!({"fsGroup": 9}), json!({}));
    assert_eq!((group.mode, group.uid), (0o600, None));
    let all = sources(json!({}), json!({}));
    assert!(matches!(&all[1], Source::Object(map) if map.key.cluster));
    assert!(matches!(&all[2], Source::Ready(Ok(files)) if files.len() == 1));
    let local = projection("file", json!({}), json!({}));
    assert!(matches!(local, Wants::Refused(why) if why.contains("serviceAccountToken")));
}
