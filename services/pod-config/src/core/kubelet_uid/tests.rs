//! Against what a kubelet computes: `tests/` has its hashes, which `cargo generate static-pods` writes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::layout::{GoLayout, GoType};
use super::*;
use crate::core::decode::{ManifestObject, decode};
use crate::core::identity::{ManifestOrigin, generate_uid};

const MANIFESTS: &str = include_str!("tests/manifests.yaml");
const UIDS: &str = include_str!("tests/uids.txt");
const FILLED: &str = include_str!("tests/filled.txt");

fn dumped(pod: &Value) -> Result<String, DumpError> {
    let mut text = String::new();
    dump_pod(pod.clone(), &mut |part| text.push_str(part))?;
    Ok(text)
}

/// The dump of a pod with a container and these fields of its spec.
fn of_spec(spec: Value) -> String {
    let mut pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}});
    for (key, value) in spec.as_object().expect("fields") {
        pod["spec"][key] = value.clone();
    }
    dumped(&pod).expect("a dump")
}

/// The UIDs of all manifests by pod name, as in the list that the kubelet made.
fn uids(source: StaticPodSource) -> BTreeMap<String, String> {
    let documents = MANIFESTS.split("\n---\n").enumerate();
    documents
        .map(|(number, text)| {
            let path = format!("manifests/{number:03}.yaml");
            let origin = ManifestOrigin {
                node: "node1",
                source,
                origin: match source {
                    StaticPodSource::File => &path,
                    StaticPodSource::Http => "http://manifests.example/pod.yaml",
                },
                adoption: None,
            };
            let document = decode(text.as_bytes()).pop().expect("a document");
            let Ok(ManifestObject::Pod(pod)) = document.body else {
                panic!("no pod: {text}");
            };
            let name = pod["metadata"]["name"].as_str().expect("a name");
            let uid = generate_uid(&pod, &origin).unwrap_or_else(|| panic!("no uid: {text}"));
            (format!("{name}-node1"), uid)
        })
        .collect()
}

#[test]
fn manifests_have_the_uids_of_a_kubelet() {
    let mut expected: BTreeMap<bool, BTreeMap<String, String>> = BTreeMap::new();
    for line in UIDS.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (name, uid) = (words[0].to_owned(), words[words.len() - 1].to_owned());
        expected
            .entry(words.len() == 3)
            .or_default()
            .insert(name, uid);
    }
    assert!(expected[&false].len() >= 100, "{}", expected[&false].len());
    assert_eq!(uids(StaticPodSource::File), expected[&false]);
    assert_eq!(uids(StaticPodSource::Http), expected[&true]);
}

#[test]
fn filled_pods_have_the_hash_of_a_kubelet() {
    for (number, line) in FILLED.lines().enumerate() {
        let (expected, pod) = line.split_once(' ').expect("hash and pod");
        let mut hash = Fnv1a128::default();
        let pod = serde_json::from_str(pod).expect("JSON");
        dump_pod(pod, &mut |text| hash.update(text.as_bytes())).expect("a dump");
        assert_eq!(format!("{:032x}", hash.finish()), expected, "pod {number}");
    }
}

/// A field that no pod of the fixture sets could be printed wrongly.
#[test]
fn fixture_has_all_fields() {
    let layout = GoLayout::read();
    let mut set = BTreeSet::new();
    for line in FILLED.lines() {
        let (_, pod) = line.split_once(' ').expect("hash and pod");
        let pod: Value = serde_json::from_str(pod).expect("JSON");
        collect(&layout, "core.Pod", &pod, &mut set);
    }
    let mut missing = BTreeSet::new();
    collect_missing(
        &layout,
        "core.Pod",
        &set,
        &mut BTreeSet::new(),
        &mut missing,
    );
    // Conversion sets these from other ones.
    let moved = [
        "HostNetwork",
        "HostPID",
        "HostIPC",
        "ShareProcessNamespace",
        "HostUsers",
    ];
    missing.retain(|(of, field)| *of != "core.PodSecurityContext" || !moved.contains(field));
    assert!(missing.is_empty(), "{missing:#?}");
}

type Fields = BTreeSet<(&'static str, &'static str)>;

fn collect(layout: &GoLayout, go_type: &'static str, value: &Value, set: &mut Fields) {
    match (layout.get(go_type), value) {
        (Some(GoType::Pointer(target)), value) => collect(layout, target, value, set),
        (Some(GoType::Slice(item)), Value::Array(items)) => {
            items
                .iter()
                .for_each(|value| collect(layout, item, value, set));
        }
        (Some(GoType::Struct(fields)), Value::Object(object)) => {
            for field in fields {
                let own = field.key.map_or(Some(value), |key| object.get(key));
                if let Some(own) = own.filter(|own| !own.is_null()) {
                    set.insert((go_type, field.name));
                    collect(layout, field.go_type, own, set);
                }
            }
        }
        _ => {}
    }
}

fn collect_missing(
    layout: &GoLayout,
    go_type: &'static str,
    set: &Fields,
    visited: &mut BTreeSet<&'static str>,
    missing: &mut Fields,
) {
    match layout.get(go_type) {
        Some(GoType::Pointer(inner) | GoType::Slice(inner) | GoType::Map(inner)) => {
            collect_missing(layout, inner, set, visited, missing);
        }
        Some(GoType::Struct(fields)) if visited.insert(go_type) => {
            for field in fields {
                // Their dumps depend on the kubelet's time zone.
                if field.go_type.ends_with("v1.Time") || field.name == "ManagedFields" {
                    continue;
                }
                if !set.contains(&(go_type, field.name)) {
                    missing.insert((go_type, field.name));
                }
                collect_missing(layout, field.go_type, set, visited, missing);
            }
        }
        Some(_) => {}
        None => panic!("{go_type} is not in the layout"),
    }
}

#[test]
fn paths_are_cleaned() {
    for (path, cleaned) in [
        (
            "/etc/kubernetes/manifests/a.yaml",
            "/etc/kubernetes/manifests/a.yaml",
        ),
        (
            "/etc//kubernetes/./manifests/a.yaml",
            "/etc/kubernetes/manifests/a.yaml",
        ),
        ("/etc/x/../a.yaml", "/etc/a.yaml"),
        ("/../a.yaml", "/a.yaml"),
        ("../x/../../a.yaml", "../../a.yaml"),
    ] {
        assert_eq!(clean_path(path), cleaned);
    }
}

#[test]
fn nil_differs_from_empty() {
    for (spec, expected) in [
        (json!({}), "Volumes:([]core.Volume)<nil>"),
        (json!({"volumes": []}), "Volumes:([]core.Volume)[]"),
        (json!({}), "NodeSelector:(map[string]string)<nil>"),
        (
            json!({"nodeSelector": {}}),
            "NodeSelector:(map[string]string)map[]",
        ),
        (
            json!({"nodeSelector": {"b": "2", "a": "1"}}),
            "map[a:1 b:2]",
        ),
        (json!({}), "Affinity:(*core.Affinity)<nil>"),
        (
            json!({"affinity": {}}),
            "Affinity:(*core.Affinity){NodeAffinity:(*core.NodeAffinity)<nil>",
        ),
        (json!({"priority": 0}), "Priority:(*int32)0"),
        (json!({"priority": null}), "Priority:(*int32)<nil>"),
    ] {
        let dump = of_spec(spec);
        assert!(dump.contains(expected), "{expected}: {dump}");
    }
}

#[test]
fn host_namespaces_and_service_account_are_converted() {
    let dump = of_spec(json!({
        "hostNetwork": true, "serviceAccount": "old", "terminationGracePeriodSeconds": -3,
        "securityContext": {"hostPID": true},
    }));
    for expected in [
        "SecurityContext:(*core.PodSecurityContext){HostNetwork:(bool)true HostPID:(bool)false",
        "ServiceAccountName:(string)old",
        "TerminationGracePeriodSeconds:(*int64)1 ",
    ] {
        assert!(dump.contains(expected), "{expected}: {dump}");
    }
}

#[test]
fn probes_and_ports_have_defaults() {
    let dump = of_spec(json!({
        "hostNetwork": true,
        "containers": [{
            "name": "c", "ports": [{"containerPort": 80}],
            "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 0},
        }],
    }));
    for expected in [
        "{Name:(string) HostPort:(int32)80 ContainerPort:(int32)80 Protocol:(core.Protocol)TCP HostIP:(string)}",
        "HTTPGet:(*core.HTTPGetAction){Path:(string)/ Port:(intstr.IntOrString){Type:(intstr.Type)1 IntVal:(int32)0 StrVal:(string)http}",
        "PeriodSeconds:(int32)10",
    ] {
        assert!(dump.contains(expected), "{expected}: {dump}");
    }
}

#[test]
fn what_no_kubelet_decodes_has_no_dump() {
    let pod = |spec: Value| json!({"metadata": {"name": "a"}, "spec": spec});
    for spec in [
        json!({"containers": {}}),
        json!({"containers": [1]}),
        json!({"priority": "high"}),
        json!({"priority": 3_000_000_000_u64}),
        json!({"hostNetwork": "yes"}),
        json!({"nodeSelector": {"a": 1}}),
        json!({"overhead": {"cpu": "much"}}),
        json!([]),
    ] {
        let found = dumped(&pod(spec.clone()));
        assert!(
            matches!(found, Err(DumpError::Value { .. })),
            "{spec}: {found:?}"
        );
    }
    // The time zone of the kubelet would be part of it.
    let mut dated = pod(json!({}));
    dated["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(dumped(&dated), Err(DumpError::Time));
    dated["metadata"]["creationTimestamp"] = Value::Null;
    assert!(dumped(&dated).is_ok());
}
